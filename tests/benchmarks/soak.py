"""Work for a long time, and whether anything grows that must not.

    make soak                          30 minutes
    make soak ARGS='--minutes 3'       a look

Half of what one busy engine gives (docs/benchmark.md): 100 streams of 25 tokens a second, of which every tenth is given
up in its middle, 20 buffered calls a second, and a trainer that reads a session every second. Sessions have 20 calls.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson
import uvloop
from benchmarks.client import Connection, http_request
from benchmarks.payloads import STREAM_CHUNKS, payload
from benchmarks.processes import Process, descriptors, resident_bytes
from benchmarks.rig import PROXY_LOG, RECORDS, proxy

from switchyard_py.store.names import State, parse_call_file

STREAMS = 100
GAP_SECONDS = 0.04
STREAM_SECONDS = STREAM_CHUNKS * GAP_SECONDS
SLOTS = 1_000
GIVEN_UP = 10
BUFFERED_PER_SECOND = 20
CALLS_PER_SESSION = 20
# Pools, caches and the allocator have reached their sizes by then.
WARM_UP_SHARE = 0.3
SETTLE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What the proxy held at a time: seconds since the start, resident bytes, open descriptors, calls begun."""

    at: float
    resident: int
    descriptors: int
    calls: int


class Load:
    """The load, and what was seen of the proxy under it."""

    def __init__(self, ours: Process, seconds: float, interval: float) -> None:
        self._proxy = ours
        self._interval = interval
        self._began = time.monotonic()
        self._ends = self._began + seconds
        self._calls = 0
        self.samples: list[Sample] = []
        self.faults: Counter[str] = Counter()

    async def run(self) -> None:
        """Load the proxy until the time is over, and wait for what was begun."""
        async with asyncio.TaskGroup() as group:
            for number in range(STREAMS):
                group.create_task(self._keep_streaming(number))
            group.create_task(self._keep_calling())
            group.create_task(self._keep_reading())
            group.create_task(self._keep_watching())

    @property
    def _over(self) -> bool:
        return time.monotonic() >= self._ends

    def _session(self) -> str:
        """The next call's session."""
        self._calls += 1
        return f"soak-{self._calls // CALLS_PER_SESSION}"

    async def _connect(self) -> tuple[asyncio.BaseTransport, Connection]:
        return await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self._proxy.port)

    async def _keep_streaming(self, number: int) -> None:
        body = payload("stream").request
        await asyncio.sleep(STREAM_SECONDS * number / STREAMS)
        transport, connection = await self._connect()
        while not self._over:
            number += 1
            calling = asyncio.create_task(connection.call(http_request(body, self._session())))
            if number % GIVEN_UP == 0:
                await asyncio.sleep(STREAM_SECONDS / 2)
                transport.close()
                await asyncio.wait([calling])
                calling.exception()
                transport, connection = await self._connect()
                continue
            await self._check(calling)
        transport.close()

    async def _keep_calling(self) -> None:
        body = payload("small").request
        transport, connection = await self._connect()
        while not self._over:
            await self._check(asyncio.create_task(connection.call(http_request(body, self._session()))))
            await asyncio.sleep(1 / BUFFERED_PER_SECOND)
        transport.close()

    async def _check(self, calling: "asyncio.Task[object]") -> None:
        try:
            status = getattr(await calling, "status", 0)
        except (OSError, TimeoutError) as error:
            self.faults[type(error).__name__] += 1
        else:
            if status != 200:
                self.faults[f"status {status}"] += 1

    async def _keep_reading(self) -> None:
        url = f"http://127.0.0.1:{self._proxy.port}/v1/sessions/soak-%d/completions"
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            while not self._over:
                await asyncio.sleep(1)
                # One whose calls have ended, once there is one.
                number = (self._calls - 2 * STREAMS) // CALLS_PER_SESSION
                if number >= 0 and (status := (await client.get(url % number)).status_code) != 200:
                    self.faults[f"status {status} while reading"] += 1

    async def _keep_watching(self) -> None:
        due = self._began
        while not self._over:
            due = min(due + self._interval, self._ends)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            at = time.monotonic() - self._began
            pid = self._proxy.pid
            sample = Sample(at, resident_bytes(pid), descriptors(pid), self._calls)
            self.samples.append(sample)
            cpu = self._proxy.cpu_seconds() / at
            print(
                f"{at / 60:6.1f} min  {sample.calls:8d} calls  {sample.resident / 1e6:7.1f} MB"
                f"  {sample.descriptors:5d} descriptors  {100 * cpu:3.0f} % of a core",
                flush=True,
            )


