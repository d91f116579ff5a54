"""The writing side of the store: puts each call into its next state by files that are whole or not there.

Every file is written under a temporary name and renamed, so a state appears only with all of its bytes; then the file
of the state before is removed. A crash between the two leaves both, and readers take the later state.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from switchyard_py.store.filesystem import Filesystem
from switchyard_py.store.intent import CallIntent, encode_failure, encode_intent
from switchyard_py.store.listing import file_names
from switchyard_py.store.names import SESSIONS, WRITERS, State, call_file, session_directory, temporary_file
from switchyard_py.store.uuids import UUIDSource, newest_ticks
from switchyard_py.store.writers import WriterLock, WritersWatch

_KNOWN_SESSIONS = 10_000


class Writer:
    """One writer of a directory. Its methods block, raise OSError when the store refuses, and belong in one thread."""

    def __init__(
        self, directory: Path, *, filesystem: Filesystem | None = None, clock: Callable[[], int] = time.time_ns
    ) -> None:
        """Make the directory when it is missing and sign in as a writer. `clock` gives nanoseconds since 1970."""
        self._filesystem = filesystem or Filesystem()
        self._root = directory
        self._sessions = os.path.join(directory, SESSIONS)
        self._writers = os.path.join(directory, WRITERS)
        self._uuids = UUIDSource(clock)
        # Session directories in which nothing can be newer than what this writer issued.
        self._known: dict[str, None] = {}
        self._sign_in()

    @property
    def name(self) -> str:
        """`host:boot:pid:random`, never used twice. A new one after the directory of writers has vanished."""
        return self._lock.name

    def close(self) -> None:
        """Sign out; calls still open count as abandoned from here on."""
        self._lock.release()

    def begin(self, intent: CallIntent) -> CallIntent:
        """Put an intent on disk and return it with its uuid and writer.

        The uuid sorts after those of all calls of the session that had begun before. Raises ValueError for a text
        with lone surrogates or an empty session id, before anything is written.
        """
        directory = self._directory(intent)
        encode_intent(intent)
        if self._others_may_write():
            self._known.clear()
        if directory not in self._known:
            self._enter(directory)
        intent = msgspec.structs.replace(intent, uuid=self._uuids.issue(), writer=self.name)
        self._write(intent, encode_intent(intent), State.OPEN)
        return intent

    def commit(self, intent: CallIntent, record: bytes) -> None:
        """Keep the record of an open call. When it raises, the call is still open."""
        self._write(intent, record, State.COMMITTED)
        self._forget(intent, State.OPEN)

    def withdraw(self, intent: CallIntent, record: bytes, previous: State) -> None:
        """Keep the record of an open, lost or committed call as undelivered. When it raises, nothing has changed."""
        if previous is State.COMMITTED:
            try:
                self._rename(intent, previous, State.UNDELIVERED)  # needs no space on the disk
            except FileNotFoundError:  # the directory vanished
                self._write(intent, record, State.UNDELIVERED)
        else:
            self._write(intent, record, State.UNDELIVERED)
            self._forget(intent, previous)

    def lose(self, intent: CallIntent) -> None:
        """Mark an open call as answered but not storable. Needs no space on the disk."""
        self._mark(intent, State.OPEN, State.LOST)

    def fail(self, intent: CallIntent, reason: str, seen: bytes | None, previous: State = State.OPEN) -> None:
        """Mark an open or lost call as failed, with the reason and what was seen where the disk has space for it."""
        if previous is State.OPEN:
            try:
                self._write(intent, encode_failure(intent, reason, seen), State.FAILED)
            except OSError:
                self._mark(intent, previous, State.FAILED)
            else:
                self._forget(intent, previous)
        else:
            self._mark(intent, previous, State.FAILED)

    def _sign_in(self) -> None:
        self._make_home()
        self._lock = WriterLock(self._writers)
        self._watch = WritersWatch(self._writers, self._lock.name)

    def _make_home(self) -> None:
        os.makedirs(self._root, 0o700, exist_ok=True)
        for path in (self._sessions, self._writers):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)

    def _others_may_write(self) -> bool:
        try:
            return self._watch.others_may_write()
        except FileNotFoundError:
            # The whole directory vanished, and with it the sign that this writer lives.
            vanished = self._lock
            self._sign_in()
            vanished.release()
            return True

    def _enter(self, directory: str) -> None:
        """Make the directory, or see to it that the next uuid sorts after all names in it."""
        try:
            self._make_directory(directory)
        except FileExistsError:
            self._uuids.observe(newest_ticks(file_names(self._filesystem, directory)))
        self._known[directory] = None
        if len(self._known) > _KNOWN_SESSIONS:
            del self._known[next(iter(self._known))]

    def _make_directory(self, directory: str) -> None:
        try:
            self._filesystem.make_directory(directory)
        except FileNotFoundError:
            self._make_home()
            self._filesystem.make_directory(directory)

    def _write(self, intent: CallIntent, data: bytes, state: State) -> None:
        directory = self._directory(intent)
        temporary = f"{directory}/{temporary_file(intent.uuid, self.name)}"
        try:
            self._filesystem.create(temporary, data)
        except FileNotFoundError:  # the directory vanished
            self._enter(directory)
            self._filesystem.create(temporary, data)
        except FileExistsError:  # left by a write that failed and could not be undone
            self._filesystem.unlink(temporary)
            self._filesystem.create(temporary, data)
        try:
            self._filesystem.rename(temporary, f"{directory}/{call_file(intent.uuid, state)}")
        except BaseException:
            with contextlib.suppress(OSError):
                self._filesystem.unlink(temporary)
            raise

    def _mark(self, intent: CallIntent, previous: State, state: State) -> None:
        try:
            self._rename(intent, previous, state)
        except FileNotFoundError:  # the directory vanished
            self._write(intent, encode_intent(intent), state)

    def _rename(self, intent: CallIntent, previous: State, state: State) -> None:
        self._filesystem.rename(self._path(intent, previous), self._path(intent, state))

    def _forget(self, intent: CallIntent, state: State) -> None:
        # The later state is on disk and overrules this one, whether or not its file can be removed.
        with contextlib.suppress(OSError):
            self._filesystem.unlink(self._path(intent, state))

    def _path(self, intent: CallIntent, state: State) -> str:
        return f"{self._directory(intent)}/{call_file(intent.uuid, state)}"

    def _directory(self, intent: CallIntent) -> str:
        return f"{self._sessions}/{session_directory(intent.session_id)}"
