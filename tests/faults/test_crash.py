"""`kill -9` at random moments under 64 calls at a time: nothing is torn or missing, nothing received is unrecorded.

What the directory holds is read by an audit that shares no code with the proxy, and compared with the engine's log and
with what the agents received.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Self

import httpx
import pytest
import yaml
from directory_audit import StoredCall, accounts, stored_calls, temporary_files
from logged_load import AGENTS, SESSIONS, Agents, LoggingEngine, Received
from running_proxy import ProxyProcess, bundle, session_path
from scale import scaled
from scripted_engine import ScriptedEngine, Turn
from stopping import alive, workers_of

from switchyard_py.store import Writer


class Proxies:
    """One proxy after the other on the same directory, each ended by a kill but the last."""

    def __init__(self, base_url: str, home: Path, workers: int) -> None:
        self._base_url = base_url
        self._home = home
        self.workers_wanted = workers
        self._starts = 0
        self.logs: list[str] = []

    async def start(self) -> int:
        """Start one; its port."""
        # Every third one flushes what it promises.
        durability = "power" if self._starts % 3 == 2 else "process"
        given = bundle(self._base_url, capture={"durability": durability})
        (self._home / "x.yaml").write_text(yaml.safe_dump(given))
        options = ["--host", "127.0.0.1", "--port", "0", "--workers", str(self.workers_wanted)]
        self._process = ProxyProcess(["-c", "x.yaml", "--", "serve", *options], self._home)
        self._starts += 1
        await asyncio.to_thread(self._process.__enter__)
        return int(self._process.url.rpartition(":")[2])

    @property
    def workers(self) -> set[int]:
        return workers_of(self._process.pid)

    async def kill_worker(self, chance: Random) -> None:
        """Kill one of several; returns when its parent has replaced it."""
        os.kill(chance.choice(sorted(self.workers)), signal.SIGKILL)
        await _until(lambda: len(self.workers) == self.workers_wanted)

    async def kill(self, *, parent_only: bool) -> None:
        """Kill all processes, or the first only, which the workers notice. Returns when all have ended."""
        workers = self.workers
        if not parent_only:
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.kill)
        await _until(lambda: not any(map(alive, workers)))
        self.logs.append(self._process.log)

    async def end(self) -> None:
        """Stop the last one; it must end well."""
        await asyncio.to_thread(self._process.__exit__)
        self.logs.append(self._process.log)
        assert self._process.exit_status == 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.exit_status is None:
            await self.kill(parent_only=False)


async def _until(condition: Callable[[], bool], within: float = 30) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(("workers", "kills"), [(1, scaled(25, 2)), (2, scaled(25, 3))])
async def test_after_kills_everything_is_accounted_for(
    engine: ScriptedEngine, tmp_path: Path, workers: int, kills: int
) -> None:
    seed = time.time_ns()
    chance = Random(seed)
    print(f"seed {seed}")
    directory = tmp_path / "rl_data"
    bystander = Writer(directory)
    (directory / "sessions" / "s0").mkdir(0o700)
    in_work = f"01900000-0000-7000-8000-000000000000@{bystander.name}.tmp"
    (directory / "sessions" / "s0" / in_work).write_text("half a rec")
    logged, agents = LoggingEngine(chance), Agents(chance)
    engine.default(logged)
    async with Proxies(engine.base_url, tmp_path, workers) as proxies:
        agents.port = await proxies.start()
        async with agents:
            hows = await _kill_again_and_again(kills, proxies, agents, logged, directory, bystander.name)
            await asyncio.sleep(0.3)
        await _until(lambda: engine.running == 0)

        # Leftovers of the dead are gone, and nothing of those that live.
        await _until(lambda: temporary_files(directory) == {in_work})
        await _until(lambda: len(os.listdir(directory / "writers")) == workers + 1)
        assert bystander.name in os.listdir(directory / "writers")
        # Once no call of a session is open, its files stay as they are.
        envelopes = await asyncio.to_thread(_envelopes, agents.port)
        calls = stored_calls(directory)
        await proxies.end()
    bystander.close()
    fates = Counter(call.fate for call in calls.values())
    print(f"{workers} workers, kills {dict(hows)}: {len(calls)} calls {dict(fates)}, answers {dict(agents.outcomes)}")
    _check_accounts(envelopes, calls)
    _check_generations(engine, logged, calls)
    for received in agents.received:
        _check_record(received, calls[received.uuid], logged.log[received.uuid].turn)
    for call in calls.values():
        if call.has_record:
            _check_triple(call, logged.log[call.uuid].turn)
    assert not any("Traceback" in log for log in proxies.logs)
    assert not agents.outcomes["hung"]
    # The kills struck in the middle of the work.
    assert len(agents.received) > 10 * kills
    assert min(fates["abandoned"], fates["failed"]) > 0


async def _kill_again_and_again(
    kills: int, proxies: Proxies, agents: Agents, engine: LoggingEngine, directory: Path, bystander: str
) -> Counter[str]:
    """Kill so many times, in turn a worker, all processes or the parent; how often which."""
    hows: Counter[str] = Counter()
    for number in range(kills):
        # A proxy that just started has no calls to lose.
        await _until(partial(engine.has_more_than, len(engine.log) + AGENTS // 2))
        await asyncio.sleep(engine.chance.uniform(0, 0.6))
        how = "all" if proxies.workers_wanted == 1 else ("worker", "worker", "all", "parent")[number % 4]
        hows[how] += 1
        if how == "worker":
            await proxies.kill_worker(engine.chance)
        else:
            await proxies.kill(parent_only=how == "parent")
            _leave_half_a_file(directory, bystander)
            agents.port = await proxies.start()
    return hows


def _leave_half_a_file(directory: Path, living: str) -> None:
    """Leave what a writer leaves that is killed while it writes; most kills strike elsewhere."""
    for dead in os.listdir(directory / "writers"):
        if dead != living and not dead.endswith(".new"):
            name = f"01900000-0000-7000-8000-000000000001@{dead}.tmp"
            (directory / "sessions" / "s0" / name).write_text("half a rec")


def _envelopes(port: int) -> dict[str, Any]:
    """What the proxy tells of every session."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False, verify=False) as client:
        paths = {session: session_path(session) + "/completions?settled=5&include=all" for session in SESSIONS}
        answers = {session: client.get(path) for session, path in paths.items()}
        return {session: answer.json() for session, answer in answers.items() if answer.status_code == 200}


