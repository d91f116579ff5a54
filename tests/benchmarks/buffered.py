"""Buffered calls: what one costs the proxy and the yardstick, measured in turns."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import client
from benchmarks.client import Load
from benchmarks.payloads import payload
from benchmarks.processes import Process
from benchmarks.rig import Rig, rig

WARM_UP_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """One load to measure, so many rounds of it.

    `ratio_bar` and `memory_bar` (MB) are what was asked of the proxy, where something was.
    """

    payload: str
    connections: int
    on_disk: bool = False
    rounds: int = 3
    ratio_bar: float | None = None
    memory_bar: float | None = None

    @property
    def name(self) -> str:
        return f"{self.payload} x {self.connections}{' on disk' if self.on_disk else ''}"


LINES = (
    Line("small", 1, ratio_bar=0.7),
    Line("small", 32, ratio_bar=0.35),
    Line("small", 256, rounds=2),
    Line("large", 1, ratio_bar=1.2),
    Line("large", 32, ratio_bar=0.6),
    # Memory is asked for; a round of the yardstick takes a quarter of a minute.
    Line("large", 256, rounds=1, memory_bar=600.0),
    Line("small", 32, on_disk=True, rounds=2),
    Line("large", 32, on_disk=True, rounds=2),
)


@dataclass(frozen=True, slots=True)
class Side:
    """Medians over the rounds for one server: milliseconds, calls a second, and its peak memory in MB (10^6 bytes)."""

    cpu_ms: float
    calls_per_second: float
    p50_ms: float
    p99_ms: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Result:
    """`ratios` are ours to the yardstick's CPU time per call, one a round; `fault` is why not to trust it."""

    line: Line
    ours: Side
    yardstick: Side
    ratios: list[float]
    bytes_per_call: float
    fault: str | None


@dataclass(frozen=True, slots=True)
class _Round:
    cpu_ms: float
    load: Load


def measure(line: Line, room: Path, rounds: int, seconds: float) -> Result:
    """Measure a line in new processes, the two servers in turns so that a noisy moment hits both."""
    with rig(payload(line.payload), room) as servers:
        sides = (servers.ours, servers.yardstick)
        warm_up = [_warm_up(servers, side, line.connections) for side in sides]
        taken: tuple[list[_Round], list[_Round]] = ([], [])
        for number in range(rounds):
            # The second of a pair finds a warmer machine: take turns at that, too.
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                taken[which].append(_round(servers, sides[which], line.connections, seconds))
        ours, yardstick = taken
        calls = warm_up[0].calls + sum(one.load.calls for one in ours)
        return Result(
            line,
            _side(ours, servers.ours),
            _side(yardstick, servers.yardstick),
            [one.cpu_ms / other.cpu_ms for one, other in zip(ours, yardstick, strict=True)],
            servers.record_bytes() / calls,
            _fault(servers, calls, [*warm_up, *(one.load for one in (*ours, *yardstick))]),
        )


def _warm_up(servers: Rig, process: Process, connections: int) -> Load:
    body, few = servers.payload.request, min(connections, 8)
    return client.buffered_load(process.port, body, few, seconds=WARM_UP_SECONDS)


def _round(servers: Rig, process: Process, connections: int, seconds: float) -> _Round:
    before = process.cpu_seconds()
    load = servers.load(process, connections, seconds)
    return _Round(1000 * (process.cpu_seconds() - before) / load.calls, load)


def _side(rounds: list[_Round], process: Process) -> Side:
    return Side(
        median(one.cpu_ms for one in rounds),
        median(one.load.calls / one.load.seconds for one in rounds),
        1000 * median(one.load.p50 for one in rounds),
        1000 * median(one.load.p99 for one in rounds),
        process.peak_bytes() / 1e6,
    )


def _fault(servers: Rig, calls: int, loads: list[Load]) -> str | None:
    failed = sum(load.failed for load in loads)
    return f"{failed} calls were not answered with 200" if failed else servers.account().fault(calls)
