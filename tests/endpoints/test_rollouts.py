"""Lineage and rollouts over HTTP: what is given, and why something is not."""

import asyncio
import sys
import time
from typing import Any

import pytest
from running_proxy import HELLO, RunningProxy, StartProxy, session_path
from scripted_engine import ScriptedEngine, Turn, chat

BASH = {"type": "function", "function": {"name": "bash", "description": "run", "parameters": {"type": "object"}}}
FIRST = Turn(reasoning="look", tool_calls=[("bash", {"c": "ls"})], prompt_token_ids=(10, 11))
SECOND = Turn(text="one file", prompt_token_ids=(10, 11, *FIRST.token_ids, 12))
SIDE = Turn(text="A title", prompt_token_ids=(77, 78))
USER = {"role": "user", "content": "list files"}


async def say(running: RunningProxy, engine: ScriptedEngine, turn: Turn, messages: list[Any], **fields: Any) -> Any:
    engine.reply(chat(turn))
    response = await running.chat({"messages": messages, **fields}, "s")
    assert response.status_code == 200
    return response.json()["choices"][0]["message"]


async def tool_loop(running: RunningProxy, engine: ScriptedEngine, second: Turn = SECOND) -> None:
    reply = await say(running, engine, FIRST, [USER], tools=[BASH])
    result = {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "a.txt"}
    await say(running, engine, second, [USER, reply, result], tools=[BASH])


async def get(running: RunningProxy, what: str, status: int = 200) -> Any:
    response = await running.client.get(f"{session_path('s')}/{what}")
    assert response.status_code == status, response.text
    return response.json()


def triples(items: list[dict[str, Any]]) -> list[tuple[list[int], list[int], list[float]]]:
    keys = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    return [tuple(item[key] for key in keys) for item in items if keys[0] in item]


def captured(records: list[dict[str, Any]]) -> list[tuple[list[int], list[int], list[float]]]:
    return triples(records)


async def test_a_linear_session_is_a_rollout_in_the_shape_of_gym(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    await tool_loop(running, engine)
    answer = await get(running, "rollout")
    assert list(answer) == ["schema_version", "session_id", "mode", "rollouts"]
    assert (answer["schema_version"], answer["session_id"], answer["mode"]) == (1, "s", "strict")
    (rollout,) = answer["rollouts"]
    assert list(rollout) == ["chain", "main", "responses_create_params", "response"]
    assert (rollout["chain"], rollout["main"]) == (0, True)
    assert [item["role"] for item in rollout["responses_create_params"]["input"]] == ["user"]
    assert [tool["name"] for tool in rollout["responses_create_params"]["tools"]] == ["bash"]
    assert rollout["response"]["metadata"]["switchyard_session_id"] == "s"
    records = await running.records("s")
    assert triples(rollout["response"]["output"]) == captured(records)
    assert len(records) == 2


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**300])
async def test_integers_of_any_size_come_out_as_they_went_in(
    proxy: StartProxy, engine: ScriptedEngine, number: int
) -> None:
    running = await proxy()
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": number}}}
    tool = {"type": "function", "function": {"name": "count", "description": "", "parameters": schema}}
    engine.reply(chat(FIRST))
    assert (await running.chat({"messages": [USER], "tools": [tool]}, "s")).status_code == 200
    for mode in ("strict", "lineage"):
        answer = await get(running, f"rollout?mode={mode}")
        assert answer["rollouts"][0]["responses_create_params"]["tools"][0]["parameters"] == schema


