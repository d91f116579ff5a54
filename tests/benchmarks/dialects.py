"""The other dialects beside chat: what a call or a stream costs more in them, all asked of one proxy."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import client
from benchmarks.client import Answer, Load, quantile
from benchmarks.payloads import PATHS, STREAM_CHUNKS, Payload, payload
from benchmarks.processes import Process
from benchmarks.rig import Rig, rig

RATIO_BAR = 1.5
"""How many times what chat takes another dialect may take."""
WARM_UP_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """One load to measure in every dialect, so many rounds of it.

    With a `gap`, the seconds between two tokens, it is `streams` of 200 tokens on each connection, of which the first
    warms up; the quantile `bar_at` of the first chunk's added time is rated as well. A load that is `mixed` is not
    measured dialect by dialect, which a noisy moment hits one by one, but a third of its connections speak each.
    """

    connections: int
    rounds: int
    gap: float = 0.0
    streams: int = 0
    bar_at: float = 0.5
    mixed: bool = False

    @property
    def payload(self) -> str:
        return "stream" if self.streams else "small"

    @property
    def name(self) -> str:
        return f"dialects, {self.payload} x {self.connections}"


LINES = (
    Line(32, rounds=3),
    Line(1, rounds=2, gap=0.004, streams=5),
    Line(200, rounds=1, gap=0.04, streams=5, bar_at=0.99, mixed=True),
)


@dataclass(frozen=True, slots=True)
class Side:
    """One dialect: processor milliseconds a call, and milliseconds, each median and 99th percentile.

    Those of calls are from sending to the last byte. Those of streams are beyond the engine's own: of the first chunk
    since the request, and of any token since the engine sent it. `ratios` are to chat's processor time, one a round,
    and none where it cannot be told apart; `first_ratio` is to its first chunk at the line's quantile.
    """

    dialect: str
    cpu_ms: float | None
    ratios: list[float]
    call_ms: tuple[float, float] | None = None
    added_first: tuple[float, float] | None = None
    added_token: tuple[float, float] | None = None
    first_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """All dialects under one load, chat first; `fault` is why not to trust it."""

    line: Line
    sides: list[Side]
    fault: str | None


@dataclass(frozen=True, slots=True)
class _Round:
    cpu_ms: float | None
    load: Load | None = None
    answers: Sequence[Answer] = ()


def measure(line: Line, room: Path, rounds: int, seconds: float) -> Result:
    """Measure a line in new processes, the dialects in turns or together so that a noisy moment hits all."""
    asked = [payload(line.payload, dialect) for dialect in PATHS]
    with rig(asked[0], room, line.gap) as servers:
        if line.streams:
            return _measure_streams(servers, line, asked, rounds)
        return _measure_calls(servers, line, asked, rounds, seconds)


def _measure_calls(servers: Rig, line: Line, asked: list[Payload], rounds: int, seconds: float) -> Result:
    port = servers.ours.port
    warm_up = [
        client.buffered_load(port, one.request, min(line.connections, 8), seconds=WARM_UP_SECONDS, path=one.path)
        for one in asked
    ]
    taken: list[list[_Round]] = [[] for _ in asked]
    for number in range(rounds):
        # The later one finds a warmer machine: take turns at that, too.
        for which in sorted(range(len(asked)), reverse=number % 2 == 1):
            before = servers.ours.cpu_seconds()
            load = servers.load(servers.ours, line.connections, seconds, asked[which])
            taken[which].append(_Round(1000 * (servers.ours.cpu_seconds() - before) / load.calls, load))
    loads = [*warm_up, *(one.load for of_one in taken for one in of_one if one.load)]
    failed = sum(load.failed for load in loads)
    sides = [
        Side(
            dialect,
            _cpu_ms(of_one),
            _ratios(of_one, taken[0]),
            call_ms=(
                1000 * median(one.load.p50 for one in of_one if one.load),
                1000 * median(one.load.p99 for one in of_one if one.load),
            ),
        )
        for dialect, of_one in zip(PATHS, taken, strict=True)
    ]
    fault = f"{failed} calls were not answered with 200" if failed else None
    return Result(line, sides, fault or servers.account().fault(sum(load.calls for load in loads)))


def _measure_streams(servers: Rig, line: Line, asked: list[Payload], rounds: int) -> Result:
    direct: list[_Round] = []
    taken: list[list[_Round]] = [[] for _ in asked]
    for number in range(rounds):
        direct.append(_streams(line, servers.engine, asked[0]))
        if line.mixed:
            for of_one, one in zip(taken, _mixed(line, servers.ours, asked), strict=True):
                of_one.append(one)
            continue
        for which in sorted(range(len(asked)), reverse=number % 2 == 1):
            taken[which].append(_streams(line, servers.ours, asked[which]))
    bad = sum(
        answer.status != 200 or len(answer.delays) != STREAM_CHUNKS
        for of_one in (direct, *taken)
        for one in of_one
        for answer in one.answers
    )
    first, token = _firsts(direct), _delays(direct)
    chat = _added(_firsts(taken[0]), first, line.bar_at)
    sides = [
        Side(
            dialect,
            _cpu_ms(of_one),
            _ratios(of_one, taken[0]),
            added_first=(_added(_firsts(of_one), first, 0.5), _added(_firsts(of_one), first, 0.99)),
            added_token=(_added(_delays(of_one), token, 0.5), _added(_delays(of_one), token, 0.99)),
            first_ratio=_added(_firsts(of_one), first, line.bar_at) / chat,
        )
        for dialect, of_one in zip(PATHS, taken, strict=True)
    ]
    fault = f"{bad} streams were not answered with 200 and every token" if bad else None
    calls = (1 if line.mixed else len(asked)) * rounds * line.connections * line.streams
    return Result(line, sides, fault or servers.account().fault(calls))


def _streams(line: Line, process: Process, asked: Payload) -> _Round:
    before = process.cpu_seconds()
    seconds = STREAM_CHUNKS * line.gap
    answers = client.stream_load(process.port, asked.request, line.connections, line.streams, seconds, asked.path)
    cpu_ms = 1000 * (process.cpu_seconds() - before) / (line.connections * line.streams)
    return _Round(cpu_ms, answers=answers)


def _mixed(line: Line, process: Process, asked: list[Payload]) -> list[_Round]:
    requests = [(one.request, one.path) for one in asked]
    seconds = STREAM_CHUNKS * line.gap
    answers = client.mixed_streams(process.port, requests, line.connections, line.streams, seconds)
    return [_Round(None, answers=of_one) for of_one in answers]


def _cpu_ms(rounds: list[_Round]) -> float | None:
    known = [one.cpu_ms for one in rounds if one.cpu_ms is not None]
    return median(known) if known else None


def _ratios(rounds: list[_Round], chat: list[_Round]) -> list[float]:
    return [one.cpu_ms / other.cpu_ms for one, other in zip(rounds, chat, strict=True) if one.cpu_ms and other.cpu_ms]


def _firsts(rounds: list[_Round]) -> list[float]:
    return [answer.first for one in rounds for answer in one.answers]


def _delays(rounds: list[_Round]) -> list[float]:
    return [delay for one in rounds for answer in one.answers for delay in answer.delays]


def _added(through: list[float], direct: list[float], share: float) -> float:
    return 1000 * (quantile(through, share) - quantile(direct, share))
