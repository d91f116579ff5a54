"""Streams: how much later a token arrives than it would straight from the engine, and what it costs."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import client
from benchmarks.client import Answer, quantile
from benchmarks.payloads import STREAM_CHUNKS, payload
from benchmarks.processes import Process
from benchmarks.rig import rig


@dataclass(frozen=True, slots=True)
class Line:
    """`streams` of 200 tokens on each connection, of which the first warms up; `gap` seconds between tokens.

    `rounds` is how often that is repeated. The bar is on the first chunk's added time, at the quantile `bar_at`.
    """

    connections: int
    gap: float
    streams: int
    rounds: int
    bar_at: float
    bar_ms: float

    @property
    def name(self) -> str:
        return f"stream x {self.connections}"


LINES = (
    Line(1, gap=0.004, streams=5, rounds=3, bar_at=0.5, bar_ms=1.0),
    # 25 tokens a second on each of 200 connections, 5,000 in all: what one busy engine gives.
    Line(200, gap=0.04, streams=2, rounds=2, bar_at=0.99, bar_ms=10.0),
)


@dataclass(frozen=True, slots=True)
class Side:
    """One server: processor milliseconds a stream, peak memory in MB, and milliseconds beyond those of the engine.

    Each pair is the median and the 99th percentile, through the server less straight from the engine: of the first
    chunk since the request, and of any token since the engine sent it. `added_total` is the median of whole streams.
    """

    cpu_ms: float
    peak_mb: float
    added_first: tuple[float, float]
    added_token: tuple[float, float]
    added_total: float


@dataclass(frozen=True, slots=True)
class Result:
    """`ratios` are ours to the yardstick's CPU time per stream, one a round; `fault` is why not to trust it.

    `rated_ms` is the figure the line's bar is on, one a round.
    """

    line: Line
    ours: Side
    yardstick: Side
    ratios: list[float]
    rated_ms: list[float]
    bytes_per_call: float
    fault: str | None


@dataclass(frozen=True, slots=True)
class _Round:
    cpu_ms: float
    answers: list[Answer]


def measure(line: Line, room: Path, rounds: int) -> Result:
    """Measure a line, so many rounds of it, in new processes: engine, proxy and yardstick in turns."""
    with rig(payload("stream"), room, line.gap) as servers:
        processes = (servers.engine, servers.ours, servers.yardstick)
        taken = [[_round(line, process, servers.payload.request) for process in processes] for _ in range(rounds)]
        direct, ours, yardstick = (list(of_one) for of_one in zip(*taken, strict=True))
        calls = rounds * line.connections * line.streams
        bad = sum(_is_bad(answer) for one in (*direct, *ours, *yardstick) for answer in one.answers)
        return Result(
            line,
            _side(ours, direct, servers.ours),
            _side(yardstick, direct, servers.yardstick),
            [one.cpu_ms / other.cpu_ms for one, other in zip(ours, yardstick, strict=True)],
            [
                _added(_Times([one]).first, _Times([other]).first, line.bar_at)
                for one, other in zip(ours, direct, strict=True)
            ],
            servers.record_bytes() / calls,
            f"{bad} streams were not answered with 200 and every token" if bad else servers.account().fault(calls),
        )


def _round(line: Line, process: Process, body: bytes) -> _Round:
    before = process.cpu_seconds()
    answers = client.stream_load(process.port, body, line.connections, line.streams, STREAM_CHUNKS * line.gap)
    return _Round(1000 * (process.cpu_seconds() - before) / (line.connections * line.streams), answers)


def _side(rounds: list[_Round], direct: list[_Round], process: Process) -> Side:
    ours, theirs = _Times(rounds), _Times(direct)
    return Side(
        median(one.cpu_ms for one in rounds),
        process.peak_bytes() / 1e6,
        (_added(ours.first, theirs.first, 0.5), _added(ours.first, theirs.first, 0.99)),
        (_added(ours.token, theirs.token, 0.5), _added(ours.token, theirs.token, 0.99)),
        _added(ours.total, theirs.total, 0.5),
    )


class _Times:
    def __init__(self, rounds: list[_Round]) -> None:
        answers = [answer for one in rounds for answer in one.answers]
        self.first = [answer.first for answer in answers]
        self.token = [delay for answer in answers for delay in answer.delays]
        self.total = [answer.total for answer in answers]


def _added(through: list[float], direct: list[float], share: float) -> float:
    return 1000 * (quantile(through, share) - quantile(direct, share))


def _is_bad(answer: Answer) -> bool:
    return answer.status != 200 or len(answer.delays) != STREAM_CHUNKS
