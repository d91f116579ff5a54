"""Temporary files that killed writers left behind. They are no state of any call and only take space."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator

from switchyard_py.store.filesystem import Filesystem
from switchyard_py.store.names import writer_of_temporary
from switchyard_py.store.writers import is_alive, is_of_this_host

log = logging.getLogger(__name__)

STEP_SECONDS = 0.005
MOST_SECONDS = 60.0
# On a network file system a writer of another machine can look dead; no write takes so long.
_OTHER_HOST_SECONDS = 3600


class Leftovers:
    """Removes them directory by directory, in steps short enough to go between other work of a thread, and for a
    bounded time. What cannot be read or removed stays."""

    def __init__(self, sessions: str, writers: str, filesystem: Filesystem) -> None:
        self.removed = 0
        """Files removed so far."""
        self._sessions = sessions
        self._writers = writers
        self._filesystem = filesystem
        self._alive: dict[str, bool] = {}
        self._walk = self._remove_all()
        self._until = time.monotonic() + MOST_SECONDS

    def clear(self) -> bool:
        """Go on for a step, and log what came of it after the last one. False when there is nothing more to do."""
        end = time.monotonic() + STEP_SECONDS
        unfinished = any(time.monotonic() >= end for _ in self._walk)
        if unfinished and time.monotonic() < self._until:
            return True
        if unfinished or self.removed:
            how = f"stopped after {MOST_SECONDS:g} s" if unfinished else "all directories looked through"
            log.warning("%d temporary files that killed writers had left behind were removed: %s", self.removed, how)
        return False

    def _remove_all(self) -> Iterator[None]:
        """Yields after each directory and each file removed."""
        for name in self._names(self._sessions):
            directory = os.path.join(self._sessions, name)
            for file in self._names(directory):
                writer = writer_of_temporary(file)
                if writer is not None:
                    self._remove(os.path.join(directory, file), writer)
                    yield
            yield

    def _names(self, directory: str) -> list[str]:
        try:
            return self._filesystem.names(directory)
        except OSError:
            return []

    def _remove(self, path: str, writer: str) -> None:
        with contextlib.suppress(OSError):
            if not self._lives(writer) and (is_of_this_host(writer) or self._is_old(path)):
                self._filesystem.unlink(path)
                self.removed += 1

    def _lives(self, writer: str) -> bool:
        if writer not in self._alive:
            self._alive[writer] = is_alive(self._writers, writer)
        return self._alive[writer]

    def _is_old(self, path: str) -> bool:
        return time.time() - self._filesystem.modified_at(path) / 1e9 > _OTHER_HOST_SECONDS