def slope(samples: Sequence[Sample]) -> float:
    """Growth of the resident memory in bytes a second, by least squares."""
    at = sum(sample.at for sample in samples) / len(samples)
    resident = sum(sample.resident for sample in samples) / len(samples)
    spread = sum((sample.at - at) ** 2 for sample in samples)
    return sum((sample.at - at) * (sample.resident - resident) for sample in samples) / spread if spread else 0.0


def account(records: Path, engine: Process) -> tuple[Counter[str], list[str]]:
    """How many calls are in which state on disk, and what does not agree with the engine's account."""
    deadline = time.monotonic() + SETTLE_SECONDS
    found = _found(records)
    while State.OPEN in dict(found).values() and time.monotonic() < deadline:
        time.sleep(0.2)
        found = _found(records)
    url = f"http://127.0.0.1:{engine.port}/calls"
    calls = {how: set(names) for how, names in httpx.get(url, trust_env=False, timeout=30).json().items()}
    states = dict(found)
    wrong = {
        "calls are in two states": len(found) - len(states),
        "calls of the engine are not accounted for": len(calls["started"] - states.keys()),
        "calls are still open at the engine": len(calls["started"] - calls["completed"] - calls["aborted"]),
        "aborted generations are no failed calls": sum(states.get(name) != State.FAILED for name in calls["aborted"]),
    }
    return Counter(state.name.lower() for state in states.values()), [f"{n} {what}" for what, n in wrong.items() if n]


def _found(records: Path) -> list[tuple[str, State]]:
    calls = [parse_call_file(file.name) for file in records.glob("sessions/*/*")]
    return [call for call in calls if call is not None]


def failures(records: Path) -> Counter[str]:
    """Why calls failed, by how many."""
    return Counter(orjson.loads(file.read_bytes())["reason"] for file in records.glob("sessions/*/*.failed"))


def soak(seconds: float, interval: float, scratch: Path) -> list[str]:
    """Run it in an empty directory and print what is seen; returns what went wrong."""
    with ExitStack() as stack:
        serve = ["-m", "benchmarks.queued_engine", "{port}", str(SLOTS), str(GAP_SECONDS), "stream"]
        engine = stack.enter_context(Process("the engine", serve, scratch / "engine.log"))
        ours = stack.enter_context(proxy(f"http://127.0.0.1:{engine.port}/v1", scratch))
        load = Load(ours, seconds, interval)
        uvloop.run(load.run())
        states, faults = account(scratch / RECORDS, engine)
    steady = [sample for sample in load.samples if sample.at >= WARM_UP_SHARE * seconds]
    held = [sample.descriptors for sample in steady]
    print(f"\nmemory {3600 * slope(steady) / 1e6:+.1f} MB an hour after the warm-up")
    print(f"descriptors {min(held)} to {max(held)}")
    print(f"on disk: {_listed(states)}")
    print(f"failed: {_listed(failures(scratch / RECORDS))}")
    faults += [f"{count} times {fault}" for fault, count in load.faults.items()]
    if "Traceback" in (scratch / PROXY_LOG).read_text(errors="replace"):
        faults.append("the proxy's log has a traceback")
    return faults


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.most_common()) or "none"


def main() -> int:
    """Run the soak; exit status 1 when a call went wrong or the account does not agree."""
    parser = argparse.ArgumentParser(prog="make soak ARGS=", description="Work for a long time, and what grows.")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (%(default)g)")
    parser.add_argument("--interval", type=float, default=60.0, help="seconds between two lines (%(default)g)")
    parser.add_argument("--dir", type=Path, default=Path("/dev/shm"), help="where records go (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="switchyard-soak-", dir=options.dir) as scratch:
        faults = soak(60 * options.minutes, options.interval, Path(scratch))
    print("\n".join(f"WRONG: {fault}" for fault in faults) or "Every call is accounted for, here and at the engine.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
