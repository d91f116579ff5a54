"""Measures what the proxy costs, beside the forwarder anybody would write first.

    make bench                      everything: under nine minutes on two cores
    make bench ARGS=--quick         one short round of each: figures to look at, not to quote

Bars are printed beside the figures they are about. A missed one does not fail the run; a call that was not answered or
not recorded marks its line as wrong. docs/benchmark.md says how each figure is taken.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx
import orjson
from benchmarks import buffered, dialects, health, report, sampling, streams, wrk
from benchmarks.rig import check_room

RAM_DIRECTORY = Path("/dev/shm")
ROOM_BYTES = 3 << 30
PROFILE_SECONDS = 10.0
COMPLETE = "Every call was answered with 200, and every captured one is recorded as valid."

T = TypeVar("T")
R = TypeVar("R", buffered.Result, streams.Result, dialects.Result, health.Result)


def main() -> int:
    """Run the benchmark; exit status 2 for options or a machine it cannot work with."""
    options = _parser().parse_args()
    if not sys.platform.startswith("linux"):
        print("error: the benchmark reads /proc, so it runs on Linux only", file=sys.stderr)
        return 2
    try:
        check_room("--ram-dir", options.ram_dir, ROOM_BYTES)
        check_room("--disk-dir", options.disk_dir, ROOM_BYTES)
        if options.profile:
            sampling.find_sampler()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    Benchmark(options).run()
    return 0


class Benchmark:
    """One run: prints each table when its lines are measured, and in the end what cannot be trusted."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rounds, self._seconds = (1, 1.0) if options.quick else (3, 1.5)
        self._results: list[report.Result] = []
        self._faults: list[str] = []

    def run(self) -> None:
        """Measure, print, and write the JSON that was asked for."""
        options, seconds = self._options, self._seconds
        head = {
            "machine": report.machine(),
            "buffered_load": "wrk" if wrk.available() else "own client",
            "most_rounds": self._rounds,
            "seconds": seconds,
        }
        print("; ".join(f"{key.replace('_', ' ')}: {value}" for key, value in head.items()), end="\n\n", flush=True)
        calls = [
            (line.name, partial(buffered.measure, line, self._room(line), min(line.rounds, self._rounds), seconds))
            for line in buffered.LINES
        ]
        streamed = [
            (line.name, partial(streams.measure, line, options.ram_dir, min(line.rounds, self._rounds)))
            for line in streams.LINES
        ]
        others = [
            (line.name, partial(dialects.measure, line, options.ram_dir, min(line.rounds, self._rounds), seconds))
            for line in dialects.LINES
        ]
        probed = [
            (name, partial(measure, options.ram_dir, 4 * seconds)) for name, measure in health.MEASUREMENTS.items()
        ]
        profiled = [
            (f"profile {name} x {count}", partial(sampling.profile, name, count, options.ram_dir, PROFILE_SECONDS))
            for name, count in (sampling.LOADS if options.profile else ())
        ]
        self._show(report.buffered_table, self._counted(calls))
        self._show(report.stream_table, self._counted(streamed))
        self._show(report.dialect_table, self._counted(others))
        self._show(report.health_table, self._counted(probed))
        self._show(sampling.table, self._measured(profiled))
        wrong = [*self._faults, *report.faults(self._results)]
        if wrong or self._results:
            print("\n".join(f"WRONG: {fault}" for fault in wrong) or COMPLETE)
        if options.json:
            figures = {**head, "wrong": wrong, "results": report.as_json(self._results)}
            options.json.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2))

    def _room(self, line: buffered.Line) -> Path:
        room: Path = self._options.disk_dir if line.on_disk else self._options.ram_dir
        return room

    def _counted(self, lines: Sequence[tuple[str, Callable[[], R]]]) -> list[R]:
        results = self._measured(lines)
        self._results += results
        return results

    def _measured(self, lines: Sequence[tuple[str, Callable[[], T]]]) -> list[T]:
        results: list[T] = []
        for name, measure in lines:
            if self._options.only not in name:
                continue
            started = time.monotonic()
            print(f"{name} ...", end="", file=sys.stderr, flush=True)
            try:
                results.append(measure())
            except (RuntimeError, OSError, httpx.HTTPError) as error:
                self._faults.append(f"{name}: not measured: {error or type(error).__name__}")
            print(f" {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        return results

    def _show(self, table: Callable[[list[T]], Iterator[str]], results: list[T]) -> None:
        if results:
            print("\n".join(table(results)), end="\n\n", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench ARGS=", description="What the proxy costs.")
    parser.add_argument("--quick", action="store_true", help="one short round of each")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only lines whose name holds it: 'small', 'stream x 1'"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--profile", action="store_true", help="also sample where the proxy's time goes, with py-spy")
    parser.add_argument(
        "--ram-dir", type=Path, default=RAM_DIRECTORY, metavar="DIR", help="a tmpfs for the records (%(default)s)"
    )
    parser.add_argument(
        "--disk-dir",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="a disk for the unrated lines (%(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
