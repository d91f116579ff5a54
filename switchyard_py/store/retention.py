"""Old sessions go: what is done to a directory now and then, so that it does not grow for ever.

Deletions that were broken off are finished, tombstones that are old enough are forgotten, and sessions that nobody
has written to for long enough are deleted, if the operator wants that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from switchyard_py.store.endings import Endings, SessionDeleted, SessionInUse, UnknownSession

log = logging.getLogger(__name__)

# An agent that still calls after so long is none of the run it belonged to.
TOMBSTONE_SECONDS = 7 * 24 * 3600.0
STEP_SECONDS = 0.005
_LONGEST_INTERVAL = 3600.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long sessions are kept: `seconds` after their newest file, None for ever; those that are not sealed only if
    `unsealed`."""

    seconds: float | None = None
    unsealed: bool = False

    @property
    def interval(self) -> float:
        """Seconds between two sweeps."""
        return _LONGEST_INTERVAL if self.seconds is None else min(self.seconds / 10, _LONGEST_INTERVAL)


class Sweep:
    """One time through the directory, in steps short enough to go between other work of a thread. Several processes
    may sweep at once."""

    def __init__(self, endings: Endings, retention: Retention) -> None:
        self.deleted = 0
        """Sessions deleted so far because of their age."""
        self._endings = endings
        self._closings = endings.reader.closings
        self._filesystem = endings.reader.filesystem
        self._catalogue = endings.reader.catalogue
        self._retention = retention
        self._walk = self._sweep()

    def go_on(self) -> bool:
        """Go on for a step, and log what came of it after the last one. False when there is nothing more to do."""
        end = time.monotonic() + STEP_SECONDS
        try:
            if any(time.monotonic() >= end for _ in self._walk):
                return True
        except OSError as error:
            log.warning("old sessions cannot be looked for: %s", error)
        if self.deleted:
            log.info("%d sessions were deleted: nothing was written for %g s", self.deleted, self._retention.seconds)
        return False

    def _sweep(self) -> Iterator[None]:
        for name in self._closings.names():
            yield from self._tend_mark(name)
            yield
        if self._retention.seconds is not None:
            for name in self._filesystem.names(self._catalogue.sessions):
                yield from self._delete_if_old(name, time.time() - self._retention.seconds)
                yield

    def _tend_mark(self, name: str) -> Iterator[None]:
        closing = self._closings.named(name)
        if closing is None or (not closing.deleted and closing.seal is not None and closing.seal.calls):
            return
        session_id = closing.session_id
        if closing.deleted:
            yield from self._endings.remove(session_id)
        with contextlib.suppress(OSError), self._closings.lock(wait=False):
            # A mark without a session is only there for the calls that come late.
            exists = any(map(self._filesystem.exists, self._catalogue.directories(session_id)))
            if not exists and self._closings.put_at(session_id) < time.time() - TOMBSTONE_SECONDS:
                self._closings.remove(session_id)

    def _delete_if_old(self, name: str, before: float) -> Iterator[None]:
        with contextlib.suppress(OSError, SessionDeleted, SessionInUse, UnknownSession):
            if self._filesystem.modified_at(os.path.join(self._catalogue.sessions, name)) / 1e9 > before:
                return
            session_id = self._catalogue.session_of(name)
            if session_id is None:
                return
            if self._closings.find(session_id) is not None:
                if self._closings.put_at(session_id) > before:
                    return
            elif not self._retention.unsealed:
                return
            self._endings.bury(session_id, untouched_since=before, wait=False)
            self.deleted += 1
            yield from self._endings.remove(session_id)
