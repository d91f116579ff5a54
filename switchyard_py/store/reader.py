"""The reading side of the store: which sessions there are, and the records of each in call order.

Memory is one record and the list of names. All functions block; they are safe to call from several threads.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from switchyard_py.store.catalogue import Call, Catalogue
from switchyard_py.store.closings import Closings
from switchyard_py.store.filesystem import Filesystem
from switchyard_py.store.names import SESSIONS, WRITERS, State
from switchyard_py.store.records import Fault, Record
from switchyard_py.store.session import SessionView
from switchyard_py.store.unmarked import UnmarkedLosses
from switchyard_py.store.uuids import iso_time, ticks_of, ticks_of_prefix
from switchyard_py.store.writer import Writer

log = logging.getLogger(__name__)

DELIVERED = frozenset({State.COMMITTED, State.LOST})
_ALL = DELIVERED | {State.UNDELIVERED}


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """What a list of sessions tells of one. Times are UTC in ISO 8601, of the begin of the first and last call.

    `faults` is the number of files that cannot be served, `cursor` continues a list after this session.
    """

    session_id: str
    parent_session_id: str | None
    calls: int
    first_call_at: str
    last_call_at: str
    accounting: dict[str, int]
    sealed: bool
    faults: int
    cursor: str


class CompletionsPage:
    """Records of a session: iterate once, then ask for the account, which covers all calls of the session.

    Each item is the bytes of one record, checked to be a JSON object, of this schema version and of this session.
    """

    def __init__(self, records: Iterator[Record], view: SessionView) -> None:
        self._records = records
        self._view = view

    def __iter__(self) -> Iterator[bytes]:
        return map(attrgetter("data"), self._records)

    def values(self) -> Iterator[dict[str, Any]]:
        """What the records say, in place of their bytes."""
        return map(attrgetter("value"), self._records)

    def accounting(self) -> dict[str, int]:
        """Number of calls of the session by fate, after `begun`, their sum."""
        return self._view.accounting()

    def failures(self) -> dict[str, str]:
        """Why calls failed, by uuid."""
        return dict(self._view.failures())

    @property
    def sealed(self) -> bool:
        """Whether a seal says what the session holds, so that no call can be added to it."""
        return self._view.seal is not None

    @property
    def faults(self) -> list[Fault]:
        """The files that could not be served, of those read so far."""
        return list(self._view.faults.values())


class SessionReader:
    """Reads the sessions of a directory that this and other processes write to.

    Raises ValueError for a session id that no session can have (empty, lone surrogates) and OSError when a session's
    directory cannot be read; a file that cannot be read is a fault of the session and raises nothing.
    """

    def __init__(self, directory: Path, own_writer: Writer | None, *, filesystem: Filesystem | None = None) -> None:
        self.directory = directory
        self.filesystem = filesystem or Filesystem()
        self.closings = Closings(os.fspath(directory), self.filesystem)
        unmarked = own_writer.unmarked if own_writer else UnmarkedLosses()
        self.catalogue = Catalogue(os.path.join(directory, SESSIONS), self.closings, self.filesystem, unmarked)
        self._writers = os.path.join(directory, WRITERS)
        self._own_writer = own_writer

    @property
    def faulty_files(self) -> int:
        """Files found faulty by this reader so far, each counted once."""
        return self.catalogue.faulty_files

    def exists(self, session_id: str) -> bool:
        """Whether the session can be read: something is known of it, and it was not deleted."""
        return self.view(session_id) is not None

    def deleted(self, session_id: str) -> bool:
        """Whether the session was deleted, as long as its tombstone lives."""
        closing = self.closings.find(session_id)
        return closing is not None and closing.deleted

    def open_calls(self, session_id: str) -> int:
        """Calls that have not ended and whose writer lives; 0 for an unknown session."""
        view = self.view(session_id)
        return view.open_calls() if view else 0

    def completions(
        self,
        session_id: str,
        include: Literal["delivered", "all"] = "delivered",
        after: str | None = None,
        limit: int | None = None,
        among: Container[str] | None = None,
    ) -> CompletionsPage | None:
        """The records of a session in call order, with a placeholder for each lost call; None for an unknown session.

        `include="all"` adds undelivered records, `among` leaves out all but these uuids. `after` is the uuid of the
        last record of the page before, `limit` the most records of this one. Raises ValueError when `after` is neither
        a UUIDv7 nor a call of the session.
        """
        view = self.view(session_id)
        if view is None:
            return None
        calls = view.calls
        if after is not None:
            start = _key(after, calls)
            calls = [call for call in calls if call.key > start]
        if among is not None:
            calls = [call for call in calls if call.uuid in among]
        records = view.records(calls, _ALL if include == "all" else DELIVERED)
        return CompletionsPage(itertools.islice(records, limit), view)

    def other_records(self, session_id: str, known: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """What the committed and undelivered records of a session say, with their uuids, but those of `known` uuids."""
        view = self.view(session_id)
        if view is None:
            return
        for call in view.calls:
            if call.state >= State.UNDELIVERED and call.uuid not in known:
                record = view.record(call)
                if record is not None:
                    yield call.uuid, record.value
                del record

    def record(self, session_id: str, uuid: str) -> bytes | None:
        """The bytes of one record, delivered or not, or the placeholder of a lost call; None when there is none."""
        view = self.view(session_id)
        if view is not None:
            for call in view.calls:
                if call.uuid == uuid:
                    record = view.record(call)
                    return record.data if record else None
        return None

    def summary(self, session_id: str) -> SessionSummary | None:
        """What `sessions` tells of one session; None when it has no calls."""
        view = self.view(session_id)
        if view is None or not view.calls:
            return None
        first, last = view.calls[0].key, view.calls[-1].key
        return SessionSummary(
            session_id=session_id,
            parent_session_id=view.parent(),
            calls=len(view.calls),
            first_call_at=iso_time(ticks_of_prefix(first)),
            last_call_at=iso_time(ticks_of_prefix(last)),
            accounting=view.accounting(),
            sealed=view.seal is not None,
            faults=len(view.faults),
            cursor=first,
        )

    def sessions(self, after: str | None = None, limit: int | None = None) -> Iterator[SessionSummary]:
        """All sessions that have calls, by their first call.

        `after` is the `cursor` of the last one of the page before. A directory that cannot be read is logged and
        left out.
        """
        firsts = sorted(self.catalogue.first_calls())
        remaining = (session_id for key, session_id in firsts if after is None or key > after)
        return itertools.islice(filter(None, map(self._readable_summary, remaining)), limit)

    def _readable_summary(self, session_id: str) -> SessionSummary | None:
        try:
            return self.summary(session_id)
        except OSError as error:
            log.warning("session %r cannot be read: %s", session_id, error)
            return None

    def view(self, session_id: str) -> SessionView | None:
        """One look at a session; None for an unknown or deleted one."""
        listing = self.catalogue.listing(session_id)
        if listing is None:
            return None
        own = self._own_writer.name if self._own_writer else None
        return SessionView(session_id, listing, self.catalogue, self._writers, own)


def _key(uuid: str, calls: list[Call]) -> str:
    if ticks_of(uuid) is not None:
        return uuid
    for call in calls:
        if call.uuid == uuid:
            return call.key
    raise ValueError(f"no call {uuid!r} in this session to continue after")
