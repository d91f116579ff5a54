"""Sets what is measured and not counted: gauges of the present, and how late the event loop is.

The loop is late by the time between the moment a task should have run and the moment it did. Whatever keeps the loop
busy delays every call by as much, and nothing else tells.
"""

import asyncio

from switchyard_py.attempts import Attempts
from switchyard_py.capture.ledger import Ledger
from switchyard_py.lifecycle import RunningCalls
from switchyard_py.metrics import Metrics, follow
from switchyard_py.store import SessionReader
from switchyard_py.upstream import AiohttpUpstream

TICK_SECONDS = 0.25


class Sampler:
    """Looks at the parts of one process. `ledger` and `reader` are None when nothing is captured."""

    def __init__(
        self,
        metrics: Metrics,
        calls: RunningCalls,
        upstream: AiohttpUpstream,
        attempts: Attempts,
        ledger: Ledger | None,
        reader: SessionReader | None,
    ) -> None:
        self._metrics = metrics
        self._calls = calls
        self._upstream = upstream
        self._attempts = attempts
        self._ledger = ledger
        self._reader = reader
        self._resent = self._repeated = self._refused = self._faulty = 0

    async def run(self) -> None:
        """Look at everything again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.look()
            due = loop.time() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self._metrics.loop_lag.observe(max(0.0, loop.time() - due))

    def look(self) -> None:
        """Set the gauges to what is now. Never waits."""
        metrics, ledger = self._metrics, self._ledger
        metrics.calls_in_flight.set(self._calls.count)
        metrics.streams_in_flight.set(self._calls.streams)
        for state, count in self._upstream.connections().items():
            metrics.upstream_connections.labels(state).set(count)
        self._resent = follow(metrics.resent_requests, self._upstream.resent, self._resent)
        self._repeated = follow(metrics.repeated_requests, self._attempts.repeated, self._repeated)
        if ledger is None or self._reader is None:
            return
        metrics.open_calls.set(ledger.counters.open)
        metrics.unwritten_marks.set(ledger.unwritten)
        metrics.abandoned_calls.set(ledger.abandoned)
        self._refused = follow(metrics.refused_calls, ledger.counters.refused, self._refused)
        self._faulty = follow(metrics.faulty_files, self._reader.faulty_files, self._faulty)
        if (room := ledger.room) is not None:
            metrics.disk_free_bytes.set(room.free_bytes)
            metrics.disk_min_free_bytes.set(room.least_bytes)
