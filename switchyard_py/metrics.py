"""What is counted, in one place: the metrics of `GET /metrics`, from which `GET /v1/stats` is made too.

Several workers count in files of one directory, so the answer of any covers all, those that have died included. The
files are mapped into memory: counting never waits for a disk, provided the directory is not on one.

Labels are bounded: routes of the bundle, dialects, outcomes and reasons from fixed lists. Never a session.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    values,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from switchyard_py import __version__
from switchyard_py.observation import AGENT_GONE, ANSWERED, Observation

_Mode = Literal["livesum", "livemin", "livemax", "max"]
"""What the gauges of several workers come to. A `live` one forgets a worker that has died."""

CALL_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
OWN_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 30)
LAG_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)
STORED = ("valid", "invalid", "undelivered")
RESULTS = (*STORED, "lost", "failed")
"""What becomes of calls that are recorded; those that are `STORED` have a record."""

_PREFIX = "switchyard_"
_MEMORY = Path("/dev/shm")  # noqa: S108  a directory with a random name is made in it
# A mapped page that a full file system cannot give kills the process: take no part of a small one.
_MEMORY_BYTES = 64 << 20

# A time stamp beside each counter, which the files of several workers do not have.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The counts of one process. Methods are for its event loop, `exposition` and `families` for any thread."""

    def __init__(self, directory: Path | None = None) -> None:
        """`directory`, of `shared_directory`, makes them part of those of all workers; one such object per process."""
        self._directory = directory
        self._registry = CollectorRegistry()
        if directory is None:
            # Explicit: the environment may hold the directory of the program that started this one.
            values.ValueClass = values.MutexValue
        else:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
            values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]

        self._calls = cache(self._counter("calls", "Model calls that are over.", "route", "dialect", "outcome").labels)
        self._call_seconds = cache(
            self._histogram("call_seconds", "From a call's arrival to its last byte.", CALL_SECONDS, "route").labels
        )
        overhead = self._histogram(
            "proxy_overhead_seconds", "What the proxy itself took of an answered call.", OWN_SECONDS, "until"
        )
        self._overhead_first, self._overhead_last = overhead.labels("first_byte"), overhead.labels("last_byte")
        self._tokens = cache(self._counter("tokens", "Tokens as engines reported them.", "route", "kind").labels)
        self._unidentified = self._counter("unidentified_calls", "Calls on a captured route without a session.")
        self._uncaptured = self._counter("uncaptured_calls", "Calls sent although the store could not begin them.")
        self._disconnects = self._counter("client_disconnects", "Calls whose agent went before its answer was whole.")
        self._replays = self._counter("replays", "Calls answered from a record that nobody had received.")

        self._records = cache(self._counter("capture_records", "Ends of recorded calls.", "result", "reason").labels)
        self._commit_seconds = self._histogram(
            "capture_commit_seconds", "Until the store had a record in its place.", OWN_SECONDS
        )
        self._written_bytes = self._counter("capture_written_bytes", "Size of the records written.")
        self.open_calls = self._gauge("capture_open_calls", "Calls that have begun and not ended.")
        self.unwritten_marks = self._gauge("capture_unwritten_marks", "States the store refuses and that are retried.")
        self.abandoned_calls = self._gauge(
            "capture_abandoned_calls", "Open calls of killed writers that were found in the directory.", mode="max"
        )
        self.refused_calls = self._counter("capture_refused_calls", "Calls the store could not begin.")
        self.faulty_files = self._counter("capture_faulty_files", "Files that could not be read as a record.")

        self.calls_in_flight = self._gauge("calls_in_flight", "Model calls under way.")
        self.streams_in_flight = self._gauge("streams_in_flight", "Of them, those whose answer has begun.")
        self.upstream_connections = self._gauge("upstream_connections", "Connections to engines.", "state")
        self.resent_requests = self._counter("upstream_resent_requests", "Requests sent again over a new connection.")
        self.repeated_requests = self._counter(
            "upstream_repeated_requests", "Requests sent again because the engine was full or could not be reached."
        )
        self.loop_lag = self._histogram("event_loop_lag_seconds", "How late the event loop was.", LAG_SECONDS)
        self.disk_free_bytes = self._gauge("disk_free_bytes", "Free on the disk of the records.", mode="livemin")
        # Until it is known, and where nothing is recorded: no alarm.
        self.disk_free_bytes.set(math.inf)
        self.disk_min_free_bytes = self._gauge(
            "disk_min_free_bytes", "Free space below which the proxy is not ready.", mode="livemax"
        )
        self._gauge("workers", "Processes that serve.").set(1)
        self._gauge("build_info", "1 for the version that runs.", "version", mode="livemax").labels(__version__).set(1)

        # What alerts are made of is there from the start: a counter that first appears with a value has not risen.
        for result in RESULTS:
            self._records(result, "")
        self._allocate()

    def count(self, observation: Observation) -> None:
        """Count a call that is over."""
        course, outcome, fate = observation.course, observation.outcome, observation.fate
        route = "" if course is None else course.route
        self._calls(route, observation.dialect, outcome).inc()
        self._call_seconds(route).observe(observation.seconds)
        if outcome == ANSWERED:
            self._overhead_first.observe(observation.first_byte_overhead)
            self._overhead_last.observe(observation.overhead)
        elif outcome == AGENT_GONE:
            self._disconnects.inc()
        if observation.unidentified:
            self._unidentified.inc()
        if observation.lost:
            self._uncaptured.inc()
        if observation.replayed:
            self._replays.inc()
        for kind, count in observation.tokens.items():
            self._tokens(route, kind).inc(count)
        if fate and not observation.replayed:
            self._records(fate, _reason(observation, fate)).inc()
        if fate in STORED:
            self._written_bytes.inc(observation.record_bytes)
        if observation.commit_seconds is not None:
            self._commit_seconds.observe(observation.commit_seconds)

    def families(self) -> Iterable[Metric]:
        """All metrics with their samples, of all workers."""
        return self._source().collect()

    def exposition(self) -> bytes:
        """The same in the text format 0.0.4 of Prometheus."""
        return generate_latest(self._source())

    def _source(self) -> CollectorRegistry:
        if self._directory is None:
            return self._registry
        shared = CollectorRegistry()
        _WorkersCollector(shared, str(self._directory))  # type: ignore[no-untyped-call]
        return shared

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, what, labels, registry=self._registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(_PREFIX + name, what, labels, registry=self._registry, buckets=buckets)

    def _gauge(self, name: str, what: str, *labels: str, mode: _Mode = "livesum") -> Gauge:
        return Gauge(_PREFIX + name, what, labels, registry=self._registry, multiprocess_mode=mode)

    def _allocate(self) -> None:
        """Take the space of the files now, while an error can be told."""
        for file in [] if self._directory is None else self._directory.glob(f"*_{os.getpid()}.db"):
            with file.open("r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)


class _WorkersCollector(MultiProcessCollector):
    """Reads the files of all workers, also while one starts or has died."""

    def collect(self) -> Iterable[Metric]:
        files = [str(file) for file in Path(self._path).glob("*.db") if _has_counts(file)]
        return self.merge(files)  # type: ignore[no-untyped-call, no-any-return]


def _has_counts(file: Path) -> bool:
    """Whether a file can be read: one of no size was made just now by a worker that starts, and has nothing yet."""
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False


@contextmanager
def shared_directory() -> Iterator[Path]:
    """A directory for the counts of several workers, in memory where there is room; removed in the end."""
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES else None
    with tempfile.TemporaryDirectory(prefix="switchyard-metrics-", dir=memory, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def forget_process(directory: Path, pid: int) -> None:
    """Drop what a worker that has died said of the present; what it counted stays."""
    mark_process_dead(pid, str(directory))  # type: ignore[no-untyped-call]


def follow(counter: Counter, counted: int, known: int) -> int:
    """Raise a counter from the `known` to the `counted` value of a count kept elsewhere; returns the latter."""
    counter.inc(counted - known)
    return counted


def _reason(observation: Observation, fate: str) -> str:
    if fate == "invalid":
        return observation.invalid_reasons[0]
    return observation.outcome if fate == "failed" else ""
