"""The end of a session: it is sealed, so that a trainer knows that it has all of it, or deleted.

Both put the mark first and then look for open calls, see `closings`. A deletion is done when its mark stands: readers
see nothing of the session from then on, whatever is still to be removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator

from switchyard_py.store.closings import Closing, Seal, now
from switchyard_py.store.reader import DELIVERED, SessionReader
from switchyard_py.store.session import SessionView

log = logging.getLogger(__name__)


class SessionDeleted(Exception):
    """The session was deleted before."""


class UnknownSession(Exception):
    """There never was such a session."""


class SessionInUse(Exception):
    """The session has open calls, so many, or was written to only now."""

    def __init__(self, open_calls: int) -> None:
        super().__init__(f"{open_calls} calls of the session are open")
        self.open_calls = open_calls


class Endings:
    """Ends the sessions that a reader reads. All methods block and raise OSError when the store refuses."""

    def __init__(self, reader: SessionReader) -> None:
        self.reader = reader
        self._closings = reader.closings
        self._filesystem = reader.filesystem

    def close(self, session_id: str) -> Seal | None:
        """Let no more calls begin; the seal when there is one already. Unknown sessions can be closed too.

        Raises SessionDeleted.
        """
        with self._closings.lock():
            closing = self._standing(session_id)
            if closing is None:
                self._closings.put(Closing(session_id=session_id))
        return None if closing is None else closing.seal

    def seal(self, session_id: str) -> Seal:
        """Seal a session that was closed; the seal it has when it has one.

        Raises SessionInUse while calls are open, SessionDeleted.
        """
        view = self.reader.view(session_id)
        if view is None:
            raise SessionDeleted
        if view.seal is not None:
            return view.seal
        if open_calls := view.open_calls():
            raise SessionInUse(open_calls)
        seal = _seal(view)
        with self._closings.lock():
            closing = self._standing(session_id)
            if closing is not None and closing.seal is not None:
                return closing.seal
            self._closings.put(Closing(session_id=session_id, seal=seal))
        return seal

    def delete(self, session_id: str) -> None:
        """Put a tombstone and remove the files; raises what `bury` does."""
        self.bury(session_id)
        for _ in self.remove(session_id):
            pass

    def bury(self, session_id: str, *, untouched_since: float | None = None, wait: bool = True) -> None:
        """Put a tombstone: from here on the session is gone, and its files can be removed.

        Raises SessionInUse while calls are open, or when a file is newer than `untouched_since` (seconds since 1970);
        then the session is as it was. Raises UnknownSession, SessionDeleted, and BlockingIOError when another process
        closes a session at this moment and `wait` is false.
        """
        with self._closings.lock(wait=wait):
            closing = self._standing(session_id)
            view = self.reader.view(session_id)
            if view is None:
                raise UnknownSession
            self._refuse_in_use(view, untouched_since)
            if closing is None:
                self._closings.put(Closing(session_id=session_id))
                try:
                    # A call may have begun since.
                    self._refuse_in_use(self.reader.view(session_id), untouched_since)
                except BaseException:
                    self._closings.remove(session_id)
                    raise
            self._closings.put(Closing(session_id=session_id, deleted=True))

    def remove(self, session_id: str) -> Iterator[None]:
        """Remove the files of a buried session, one a step. What cannot be removed is logged and stays."""
        for directory in self.reader.catalogue.directories(session_id):
            try:
                for name in self._filesystem.names(directory):
                    with contextlib.suppress(FileNotFoundError):
                        self._filesystem.unlink(os.path.join(directory, name))
                    yield
                self._filesystem.remove_directory(directory)
            except FileNotFoundError:
                continue
            except OSError as error:
                log.warning("the files of a deleted session cannot be removed yet: %s", error)

    def changed_at(self, session_id: str) -> float:
        """When the newest file of a session was written or removed, seconds since 1970; 0 without any."""
        newest = 0
        for directory in self.reader.catalogue.directories(session_id):
            with contextlib.suppress(FileNotFoundError):
                newest = max(newest, self._filesystem.modified_at(directory))
                for name in self._filesystem.names(directory):
                    with contextlib.suppress(FileNotFoundError):
                        newest = max(newest, self._filesystem.modified_at(os.path.join(directory, name)))
        return newest / 1e9

    def _standing(self, session_id: str) -> Closing | None:
        closing = self._closings.find(session_id)
        if closing is not None and closing.deleted:
            raise SessionDeleted
        return closing

    def _refuse_in_use(self, view: SessionView | None, untouched_since: float | None) -> None:
        if view is None:
            return  # somebody removed its directory
        open_calls = view.open_calls()
        if open_calls or (untouched_since is not None and self.changed_at(view.session_id) > untouched_since):
            raise SessionInUse(open_calls)


def _seal(view: SessionView) -> Seal:
    digest = hashlib.sha256()
    records = 0
    for record in view.records(view.calls, DELIVERED):
        digest.update(len(record.data).to_bytes(8))
        digest.update(record.data)
        records += 1
        del record  # so that it and the next one are not in memory together
    # What was read may have moved calls to a later state, so the states come last.
    accounting = view.accounting()
    return Seal(
        sealed_at=now(),
        accounting=accounting,
        records=records,
        digest=digest.hexdigest(),
        calls={call.uuid: call.state.suffix for call in view.calls},
    )
