"""Real agents hand work to sub-agents, and the records say which of them made each call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clients.client import CLIENTS, ERRAND_MARK, OpenWorkplace, StartStage
from clients.lineages import Expected, is_errand

from switchyard_py.rollouts import Cause

TASK = "Delegate the greeting."
ERRAND = f"{ERRAND_MARK} write the greeting."


@dataclass(frozen=True)
class Delegation:
    """How an agent starts a sub-agent, and where the records say who made a call."""

    tool: str
    task: str
    """The argument that holds the task."""
    also: Mapping[str, object]
    origin: Callable[[dict[str, Any]], tuple[str | None, str | None]]
    """The agent that made the call of a record, and the one it works for."""
    breaks: tuple[Cause, ...] = ()


DELEGATIONS = {
    "opencode": Delegation(
        "task",
        "prompt",
        {"description": "Greet", "subagent_type": "general"},
        lambda record: (record["call"]["agent"].get("x-session-id", record["session_id"]), record["parent_session_id"]),
    ),
    "codex": Delegation(
        "multi_agent_v1__spawn_agent",
        "message",
        {},
        lambda record: (
            record["call"]["agent"]["thread-id"],
            record["call"]["agent"].get("x-codex-parent-thread-id"),
        ),
        # That the sub-agent is done comes as a message of the user, before which the template drops all thinking.
        breaks=(Cause.STRIPPED_BY_TEMPLATE,),
    ),
    # The header names sub-agents only: the main agent is the one without.
    "claude-code": Delegation(
        "Agent",
        "prompt",
        {"description": "Greet", "subagent_type": "general-purpose", "run_in_background": False},
        lambda record: (record["call"]["agent"].get("x-claude-code-agent-id"), None),
    ),
}


def script(name: str, directory: Path) -> list[dict[str, object]]:
    """The agent delegates and waits, the sub-agent runs a command; a sub-agent in the background is waited for by
    its records."""
    client, delegation = CLIENTS[name], DELEGATIONS[name]
    delegate = {"name": delegation.tool, "arguments": {delegation.task: ERRAND, **delegation.also}}
    wait = f"until [ $(ls {directory}/sessions/*/*.json | wc -l) -ge 4 ]; do sleep 0.1; done; echo WAITED"
    return [
        {"when": {"contains": TASK, "tool": delegation.tool}, "tool_calls": [delegate]},
        {
            "when": {"contains": ERRAND, "tool": client.shell},
            **client.run_command("echo hello > greeting.txt; echo RAN"),
        },
        {"when": {"contains": "RAN"}, "content": "FINISHED"},
        {"when": {"contains": "agent_id", "tool": client.shell}, **client.run_command(wait)},
        {"when": {"contains": ""}, "content": "All is done."},
    ]


@pytest.mark.parametrize("session", ["s", ""], ids=["assigned session", "native session"])
@pytest.mark.parametrize("name", DELEGATIONS)
async def test_the_records_say_which_agent_made_each_call(
    name: str, session: str, workplace: OpenWorkplace, stage: StartStage, expected: Expected, tmp_path: Path
) -> None:
    place = workplace(CLIENTS[name])
    expected.breaks = [*DELEGATIONS[name].breaks]
    running, _ = await stage(script(name, tmp_path / "rl_data"))
    assert await place.run(TASK, url=running.url, session=session) == 0, place.log
    assert (place.workspace / "greeting.txt").read_text() == "hello\n"
    found = (await running.client.get("/v1/sessions")).json()["sessions"]
    records = [record for each in found for record in await running.records(each["session_id"])]
    assert all(record["is_valid"] for record in records)
    by_agent: dict[str, set[tuple[str | None, str | None]]] = {"main": set(), "sub": set()}
    for record in records:
        by_agent["sub" if is_errand(record) else "main"].add(DELEGATIONS[name].origin(record))
    ((main, nobody),) = by_agent["main"]
    ((sub, parent),) = by_agent["sub"]
    assert sub not in (main, None)
    assert (parent, nobody) == (main, None)
    if session:
        assert [each["session_id"] for each in found] == ["s"]
