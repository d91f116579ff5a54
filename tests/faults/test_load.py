"""Many calls at once, many given up, many one after the other: every one is accounted for, and nothing is left behind.

Everything runs in processes of its own: the proxy as users start it, an engine with slots, and this client.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvloop
import yaml
from benchmarks.client import fixed_load, http_request
from benchmarks.payloads import payload
from benchmarks.processes import Process, descriptors, resident_bytes
from running_proxy import ProxyProcess, bundle
from scale import scaled

from switchyard_py.store.names import State, parse_call_file

SLOTS = scaled(200, 50)
GAP_SECONDS = scaled(10, 5) / 100
QUEUED = scaled(2_000, 200)
GIVEN_UP = scaled(5_000, 400)
IN_A_ROW = scaled(20_000, 1_500)
SESSIONS = 64
# Both are compared between the middle and the end of a long row of calls.
MORE_BYTES = 8_000_000
MORE_DESCRIPTORS = 8


class Site:
    """A proxy in front of an engine with slots."""

    def __init__(self, engine: Process, proxy: ProxyProcess, directory: Path) -> None:
        self._engine = engine
        self.pid = proxy.pid
        self.port = int(proxy.url.rpartition(":")[2])
        self._directory = directory

    def states(self, prefix: str) -> dict[str, State]:
        """What became of each call of the sessions with names that begin so; no call may be in two states."""
        found = [
            parse_call_file(file.name)
            for session in self._directory.glob(f"sessions/{prefix}-*")
            for file in session.iterdir()
        ]
        assert None not in found
        states = dict(call for call in found if call is not None)
        assert len(states) == len(found)
        return states

    def engine_calls(self) -> dict[str, set[str]]:
        """The engine's account: names of calls by what became of them; none may be there twice."""
        report = self._ask_engine("calls").json()
        calls = {how: set(names) for how, names in report.items()}
        assert [len(names) for names in calls.values()] == [len(names) for names in report.values()]
        return calls

    def gather(self, calls: int) -> None:
        """Make the engine serve nobody until so many calls are open there at once."""
        self._ask_engine(f"gather/{calls}")

    def _ask_engine(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self._engine.port}/{path}", timeout=20, trust_env=False)

    def until_idle(self, within: float) -> dict[str, set[str]]:
        """The engine's account, once no call is open at the engine."""
        deadline = time.monotonic() + within
        while (calls := self.engine_calls())["started"] != calls["completed"] | calls["aborted"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return calls


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("load")
    command = ["-m", "benchmarks.queued_engine", "{port}", str(SLOTS), str(GAP_SECONDS), "short"]
    with Process("the engine", command, directory / "engine.log") as engine:
        (directory / "x.yaml").write_text(yaml.safe_dump(bundle(f"http://127.0.0.1:{engine.port}/v1")))
        serve = ["-c", "x.yaml", "--", "serve", "--host", "127.0.0.1", "--port", "0"]
        with ProxyProcess(serve, directory) as proxy:
            yield Site(engine, proxy, directory / "rl_data")
        assert "Traceback" not in proxy.log


def _sessions(prefix: str, calls: int) -> list[str]:
    return [f"{prefix}-{number % SESSIONS}" for number in range(calls)]


def test_streams_beyond_the_engines_slots_wait_for_their_turn(site: Site) -> None:
    # No pool of the proxy may hold one back.
    site.gather(QUEUED)
    load = fixed_load(site.port, payload("short").request, QUEUED, _sessions("queued", QUEUED))
    assert (load.calls, load.failed) == (QUEUED, 0)
    states = site.states("queued")
    assert Counter(states.values()) == {State.COMMITTED: QUEUED}
    calls = site.until_idle(within=1)
    assert calls["completed"] == states.keys()
    print(f"\n{QUEUED} streams open at the engine at once, all answered within {load.seconds:.1f} s")


def test_streams_that_are_given_up_free_the_engine_at_once(site: Site) -> None:
    before = site.engine_calls()["started"]
    uvloop.run(_give_up(site.port, GIVEN_UP, agents=2 * SLOTS))
    began = time.monotonic()
    load = fixed_load(site.port, payload("small").request, 1, ["after-0"])
    seconds = time.monotonic() - began
    assert (load.calls, load.failed) == (1, 0)
    assert seconds < 1.5
    calls = site.until_idle(within=1)
    started = {how: names - before for how, names in calls.items()}
    states = site.states("given-up")
    (after,) = site.states("after")
    assert started["started"] <= states.keys() | {after}
    # An agent may go before its request is read; what came to be a call was told so or ended in time.
    assert GIVEN_UP / 2 < len(states) <= GIVEN_UP
    assert all(states[name] is State.FAILED for name in started["aborted"])
    counts = Counter(states.values())
    assert counts[State.OPEN] == 0
    assert counts[State.FAILED] > len(states) / 2
    print(f"\n{dict(counts)} of {GIVEN_UP}, {len(started['aborted'])} aborted, then a call in {seconds:.3f} s")


async def _give_up(port: int, calls: int, agents: int) -> None:
    """So many streams, each left by its agent after a while: in line, before its first byte, or in its middle."""
    numbers, chance = iter(range(calls)), random.Random(1)
    body = payload("short").request

    async def keep_giving_up() -> None:
        for number in numbers:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(http_request(body, f"given-up-{number % SESSIONS}"))
            if number % 3 == 0:
                await reader.read(1)
            await asyncio.sleep(chance.uniform(0, GAP_SECONDS))
            if number % 2:
                writer.transport.abort()
            else:
                writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(agents):
            group.create_task(keep_giving_up())


def test_memory_and_descriptors_do_not_grow_with_calls(site: Site) -> None:
    held: list[tuple[int, int]] = []
    names = iter(_sessions("row", IN_A_ROW))
    for _ in range(4):
        quarter = list(itertools.islice(names, IN_A_ROW // 4))
        load = fixed_load(site.port, payload("small").request, 32, quarter)
        assert (load.calls, load.failed) == (len(quarter), 0)
        # The client's connections are just being closed.
        time.sleep(0.3)
        held.append((resident_bytes(site.pid), descriptors(site.pid)))
    print("\n" + ", ".join(f"{resident / 1e6:.1f} MB and {count} descriptors" for resident, count in held))
    (_, (bytes_then, count_then), _, (bytes_now, count_now)) = held
    assert bytes_now - bytes_then < MORE_BYTES
    assert count_now - count_then < MORE_DESCRIPTORS
    states = site.states("row")
    assert Counter(states.values()) == {State.COMMITTED: IN_A_ROW}
    assert states.keys() <= site.engine_calls()["completed"]
