"""A directory of sessions of many kinds, made by agents through a proxy in front of simulated engines.

    PYTHONPATH=tests .venv/bin/python -m mixed_sessions DIRECTORY [COUNT]

Each session is named `<kind>-<number>`; `KINDS` says what a kind is about, and what strict and lineage mode make of it.
"""

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from running_proxy import ROUTE, RunningProxy, bundle, running_proxy
from running_simulator import running_simulator
from stored_calls import intent

from switchyard_py.store.intent import encode_intent

Message = dict[str, Any]

BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
PYTHON = {"type": "function", "function": {"name": "python", "parameters": {"type": "object", "properties": {}}}}
TASK: Message = {"role": "user", "content": "list the files, then say how many there are"}
STRIPPED, FAILING = "stripped_model", "failing_model"


class Agent:
    """Keeps a history and sends all of it with each call."""

    def __init__(self, running: RunningProxy, session_id: str) -> None:
        self.running = running
        self.session_id = session_id
        self.history: list[Message] = [TASK]

    async def ask(self, messages: list[Message] | None = None, **fields: Any) -> Message:
        """One call, on the history unless messages are given; the reply."""
        headers = fields.pop("headers", None)
        body = {"messages": self.history if messages is None else messages, "tools": [BASH], **fields}
        # Engines refuse an empty list of tools.
        body = {key: value for key, value in body.items() if value}
        response = await self.running.chat(body, self.session_id, headers)
        if response.status_code != 200:
            return {"role": "assistant", "content": "", "failed": True}
        message: Message = response.json()["choices"][0]["message"]
        return {key: value for key, value in message.items() if value}

    def take(self, reply: Message) -> None:
        """Put a reply into the history, with a result for each of its tool calls or the next question."""
        self.history = [*self.history, reply]
        for call in reply.get("tool_calls", ()):
            self.history.append({"role": "tool", "tool_call_id": call["id"], "content": "a.txt b.txt"})
        if not reply.get("tool_calls"):
            self.history.append({"role": "user", "content": "and now?"})

    async def turn(self, **fields: Any) -> Message:
        reply = await self.ask(**fields)
        self.take(reply)
        return reply


Play = Callable[[Agent], Awaitable[None]]


@dataclass(frozen=True)
class Kind:
    """A kind of session: how it is played, and whether strict and lineage mode accept it."""

    play: Play
    strict: bool
    lineage: bool
    damage: Callable[[Path, str], None] = lambda directory, session_id: None


async def _loop(agent: Agent) -> None:
    for _ in range(3):
        await agent.turn()


async def _forgets_reasoning(agent: Agent) -> None:
    reply = await agent.ask()
    agent.take({key: value for key, value in reply.items() if key != "reasoning"})
    await agent.turn()


async def _title_first(agent: Agent) -> None:
    await agent.ask([{"role": "user", "content": "a title for: list the files"}], tools=[])
    await _loop(agent)


async def _retry(agent: Agent) -> None:
    await agent.turn()
    await agent.ask()
    await agent.turn()
    await agent.turn()


async def _undecided(agent: Agent) -> None:
    await agent.turn()
    await agent.ask(seed=1)
    await agent.ask(seed=2)


async def _subagent(agent: Agent) -> None:
    other = Agent(agent.running, agent.session_id)
    other.history = [{"role": "user", "content": "you are a helper: look into the file"}]
    named = {"x-claude-code-agent-id": "helper-1"}
    await agent.turn()
    await other.turn(headers=named)
    await agent.turn()
    await other.turn(headers=named)


async def _compaction(agent: Agent) -> None:
    await _loop(agent)
    agent.history = [TASK, {"role": "user", "content": "so far: there are two files"}]
    await agent.turn()
    await agent.turn()


async def _truncated(agent: Agent) -> None:
    await agent.ask(max_tokens=5)


async def _constrained(agent: Agent) -> None:
    await agent.ask(tools=[], response_format={"type": "json_object"})


async def _new_tools(agent: Agent) -> None:
    await agent.turn()
    await agent.turn(tools=[BASH, PYTHON])


