"""Real agents do a task of several calls, and every call is captured token by token."""

import os
import socket

import pytest
from clients.client import CLIENTS, Client, OpenWorkplace, StartStage, every_client
from clients.lineages import Expected

from switchyard_py.rollouts import Cause

TASK = "Write the greeting."


def script(client: Client) -> list[dict[str, object]]:
    """Two commands, each asked for by what came before it, then the end. A repeated call gets the same again."""
    greet = client.run_command("echo hello > greeting.txt && echo STEP-ONE")
    shout = client.run_command("tr a-z A-Z < greeting.txt > shout.txt && echo STEP-TWO")
    return [
        {"when": {"contains": TASK, "tool": client.shell}, **greet},
        {"when": {"contains": "STEP-ONE", "tool": client.shell}, **shout},
        {"when": {"contains": "STEP-TWO", "tool": client.shell}, **client.end_work()},
    ]


@pytest.mark.skipif("SWITCHYARD_OFFLINE" not in os.environ, reason="the lane found no network namespace")
def test_there_is_no_network_here() -> None:
    assert [name for _, name in socket.if_nameindex()] == ["lo"]


@every_client
async def test_a_task_is_done_and_captured(client: Client, workplace: OpenWorkplace, stage: StartStage) -> None:
    place = workplace(client)
    running, engine = await stage(script(client))
    assert await place.run(TASK, url=running.url, session="s") == 0, place.log
    assert (place.workspace / "shout.txt").read_text() == "HELLO\n"
    sessions = (await running.client.get("/v1/sessions")).json()["sessions"]
    assert [session["session_id"] for session in sessions] == ["s"]
    assert await running.fates("s") == {"valid": 3}
    records = await running.records("s")
    generated = (await engine.get("/simulator/requests")).json()["requests"]
    assert [(len(record["prompt_token_ids"]), len(record["generation_token_ids"])) for record in records] == [
        (call["prompt_tokens"], call["generated_tokens"]) for call in generated
    ]
    assert {record["call"]["streamed"] for record in records} == {client.streams}
    assert {record["call"]["kind"] for record in records} == {"main"}


@every_client
async def test_a_busy_and_a_broken_engine_are_outlasted(
    client: Client, workplace: OpenWorkplace, stage: StartStage, expected: Expected
) -> None:
    place = workplace(client)
    if client.name == "claude-code":
        # It asks to go on in a message of the user, before which the template drops all thinking.
        expected.breaks = [Cause.STRIPPED_BY_TEMPLATE]
    # The second answer is a 429, and the one after next breaks off in the middle.
    running, engine = await stage(script(client), ({"call": 2, "status": 429}, {"call": 4, "cut_after": 40}))
    assert await place.run(TASK, url=running.url, session="s") == 0, place.log
    assert (place.workspace / "shout.txt").read_text() == "HELLO\n"
    assert await running.fates("s") == {"valid": 3, "failed": 2}
    assert (await engine.get("/simulator/requests")).json()["started"] == 5


async def test_the_title_that_opencode_asks_for_is_a_side_call(workplace: OpenWorkplace, stage: StartStage) -> None:
    client = CLIENTS["opencode"]
    place = workplace(client)
    running, _ = await stage([*script(client), {"when": {"contains": ""}, "content": "A greeting"}])
    titled = {'"title": {"disable": true}': '"title": {"disable": false}'}
    assert await place.run(TASK, url=running.url, session="s", but=titled) == 0, place.log
    kinds = {bool(record["tools"]): record["call"]["kind"] for record in await running.records("s")}
    assert kinds == {True: "main", False: "side"}
    assert await running.fates("s") == {"valid": 4}