async def test_rows_hold_every_token_of_the_records(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    await tool_loop(running, engine)
    answer = await get(running, "rollout?format=rows")
    assert list(answer) == ["schema_version", "session_id", "mode", "rows"]
    (row,) = answer["rows"]
    assert list(row) == [
        "session_id", "input_ids", "loss_mask", "logprobs", "segments", "reward", "metadata"
    ]  # fmt: skip
    records = await running.records("s")
    assert [
        (
            row["input_ids"][: segment["start"]],
            row["input_ids"][segment["start"] : segment["end"]],
            row["logprobs"][segment["start"] : segment["end"]],
        )
        for segment in row["segments"]
    ] == captured(records)
    assert [segment["call"] for segment in row["segments"]] == [record["uuid"] for record in records]
    assert sum(row["loss_mask"]) == sum(len(record["generation_token_ids"]) for record in records)


async def test_what_strict_mode_refuses_is_422_with_the_rule_and_the_record(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    await say(running, engine, SIDE, [USER])
    await tool_loop(running, engine)
    uuids = [record["uuid"] for record in await running.records("s")]
    answer = await get(running, "rollout", 422)
    assert list(answer) == ["detail", "code", "refusal"]
    assert answer["code"] == "rollout_refused"
    assert answer["refusal"] == {
        "code": "R9",
        "rule": "model, tools and tool choice are those of the first record",
        "record": 1,
        "uuid": uuids[1],
        "message": "tools differ from those of the first record",
    }
    assert answer["detail"] == f"R9 record 1 ({uuids[1]}): tools differ from those of the first record"
    # Lineage mode delivers the conversation, and every chain if asked to.
    answer = await get(running, "rollout?mode=lineage")
    assert answer["mode"] == "lineage"
    (main,) = answer["rollouts"]
    assert (main["chain"], main["main"]) == (1, True)
    assert len(triples(main["response"]["output"])) == 2
    answer = await get(running, "rollout?mode=lineage&chains=all&format=rows")
    assert [[segment["call"] for segment in row["segments"]] for row in answer["rows"]] == [uuids[1:], uuids[:1]]


async def test_the_lineage_tells_calls_chains_and_why_tokens_were_not_repeated(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    forgetful = Turn(text="one file", prompt_token_ids=(10, 11, 99, 12))
    await tool_loop(running, engine, forgetful)
    answer = await get(running, "lineage")
    assert list(answer) == [
        "schema_version", "session_id", "parent_session_id", "accounting", "missing",
        "calls", "attempts", "diagnoses", "chains", "main", "failures", "faults",
    ]  # fmt: skip
    assert [call["parent"] for call in answer["calls"]] == [None, None]
    (diagnosis,) = answer["diagnoses"]
    assert (diagnosis["call"], diagnosis["predecessor"], diagnosis["position"]) == (1, 0, 2)
    assert diagnosis["explanation"]
    assert [chain["calls"] for chain in answer["chains"]] == [[0], [1]]
    assert answer["main"]["chain"] == 1
    assert "prompt_token_ids" not in str(answer)


async def test_the_main_chain_alone(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    await say(running, engine, SIDE, [USER])
    await tool_loop(running, engine)
    records = await running.records("s")
    envelope = await running.session("s", include="chain")
    assert envelope["completions"] == records[1:]
    assert envelope["accounting"]["begun"] == 3
    assert await running.records("s", include="chain", limit=1) == records[1:2]
    assert await running.records("s", include="chain", after=records[1]["uuid"]) == records[2:]


async def test_no_main_chain_is_422(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(Turn(text="a", prompt_token_ids=(1, 2)), stepped=True))
    engine.reply(chat(Turn(text="b", prompt_token_ids=(1, 2)), stepped=True))
    calls = [asyncio.create_task(running.chat(HELLO | {"stream": True}, "s")) for _ in range(2)]
    while engine.started < 2:
        await asyncio.sleep(0.005)
    while not all(call.done() for call in calls):
        engine.step()
        await asyncio.sleep(0.002)
    for what in ("completions?include=chain", "rollout?mode=lineage"):
        answer = await get(running, what, 422)
        assert answer["refusal"]["code"] == "undecided_retry"
        assert all(record["uuid"] in answer["detail"] for record in await running.records("s"))


async def test_a_session_with_open_calls_is_not_whole(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    await tool_loop(running, engine)
    engine.reply(chat(Turn(text="late", prompt_token_ids=(1, 2)), stepped=True))
    late = asyncio.create_task(running.chat(HELLO | {"stream": True}, "s"))
    await running.until_fates("s", {"valid": 2, "open": 1})
    for mode in ("strict", "lineage"):
        answer = await get(running, f"rollout?mode={mode}", 422)
        assert answer["refusal"] == {"code": "incomplete", "message": "calls that have not ended: 1"}
    waiting = asyncio.create_task(get(running, "rollout?mode=lineage&settled=10"))
    while not late.done():
        engine.step()
        await asyncio.sleep(0.002)
    assert (await waiting)["rollouts"]


async def test_a_record_that_cannot_be_read_is_missed(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    await tool_loop(running, engine)
    third = Turn(text="bye", prompt_token_ids=(*SECOND.prompt_token_ids, *SECOND.token_ids, 13))
    await say(running, engine, third, [USER, {"role": "assistant", "content": "one file"}, USER], tools=[BASH])
    files = running.files(".json")
    contents = [file.read_bytes() for file in files]
    # After the one in the middle comes a record that breaks rules without it.
    for damaged in (files[1], files[2], files[0]):
        for file, content in zip(files, contents, strict=True):
            file.write_bytes(content[:-20] if file == damaged else content)
        for mode in ("strict", "lineage"):
            answer = await get(running, f"rollout?mode={mode}", 422)
            assert answer["refusal"]["code"] == "incomplete"
            says = f"delivered calls without a record that can be read: 1; {damaged.name}: corrupt: "
            assert answer["detail"].startswith(says)
    answer = await get(running, "lineage")
    assert answer["missing"] == 1
    assert answer["faults"][0]["name"] == damaged.name
    assert answer["faults"][0]["reason"].startswith("corrupt: ")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("rollout?format=csv", "format is 'csv'; use gym or rows"),
        ("rollout?mode=loose", "mode is 'loose'; use strict or lineage"),
        ("rollout?chains=3", "chains is '3'; use main or all"),
        ("rollout?settled=x", "settled is 'x'; use seconds from 0 to 600"),
        ("lineage?settled=x", "settled is 'x'; use seconds from 0 to 600"),
    ],
)
async def test_a_query_that_makes_no_sense_says_what_to_write(proxy: StartProxy, query: str, says: str) -> None:
    running = await proxy()
    answer = await get(running, query, 400)
    assert answer == {"detail": says, "code": "invalid_parameter"}


async def test_rows_without_numpy_are_refused_with_what_to_install(
    proxy: StartProxy, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await proxy()
    await tool_loop(running, engine)
    monkeypatch.delitem(sys.modules, "switchyard_py.rollouts.rows", raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    answer = await get(running, "rollout?format=rows", 501)
    assert answer["code"] == "extra_missing"
    assert "numpy" in answer["detail"]
    assert "pip install 'switchyard-py[training]'" in answer["detail"]
    assert (await get(running, "rollout?format=gym"))["rollouts"]


async def test_others_are_answered_while_a_large_session_is_read(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    ids: tuple[int, ...] = (1,)
    messages: list[Any] = [USER]
    for number in range(12):
        turn = Turn(text=f"answer {number}", prompt_token_ids=(*ids, *range(20_000)))
        messages = [*messages, await say(running, engine, turn, messages), USER]
        ids = (*turn.prompt_token_ids, *turn.token_ids)
    reading = [asyncio.create_task(get(running, "rollout?format=rows")) for _ in range(3)]
    slowest, began = 0.0, time.perf_counter()
    while not all(task.done() for task in reading):
        start = time.perf_counter()
        assert (await running.client.get("/health")).status_code == 200
        slowest = max(slowest, time.perf_counter() - start)
    assert len((await reading[0])["rows"][0]["segments"]) == 12
    assert slowest < (time.perf_counter() - began) / 3
