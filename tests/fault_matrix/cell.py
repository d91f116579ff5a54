"""One cell of the matrix: an engine, a disk and a proxy of its own, one call that meets a fault, and what follows."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson
from event_stream import DONE, arguments, events, finish_reason, joined
from fault_matrix.disk import Disk
from fault_matrix.fault import Fault, Mode, Outcome
from running_proxy import NO_DRAIN, ROUTE, RunningProxy, bundle, running_proxy
from scripted_engine import Request, ScriptedEngine, chat

SESSION = "struck"
ERROR_KEYS = ["message", "type", "param", "code"]
# Counts that move whenever anything goes wrong say nothing; what became of the call the session says.
WATCHED = ("errors_told", "agent_gone", "resent", "repeated")
WATCHED_IN_LEDGER = ("refused", "lost", "unwritten")
TIMES = {0: "never", 1: "once", 2: "twice", 3: "three times"}


class Cell:
    """What a fault has at hand."""

    def __init__(self, fault: Fault, mode: Mode, engine: ScriptedEngine, disk: Disk, running: RunningProxy) -> None:
        self.fault = fault
        self.mode = mode
        self.turn = mode.turn
        self.engine = engine
        self.disk = disk
        self.running = running

    async def call(self) -> str:
        """Make the call that meets the fault and read its answer to the end; a bare close raises."""
        response = await self.running.chat({"stream": self.mode.streamed}, SESSION)
        return self._told(response)

    async def warm_up(self) -> None:
        """A call before, of another session, that leaves a connection to the engine open."""
        self.engine.reply(chat(self.turn))
        await self.running.chat({}, "before")
        self.engine.requests.clear()
        self.engine.started = self.engine.completed = 0

    def _told(self, response: httpx.Response) -> str:
        if response.status_code != 200:
            return self._refused(response)
        if not response.headers["content-type"].startswith("text/event-stream"):
            (choice,) = response.json()["choices"]
            answer = self._answer(choice["message"])
            return f"{answer}, not as a stream" if self.mode.streamed else answer
        beats = "heartbeats, then " if b": keepalive" in response.content else ""
        *chunks, last = events(response.content)
        if last == DONE:
            calls = [{"function": {"arguments": text}}] if (text := arguments(chunks)) else []
            return beats + self._answer({"content": joined(chunks, "content"), "tool_calls": calls})
        return beats + self._broken_off(chunks, last)

    def _refused(self, response: httpx.Response) -> str:
        error = response.json()["error"]
        later = ", `Retry-After`" if "retry-after" in response.headers else ""
        assert error["message"]
        if response.headers["x-switchyard-error-source"] == "provider":
            return f"{response.status_code}, the engine's words{later}"
        assert response.headers["x-switchyard-error-source"] == "switchyard"
        self._check(error)
        return f"{response.status_code} `{error['code']}`{later}"

    def _broken_off(self, chunks: list[Any], last: Any) -> str:
        """Of a stream that ended with an error: nothing in it may be acted on."""
        assert DONE not in chunks
        assert finish_reason(chunks) is None
        assert not _is_json(arguments(chunks))
        text, error = joined(chunks, "content"), last["error"]
        assert self.turn.text.startswith(text)
        before = "the beginning, then " if text else ""
        if isinstance(error["code"], int):
            return f"{before}the engine's words as an error event"
        self._check(error)
        return f"{before}error event `{error['code']}`"

    def _check(self, error: dict[str, Any]) -> None:
        assert list(error) == ERROR_KEYS
        assert self.fault.says.format(where=f"127.0.0.1:{self.engine.port}") in error["message"]
        assert "Error(" not in error["message"]

    def _answer(self, message: dict[str, Any]) -> str:
        calls = [call["function"]["arguments"] for call in message.get("tool_calls") or []]
        if not message["content"] and not calls:
            return "an empty answer"
        assert message["content"] == self.turn.text
        assert calls == [call["function"]["arguments"] for call in self.turn.calls]
        return "its answer"


@contextlib.asynccontextmanager
async def _opened(fault: Fault, mode: Mode, directory: Path) -> AsyncIterator[Cell]:
    disk = Disk(directory)
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(ScriptedEngine(model="actual-model"))
        address = f"http://127.0.0.1:{stack.enter_context(fault.port())}/v1" if fault.port else None
        server = {**NO_DRAIN["server"], **fault.server}
        given = bundle(address or engine.base_url, target=fault.target, capture=fault.capture, server=server)
        # Where the fault is an address without an engine, this one is left for the call afterwards.
        given["routes"]["healthy"] = bundle(engine.base_url)["routes"][ROUTE]
        running = await stack.enter_async_context(running_proxy(given, directory, filesystem=disk))
        yield Cell(fault, mode, engine, disk, running)


async def observe(fault: Fault, mode: Mode, directory: Path, log: list[logging.LogRecord]) -> Outcome:
    """Play one cell. Raises AssertionError when the account, the answer or the process is not as it must be."""
    async with _opened(fault, mode, directory) as cell:
        agent = await fault.play(cell)
        await _until(lambda: cell.engine.running == 0)
        sent = TIMES[cell.engine.started] + (", stopped" if cell.engine.aborted else "")
        requests = cell.engine.generations
        struck, counts = await _fate(cell), await _counts(cell)
        failing = await _failing(cell) if cell.disk.struck else ""
        cell.disk.heal()
        await _until_written(cell)
        healed = await _fate(cell)
        _check_account(directory, requests)
        await _check_health(cell, log)
        operator = ", ".join(filter(None, (*counts, failing, _worst(log))))
        return Outcome(agent, struck if struck == healed else f"{struck}, then {healed}", operator or "-", sent)


async def _fate(cell: Cell) -> str:
    """What the session says of the call."""
    reply = await cell.running.client.get(f"/v1/sessions/{SESSION}")
    if reply.status_code == 404:
        return "-"
    await cell.running.session(SESSION, settled=0 if cell.disk.struck else 2)
    fates = await cell.running.fates(SESSION)
    ((fate, count),) = fates.items()
    assert count == 1
    if fate == "failed":
        (path,) = cell.running.files(".failed")
        failure = orjson.loads(path.read_bytes())
        if "reason" not in failure:
            return "`failed`, without a reason"
        reason = failure["reason"].partition(":")[0]
        kept = ", with the tokens seen" if (failure["seen"] or {}).get("generation_token_ids") else ""
        return f"`failed` (`{reason}`){kept}" if " " not in reason else f"`failed`{kept}"
    if fate == "open":
        return "`open`"
    (record,) = await cell.running.records(SESSION, include="all")
    if fate in ("invalid", "lost"):
        assert record["is_valid"] is False
        reasons = ", ".join(f"`{reason}`" for reason in record["call"]["invalid_reasons"])
        return "`lost`, a placeholder" if fate == "lost" else f"`invalid` ({reasons})"
    assert record["is_valid"] is True
    assert record["generation_token_ids"] == cell.turn.token_ids
    return f"`{fate}`"


async def _counts(cell: Cell) -> list[str]:
    await cell.running.until_counted("in_flight", 0)  # a call is counted when it is over
    stats = await cell.running.stats()
    moved = [f"`{name}`" for name in WATCHED if stats[name]]
    return moved + [f"`ledger.{name}`" for name in WATCHED_IN_LEDGER if stats["ledger"][name]]


async def _failing(cell: Cell) -> str:
    reply = await cell.running.client.get("/readyz")
    return "`/readyz`" if "store" in reply.json().get("failing", {}) else ""


def _worst(log: list[logging.LogRecord]) -> str:
    ours = [record for record in log if record.name.startswith("switchyard_py")]
    worst = max((record.levelno for record in ours), default=logging.NOTSET)
    if worst >= logging.WARNING:
        return f"log: {logging.getLevelName(worst).lower()}"
    return "log: the reason" if any("failed:" in record.getMessage() for record in ours) else ""


def _check_account(directory: Path, requests: list[Request]) -> None:
    """Every call the engine knows of is in exactly one state, and there is at most one call that it does not know."""
    states = [path.name.split(".") for path in directory.glob("sessions/*/*.*") if path.parent.name == SESSION]
    assert len({uuid for uuid, _ in states}) == len(states) <= 1, states
    assert all(suffix != "open" for _, suffix in states), states
    assert {request.header("x-request-id") for request in requests} <= {uuid for uuid, _ in states}


async def _check_health(cell: Cell, log: list[logging.LogRecord]) -> None:
    """A plain call succeeds, and nobody complained of a mistake in this program."""
    model = "healthy" if cell.fault.port else ROUTE
    cell.engine.reply(chat(cell.turn))
    response = await cell.running.chat({"model": model}, "after")
    assert response.status_code == 200, response.text
    assert await cell.running.fates("after") == {"valid": 1}
    mistakes = [record.getMessage() for record in log if record.exc_info or record.name == "asyncio"]
    assert not mistakes


async def _until_written(cell: Cell) -> None:
    deadline = asyncio.get_running_loop().time() + 3
    while (await cell.running.stats())["ledger"]["unwritten"]:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


async def _until(condition: Any, within: float = 2.0) -> None:
    deadline = asyncio.get_running_loop().time() + within
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)


def _is_json(text: str) -> bool:
    try:
        json.JSONDecoder().raw_decode(text)
    except ValueError:
        return False
    return True