def _check_accounts(envelopes: dict[str, Any], calls: dict[str, StoredCall]) -> None:
    """The proxy tells of every session what the audit found in it, and each account balances."""
    audited = accounts(calls)
    assert set(envelopes) == set(audited)
    for session, expected in audited.items():
        account = envelopes[session]["accounting"]
        assert account["begun"] == expected.total() == sum(account.values()) - account["begun"]
        assert +Counter({fate: number for fate, number in account.items() if fate != "begun"}) == expected
        served = [record["uuid"] for record in envelopes[session]["completions"]]
        kept = [call.uuid for call in calls.values() if call.session_id == session and call.has_record]
        assert served == sorted(kept)


def _check_generations(engine: ScriptedEngine, logged: LoggingEngine, calls: dict[str, StoredCall]) -> None:
    """Every generation is a call in one state, and the state agrees with how far the engine came."""
    generations = Counter(generation.fate for generation in logged.log.values())
    assert engine.started == len(logged.log) == engine.completed + engine.aborted
    assert generations == +Counter({"finished": engine.completed, "aborted": engine.aborted})
    assert set(logged.log) <= set(calls)
    for uuid, call in calls.items():
        fate = logged.log[uuid].fate if uuid in logged.log else "never sent"
        match call.fate:
            case "valid" | "undelivered":
                assert fate == "finished", f"{call.fate} call {uuid} was {fate}"
            case "failed" | "abandoned":
                pass  # it may have ended at any moment
            case _:
                raise AssertionError(f"call {uuid} is {call.fate}: {call.content}")


def _check_record(received: Received, call: StoredCall, turn: Turn) -> None:
    """Who received the end has its record, with the very tokens and text that it received."""
    assert call.state == "json", f"received, but {call.state}: {received}"
    message = call.content["messages"][-1]
    assert call.session_id == received.session_id
    assert message["content"] == received.content == turn.text
    written = [each["function"]["arguments"] for each in message.get("tool_calls", [])]
    assert "".join(written) == received.arguments
    assert received.token_ids in (None, call.content["generation_token_ids"])


def _check_triple(call: StoredCall, turn: Turn) -> None:
    assert call.content["is_valid"] is True, call.content["call"]["invalid_reasons"]
    triple = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    assert [call.content[key] for key in triple] == [list(turn.prompt_token_ids), turn.token_ids, turn.logprobs]
