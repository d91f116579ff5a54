"""One look at a session: its calls in order, their records, and an account in which no call is missing.

begun = valid + invalid + undelivered + lost + failed + open + abandoned, from one listing of the directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from switchyard_py.store.catalogue import Call, Catalogue, Listing
from switchyard_py.store.intent import failure_reason
from switchyard_py.store.names import State
from switchyard_py.store.records import Fault, FaultyRecord, Record, UnreadableRecord, placeholder
from switchyard_py.store.uuids import iso_time, ticks_of_prefix
from switchyard_py.store.writers import is_alive

Fate = Literal["valid", "invalid", "undelivered", "lost", "failed", "open", "abandoned"]

_FATES: tuple[Fate, ...] = ("valid", "invalid", "undelivered", "lost", "failed", "open", "abandoned")
_FATE_OF_STATE: dict[State, Fate] = {State.FAILED: "failed", State.LOST: "lost", State.UNDELIVERED: "undelivered"}


class SessionView:
    """The calls of a session as one listing showed them. What is read later can only move a call to the state it has
    been put in since."""

    def __init__(
        self, session_id: str, listing: Listing, catalogue: Catalogue, writers: str, own_writer: str | None
    ) -> None:
        """`writers` is the directory of writers; calls of `own_writer` are open without a look."""
        self.session_id = session_id
        self.calls = listing.calls
        self.seal = listing.seal
        self.faults: dict[str, Fault] = {}
        """By file name: what could not be served of what was read so far."""
        self._catalogue = catalogue
        self._writers = writers
        self._alive: dict[str, bool] = {} if own_writer is None else {own_writer: True}

    def records(self, calls: list[Call], states: frozenset[State]) -> Iterator[Record]:
        """The records of those calls that are in one of the states; faulty ones are left out and named in `faults`."""
        for call in calls:
            if call.state in states:
                record = self.record(call)
                if record is not None and call.state in states:
                    yield record
                del record  # so that it and the next one are not in memory together

    def record(self, call: Call) -> Record | None:
        """The record of a call, or the placeholder of a lost one; None when there is none to be served."""
        intent = None
        try:
            if call.state >= State.UNDELIVERED:
                return self._catalogue.record(call, self.session_id)
            if call.state is State.LOST:
                intent = self._catalogue.intent(call, self.session_id)
        except FaultyRecord as reason:
            self._report(call, reason)
        if call.state is State.LOST:  # with or without its intent, it must mask the session
            return placeholder(self.session_id, call.uuid, iso_time(ticks_of_prefix(call.key)), intent)
        return None

    def accounting(self) -> dict[str, int]:
        """Number of calls by fate, after `begun`, their sum. A faulty record counts as invalid."""
        account = {"begun": len(self.calls)} | dict.fromkeys(_FATES, 0)
        for call in self.calls:
            account[self._fate(call)] += 1
        return account

    def failures(self) -> Iterator[tuple[str, str]]:
        """The uuid of each failed call, and what its agent was told or why it was told nothing."""
        for call in self.calls:
            if call.state is State.FAILED:
                with contextlib.suppress(UnreadableRecord):
                    yield call.uuid, failure_reason(self._catalogue.read(call)) or "its file does not say why"

    def open_calls(self) -> int:
        """Calls that have not ended and whose writer lives."""
        return sum(call.state is State.OPEN and self._fate_of_open(call) == "open" for call in self.calls)

    def parent(self) -> str | None:
        """The parent session that the first call in call order names that names any."""
        for call in self.calls:
            try:
                parent = self._catalogue.origin(call, self.session_id).parent_session_id
            except FaultyRecord:
                continue
            if parent is not None:
                return parent
        return None

    def _report(self, call: Call, reason: FaultyRecord) -> None:
        self.faults[call.name] = self._catalogue.report(call, reason)

    def _fate(self, call: Call) -> Fate:
        if call.state is State.OPEN:
            return self._fate_of_open(call)
        if call.state is State.COMMITTED and call.name not in self.faults:
            try:
                header = self._catalogue.header(call, self.session_id)
            except FaultyRecord as reason:
                self._report(call, reason)
            else:
                if call.state is State.COMMITTED:
                    return "valid" if header.is_valid else "invalid"
        return _FATE_OF_STATE.get(call.state, "invalid")

    def _fate_of_open(self, call: Call) -> Fate:
        if call.sealed:
            return "abandoned"
        try:
            if self._lives(self._catalogue.intent(call, self.session_id).writer):
                return "open"
            # A writer that ended the call and signed out after the listing has left no such file behind.
            self._catalogue.intent(call, self.session_id)
        except UnreadableRecord:
            return "open"  # it has ended since it was listed, or nobody can tell
        except FaultyRecord as reason:
            self._report(call, reason)
        return "abandoned"

    def _lives(self, writer: str) -> bool:
        if writer not in self._alive:
            self._alive[writer] = is_alive(self._writers, writer)
        return self._alive[writer]