async def _invalid(agent: Agent) -> None:
    await agent.turn()
    await agent.turn(model=STRIPPED)
    await agent.turn()


async def _failed(agent: Agent) -> None:
    await agent.turn()
    await agent.ask(model=FAILING)
    await agent.turn()


async def _nothing_but_failures(agent: Agent) -> None:
    await agent.ask(model=FAILING)


def _files(directory: Path, session_id: str) -> list[Path]:
    return sorted((directory / "sessions" / session_id).glob("*.json"))


def _cut_off(directory: Path, session_id: str) -> None:
    last = _files(directory, session_id)[-1]
    last.write_bytes(last.read_bytes()[:-30])


def _of_another_session(directory: Path, session_id: str) -> None:
    first = _files(directory, session_id)[0]
    first.write_bytes(orjson.dumps(orjson.loads(first.read_bytes()) | {"session_id": "another"}))


def _began(record: Path) -> str:
    started_at: str = orjson.loads(record.read_bytes())["call"]["started_at"]
    return started_at


def _lost(directory: Path, session_id: str) -> None:
    last = _files(directory, session_id)[-1]
    lost = intent(session_id, uuid=last.stem, route=ROUTE, started_at=_began(last))
    last.with_suffix(".lost").write_bytes(encode_intent(lost))
    last.unlink()


def _under_way_when_killed(directory: Path, session_id: str) -> None:
    last = _files(directory, session_id)[-1]
    died = intent(session_id, uuid=last.stem, route=ROUTE, writer="host:boot:1:gone", started_at=_began(last))
    last.with_suffix(".open").write_bytes(encode_intent(died))
    last.unlink()


KINDS = {
    "loop": Kind(_loop, strict=True, lineage=True),
    "forgets": Kind(_forgets_reasoning, strict=False, lineage=True),
    "title": Kind(_title_first, strict=False, lineage=True),
    "retry": Kind(_retry, strict=False, lineage=True),
    "undecided": Kind(_undecided, strict=False, lineage=False),
    "subagent": Kind(_subagent, strict=False, lineage=True),
    "compaction": Kind(_compaction, strict=False, lineage=True),
    "truncated": Kind(_truncated, strict=True, lineage=True),
    "constrained": Kind(_constrained, strict=True, lineage=False),
    "tools": Kind(_new_tools, strict=False, lineage=True),
    "invalid": Kind(_invalid, strict=False, lineage=False),
    "failed": Kind(_failed, strict=True, lineage=True),
    "failures": Kind(_nothing_but_failures, strict=False, lineage=False),
    "corrupt": Kind(_loop, strict=False, lineage=False, damage=_cut_off),
    "foreign": Kind(_loop, strict=False, lineage=False, damage=_of_another_session),
    "lost": Kind(_loop, strict=False, lineage=False, damage=_lost),
    "killed": Kind(_loop, strict=True, lineage=True, damage=_under_way_when_killed),
}


def session_ids(count: int) -> Iterator[tuple[str, str]]:
    """So many sessions: the kind and the id of each."""
    names = list(KINDS)
    for number in range(count):
        kind = names[number % len(names)]
        yield kind, f"{kind}-{number // len(names)}"


async def make_sessions(directory: Path, count: int) -> None:
    """Make so many sessions, of all kinds in turn, in a directory of records."""
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(running_simulator(model="actual-model", keep_thinking=True, faults=faults))
            for faults in ((), ({"strip": ["token_ids"]},), ({"status": 500},))
        ]
        given, *others = (bundle(f"{engine.base_url}/v1") for engine in engines)
        for name, other in zip((STRIPPED, FAILING), others, strict=True):
            given["routes"][name] = other["routes"][ROUTE]
        running = await stack.enter_async_context(running_proxy(given, directory))
        for kind, session_id in session_ids(count):
            await KINDS[kind].play(Agent(running, session_id))
    for kind, session_id in session_ids(count):
        KINDS[kind].damage(directory, session_id)


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    shutil.rmtree(target, ignore_errors=True)
    asyncio.run(make_sessions(target, int(sys.argv[2]) if len(sys.argv) > 2 else 200))
