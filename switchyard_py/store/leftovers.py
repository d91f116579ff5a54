"""What killed writers left behind: temporary files, which are no state of any call and only take space, and calls that
were open."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator

from switchyard_py.store.filesystem import Filesystem
from switchyard_py.store.intent import decode_intent
from switchyard_py.store.names import State, call_file, parse_call_file, writer_of_temporary
from switchyard_py.store.writers import is_alive, is_of_this_host

log = logging.getLogger(__name__)

STEP_SECONDS = 0.005
MOST_SECONDS = 60.0
# On a network file system a writer of another machine can look dead; no write takes so long.
_OTHER_HOST_SECONDS = 3600


class Leftovers:
    """Removes the files and counts the calls directory by directory, in steps short enough to go between other work of
    a thread, and for a bounded time. What cannot be read or removed stays."""

    def __init__(self, sessions: str, writers: str, filesystem: Filesystem) -> None:
        self.removed = 0
        """Files removed so far."""
        self.abandoned = 0
        """Calls found so far that a dead writer left open."""
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
        if unfinished or self.removed or self.abandoned:
            how = f"stopped after {MOST_SECONDS:g} s" if unfinished else "all directories looked through"
            told = "%d temporary files that killed writers had left behind were removed: %s; %d calls are abandoned"
            log.warning(told, self.removed, how, self.abandoned)
        return False

    def _remove_all(self) -> Iterator[None]:
        """Yields after each directory, each file removed and each call counted."""
        for name in self._names(self._sessions):
            directory = os.path.join(self._sessions, name)
            files = set(self._names(directory))
            for file in files:
                writer = writer_of_temporary(file)
                if writer is not None:
                    self._remove(os.path.join(directory, file), writer)
                    yield
                elif self._is_abandoned(directory, file, files):
                    self.abandoned += 1
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

    def _is_abandoned(self, directory: str, file: str, files: set[str]) -> bool:
        call = parse_call_file(file)
        if call is None or call[1] is not State.OPEN:
            return False
        if any(call_file(call[0], state) in files for state in State if state is not State.OPEN):
            return False
        try:
            intent = decode_intent(self._filesystem.read(os.path.join(directory, file)))
        except OSError:
            return False  # it has ended meanwhile, or cannot be read
        return intent is not None and not self._lives(intent.writer)

    def _lives(self, writer: str) -> bool:
        if writer not in self._alive:
            self._alive[writer] = is_alive(self._writers, writer)
        return self._alive[writer]

    def _is_old(self, path: str) -> bool:
        return time.time() - self._filesystem.modified_at(path) / 1e9 > _OTHER_HOST_SECONDS
