"""What the benchmark says: tables in Markdown, which a terminal shows as well, and JSON."""

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from benchmarks import buffered, dialects, health, streams

Result = buffered.Result | streams.Result | dialects.Result | health.Result


def machine() -> str:
    """What the figures were taken on."""
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, Linux {platform.release()}"


def as_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    """All figures, with the name of each line and its kind."""
    return [{"kind": type(result).__module__.rpartition(".")[2], **asdict(result)} for result in results]


def verdict(value: float, bar: float | None) -> str:
    """The bar beside its figure; empty without one."""
    if bar is None:
        return ""
    return f"≤ {bar:g}: {'met' if value <= bar else '**not met**'}"


def buffered_table(results: Sequence[buffered.Result]) -> Iterator[str]:
    """One row a server, the proxy first; the ratio is of processor time per call, with its spread over the rounds."""
    yield from _header(
        "load", "server", "CPU ms/call", "calls/s", "p50 ms", "p99 ms", "peak MB", "bytes kept/call", "CPU ratio", "bar"
    )
    for result in results:
        ratio = _spread(result.ratios)
        bars = [verdict(median(result.ratios), result.line.ratio_bar)]
        if result.line.memory_bar:
            bars.append(f"{verdict(result.ours.peak_mb, result.line.memory_bar)} (MB)")
        bar = "; ".join(filter(None, bars))
        yield _row(result.line.name, "proxy", *_buffered(result.ours), f"{result.bytes_per_call:,.0f}", ratio, bar)
        yield _row("", "yardstick", *_buffered(result.yardstick), "", "", "")


def stream_table(results: Sequence[streams.Result]) -> Iterator[str]:
    """As above; times are what a server adds to those of the engine, median / 99th percentile."""
    yield from _header(
        "load",
        "server",
        "CPU ms/stream",
        "first chunk +ms",
        "token +ms",
        "stream +ms",
        "peak MB",
        "bytes kept/call",
        "CPU ratio",
        "bar",
    )
    for result in results:
        line = result.line
        rated = f"first chunk p{100 * line.bar_at:g} {_spread(result.rated_ms)}"
        bar = f"{rated} {verdict(median(result.rated_ms), line.bar_ms)}"
        kept = f"{result.bytes_per_call:,.0f}"
        yield _row(line.name, "proxy", *_stream(result.ours), kept, _spread(result.ratios), bar)
        yield _row("", "yardstick", *_stream(result.yardstick), "", "", "")


def dialect_table(results: Sequence[dialects.Result]) -> Iterator[str]:
    """One row a dialect, chat first; ratios are to chat in the same rounds, times are median / 99th percentile."""
    yield from _header(
        "load",
        "dialect",
        "CPU ms/call",
        "call ms",
        "first chunk +ms",
        "token +ms",
        "CPU ratio",
        "first chunk ratio",
        "bar",
    )
    for result in results:
        for side in result.sides:
            times = ("" if pair is None else "{:.2f} / {:.2f}".format(*pair) for pair in _times(side))
            name = result.line.name if side is result.sides[0] else ""
            rated = ("", "", "")
            if side is not result.sides[0]:
                first = side.first_ratio
                shown = "" if first is None else f"{first:.2f} (p{100 * result.line.bar_at:g})"
                most = max([*([median(side.ratios)] if side.ratios else []), *([] if first is None else [first])])
                rated = (_spread(side.ratios) if side.ratios else "", shown, verdict(most, dialects.RATIO_BAR))
            cpu = "" if side.cpu_ms is None else f"{side.cpu_ms:.2f}"
            yield _row(name, side.dialect, cpu, *times, *rated)


def health_table(results: Sequence[health.Result]) -> Iterator[str]:
    """One row a kind of work."""
    yield from _header("/health of the proxy during", "probes", "p50 ms", "p99 ms", "most ms", "bar (p99)")
    for result in results:
        figures = (f"{value:.1f}" for value in (result.p50_ms, result.p99_ms, result.most_ms))
        yield _row(result.name, str(result.probes), *figures, verdict(result.p99_ms, health.BAR_MS))


def faults(results: Sequence[Result]) -> Iterator[str]:
    """What must be known before any figure is believed: one line for each measurement that cannot be trusted."""
    for result in results:
        if result.fault:
            name = result.name if isinstance(result, health.Result) else result.line.name
            yield f"{name}: {result.fault}"


def _buffered(side: buffered.Side) -> tuple[str, ...]:
    return (
        f"{side.cpu_ms:.2f}",
        f"{side.calls_per_second:,.0f}",
        f"{side.p50_ms:.1f}",
        f"{side.p99_ms:.1f}",
        f"{side.peak_mb:.0f}",
    )


def _stream(side: streams.Side) -> tuple[str, ...]:
    pairs = ("{:.2f} / {:.2f}".format(*pair) for pair in (side.added_first, side.added_token))
    return (f"{side.cpu_ms:.1f}", *pairs, f"{side.added_total:.2f}", f"{side.peak_mb:.0f}")


def _spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _times(side: dialects.Side) -> tuple[tuple[float, float] | None, ...]:
    return side.call_ms, side.added_first, side.added_token


def _header(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield _row(*("---" if number == 0 else "---:" for number in range(len(titles))))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
