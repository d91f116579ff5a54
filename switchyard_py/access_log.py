"""One line of JSON for each call, with what an operator looks for and nothing of what was said.

A line is plain ASCII: whatever an agent puts into a header cannot break it. Lines are written by a thread of their own,
because a disk and a full pipe can wait; when too many wait, or the file takes no more, further ones are dropped.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections import deque
from datetime import UTC, datetime

from switchyard_py.observation import Observation
from switchyard_py.worker import WorkThread

log = logging.getLogger(__name__)

STDERR = "-"
MOST_WAITING = 20_000
COMPLAINT_SECONDS = 60.0


class AccessLog:
    """Appends to a file, or writes to standard error. Several processes can share one: each line is one write."""

    def __init__(self, target: str) -> None:
        """`target` is a file name, or `-` for standard error. Raises OSError."""
        self._owned = target != STDERR
        self._descriptor = open_for_append(target) if self._owned else sys.stderr.fileno()
        self._thread = WorkThread("access-log")
        self._lines: deque[bytes] = deque()
        self._complained_at = -COMPLAINT_SECONDS

    def write(self, observation: Observation) -> None:
        """Have the line of a call that is over written, without waiting for it."""
        if len(self._lines) >= MOST_WAITING:
            self._complain("it does not take them in time")
            return
        self._lines.append(line(observation))
        self._thread.post(self._write_next)

    def close(self, within: float) -> None:
        """Write what waits and end, within so many seconds."""
        if self._thread.close(within) and self._owned:
            os.close(self._descriptor)

    def _write_next(self) -> None:
        rest = self._lines.popleft()
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self._complain(os.strerror(error.errno or 0))

    def _complain(self, why: str) -> None:
        if time.monotonic() - self._complained_at >= COMPLAINT_SECONDS:
            self._complained_at = time.monotonic()
            log.error("lines of the access log are dropped: %s", why)


def open_for_append(path: str) -> int:
    """Open the file, made for this user only where it is missing. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def line(observation: Observation) -> bytes:
    """The line of a call that is over. Times are milliseconds; what is not known is null."""
    course = observation.course
    fields = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request_id": observation.request_id,
        "client_request_id": course and course.client_request_id,
        "session": observation.session_id,
        "route": course and course.route,
        "dialect": observation.dialect,
        "target": course and course.target,
        "streamed": course and course.streamed,
        "status": observation.status,
        "outcome": observation.outcome,
        "fate": observation.fate or None,
        "invalid_reasons": list(observation.invalid_reasons),
        "prompt_tokens": observation.tokens.get("prompt"),
        "generation_tokens": observation.tokens.get("completion"),
        "first_byte_ms": _milliseconds(observation.first_byte_seconds),
        "total_ms": _milliseconds(observation.seconds),
        "overhead_ms": _milliseconds(observation.overhead),
        "pid": os.getpid(),
    }
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
