"""The writing side of the store: puts each call into its next state by files that are whole or not there.

Every file is written under a temporary name and renamed, so a state appears only with all of its bytes; then the file
of the state before is removed. A crash between the two leaves both, and readers take the later state.

A durable writer also flushes the content of a record before the rename, and `sync` flushes the names. Intents and
failed calls are not flushed: a call that was open when the power failed may leave no trace, and nobody has its tail.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from switchyard_py.store.closings import Closing, Closings, SessionClosed
from switchyard_py.store.filesystem import Filesystem
from switchyard_py.store.intent import CallIntent, encode_failure, encode_intent
from switchyard_py.store.leftovers import Leftovers
from switchyard_py.store.listing import file_names
from switchyard_py.store.names import SESSIONS, WRITERS, State, call_file, session_directory, temporary_file
from switchyard_py.store.unmarked import UnmarkedLosses
from switchyard_py.store.uuids import UUIDSource, newest_ticks
from switchyard_py.store.writers import WriterLock, WritersWatch

_KNOWN_SESSIONS = 10_000
# What a trainer may read, or a mark that masks it: the others change no training row.
_FLUSHED = frozenset({State.COMMITTED, State.LOST, State.UNDELIVERED})


class Writer:
    """One writer of a directory. Its methods block, raise OSError when the store refuses, and belong in one thread,
    unless they say otherwise."""

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = False,
        filesystem: Filesystem | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Make the directory when it is missing and sign in as a writer. `clock` gives nanoseconds since 1970."""
        self.durable = durable
        self.filesystem = filesystem or Filesystem()
        self.root = directory
        self.unmarked = UnmarkedLosses()
        self._sessions = os.path.join(directory, SESSIONS)
        self._writers = os.path.join(directory, WRITERS)
        self._closings = Closings(os.fspath(directory), self.filesystem)
        self._uuids = UUIDSource(clock)
        # Session directories, each with the epoch in which this writer looked at it; in those of the current epoch
        # nothing can be newer than what this writer issued.
        self._known: dict[str, int] = {}
        self._epoch = 0
        # Directories with names that a power failure may undo.
        self._unsynced: set[str] = set()
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
        directory = self.directory(intent)
        encode_intent(intent)
        if self._others_may_write():
            self._epoch += 1
        if self._known.get(directory) != self._epoch:
            self._enter(directory)
        intent = msgspec.structs.replace(intent, uuid=self._uuids.issue(), writer=self.name)
        try:
            self._write(intent, encode_intent(intent), State.OPEN)
        except OSError:
            self._leave(directory)
            raise
        return intent

    def closing(self, intent: CallIntent) -> Closing | None:
        """The mark that closes the session of a call whose intent is on disk, None when the call may go on."""
        return self._closings.find(intent.session_id)

    def retract(self, intent: CallIntent) -> None:
        """Remove the intent of a call that is not to begin."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.unlink(self._path(intent, State.OPEN))
        self._leave(self.directory(intent))

    def name_unbegun(self, intent: CallIntent) -> CallIntent:
        """Give a uuid and the writer's name to a call that cannot begin, and remember it as lost.

        From any thread, and without a look at the disk: the uuid sorts after those this writer issued before.
        """
        named = msgspec.structs.replace(intent, uuid=self._uuids.issue(), writer=self.name)
        self.unmarked.add(named)
        return named

    def lose_unbegun(self, intent: CallIntent) -> None:
        """Mark a call as lost that has no intent on disk."""
        self._write(intent, encode_intent(intent), State.LOST)
        self.unmarked.remove(intent)

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

    def deliver(self, intent: CallIntent) -> bytes:
        """Keep an undelivered record as committed after all; returns it. When it raises, nothing has changed.

        Raises SessionClosed, and FileNotFoundError when there is no such record any more.
        """
        # Under the lock, so that a seal tells of the record what its agent got.
        with self._closings.lock():
            closing = self._closings.find(intent.session_id)
            if closing is not None:
                raise SessionClosed(deleted=closing.deleted)
            record = self.filesystem.read(self._path(intent, State.UNDELIVERED))
            self._rename(intent, State.UNDELIVERED, State.COMMITTED)
        return record

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

    def sync(self) -> dict[str, OSError]:
        """Make the records and marks of losses written so far survive a power failure.

        Returns the session directories for which that failed. Of use to a durable writer only.
        """
        failures: dict[str, OSError] = {}
        unsynced, self._unsynced = self._unsynced, set()
        for directory in unsynced:
            try:
                self.filesystem.sync(directory)
            except OSError as error:
                failures[directory] = error
        for above in (self._sessions, os.fspath(self.root)):
            if above in failures:
                self._unsynced.add(above)
                failures |= dict.fromkeys(unsynced, failures[above])
        return failures

    def directory(self, intent: CallIntent) -> str:
        """The directory of a call's session."""
        return f"{self._sessions}/{session_directory(intent.session_id)}"

    def leftovers(self) -> Leftovers | None:
        """Temporary files that dead writers may have left, None when all writers before had signed out."""
        if not self._lock.found_dead:
            return None
        return Leftovers(self._sessions, self._writers, self.filesystem)

    def _sign_in(self) -> None:
        self._make_home()
        self._lock = WriterLock(self._writers)
        self._watch = WritersWatch(self._writers, self._lock.name)

    def _make_home(self) -> None:
        os.makedirs(self.root, 0o700, exist_ok=True)
        for path in (self._sessions, self._writers):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
        self._unsynced.add(os.fspath(self.root))

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
            made = True
        except FileExistsError:
            self._uuids.observe(newest_ticks(file_names(self.filesystem, directory)))
            made = False
        if made or directory not in self._known:  # others may have made it and not synced it
            self._unsynced.add(self._sessions)
        self._known[directory] = self._epoch
        if len(self._known) > _KNOWN_SESSIONS:
            del self._known[next(iter(self._known))]

    def _leave(self, directory: str) -> None:
        """Remove the directory of a session that has nothing in it: one that never had a call, or was deleted."""
        with contextlib.suppress(OSError):  # any other is not empty
            self.filesystem.remove_directory(directory)

    def _make_directory(self, directory: str) -> None:
        try:
            self.filesystem.make_directory(directory)
        except FileNotFoundError:
            self._make_home()
            self.filesystem.make_directory(directory)

    def _write(self, intent: CallIntent, data: bytes, state: State) -> None:
        directory = self.directory(intent)
        temporary = f"{directory}/{temporary_file(intent.uuid, self.name)}"
        try:
            self.filesystem.create(temporary, data)
        except FileNotFoundError:  # the directory vanished
            self._enter(directory)
            self.filesystem.create(temporary, data)
        except FileExistsError:  # left by a write that failed and could not be undone
            self.filesystem.unlink(temporary)
            self.filesystem.create(temporary, data)
        try:
            if self.durable and state in _FLUSHED:
                self.filesystem.sync(temporary)
                self._unsynced.add(directory)
            self.filesystem.rename(temporary, f"{directory}/{call_file(intent.uuid, state)}")
        except BaseException:
            with contextlib.suppress(OSError):
                self.filesystem.unlink(temporary)
            raise

    def _mark(self, intent: CallIntent, previous: State, state: State) -> None:
        try:
            self._rename(intent, previous, state)
        except FileNotFoundError:  # the directory vanished
            self._write(intent, encode_intent(intent), state)

    def _rename(self, intent: CallIntent, previous: State, state: State) -> None:
        self.filesystem.rename(self._path(intent, previous), self._path(intent, state))
        if self.durable and state in _FLUSHED:
            self._unsynced.add(self.directory(intent))

    def _forget(self, intent: CallIntent, state: State) -> None:
        # The later state is on disk and overrules this one, whether or not its file can be removed.
        with contextlib.suppress(OSError):
            self.filesystem.unlink(self._path(intent, state))

    def _path(self, intent: CallIntent, state: State) -> str:
        return f"{self.directory(intent)}/{call_file(intent.uuid, state)}"
