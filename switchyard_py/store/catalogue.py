"""The calls of a session as its directories list them, and what each one's file says of it.

A session lies in the directory its id is given today and, where the original proxy wrote it, also in the one named by
the digest of its id: both are read, the first one is written.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from switchyard_py.store.closings import Closings, Seal
from switchyard_py.store.filesystem import Filesystem
from switchyard_py.store.intent import CallIntent, decode_intent
from switchyard_py.store.listing import file_names
from switchyard_py.store.names import (
    State,
    call_file,
    digest_directory,
    is_digest,
    is_readable,
    parse_call_file,
    session_directory,
    state_of_suffix,
)
from switchyard_py.store.records import Fault, FaultyRecord, Header, Record, UnreadableRecord, check_record, read_header
from switchyard_py.store.unmarked import UnmarkedLosses
from switchyard_py.store.uuids import prefix, ticks_of, ticks_of_iso_time, ticks_of_nanoseconds

log = logging.getLogger(__name__)

_HEADERS_KEPT = 50_000
_FAULTS_KEPT = 10_000
_SESSIONS_KEPT = 50_000

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Call:
    """One call of a session. `key` sorts in call order: the uuid, or for names that are no UUIDv7 (the original
    proxy's) the time of `captured_at` in the same form, then the name.

    A seal says what `state` is, for good, and `stored` is the state that the file is named by."""

    uuid: str
    state: State
    directory: str
    stored: State
    sealed: bool = False
    key: str = ""
    intent: CallIntent | None = None
    """Of a lost call that has no file yet."""

    @property
    def name(self) -> str:
        return call_file(self.uuid, self.stored)

    @property
    def path(self) -> str:
        return os.path.join(self.directory, self.name)


class Listing(NamedTuple):
    """The calls of a session in call order, each once, in its latest state, and the seal that says so, if one does."""

    calls: list[Call]
    seal: Seal | None


class Catalogue:
    """Reads the directories under `sessions`. Headers of records, which never change, are kept up to a bound."""

    def __init__(self, sessions: str, closings: Closings, filesystem: Filesystem, unmarked: UnmarkedLosses) -> None:
        self.sessions = sessions
        self.unmarked = unmarked
        self.faulty_files = 0
        """Files found faulty so far, each counted and logged once."""
        self._closings = closings
        self._filesystem = filesystem
        self._headers: dict[tuple[str, str], Header] = {}
        self._digests: dict[str, str] = {}
        self._faulty: dict[str, None] = {}
        self._lock = threading.Lock()

    def directories(self, session_id: str) -> list[str]:
        """Where a session can lie, the place it is written to first."""
        names = dict.fromkeys((session_directory(session_id), digest_directory(session_id)))
        return [os.path.join(self.sessions, name) for name in names]

    def listing(self, session_id: str) -> Listing | None:
        """All calls of a session; None when it was deleted, or there is nothing of it and no seal."""
        before = self._closings.find(session_id)
        calls = self._with_unmarked(session_id)
        # Before, because a seal names what was there when it was put; after, because the files of a session that is
        # being deleted vanish one by one.
        after = self._closings.find(session_id)
        if after is not None and after.deleted:
            return None
        if before is None:
            return None if calls is None else Listing(calls, None)
        if before.seal is None:
            return Listing(calls or [], None)
        return Listing(self._as_sealed(calls or [], before.seal, session_id), before.seal)

    def _with_unmarked(self, session_id: str) -> list[Call] | None:
        """The calls on disk, and those that are lost without a mark there; None when there is nothing of a session."""
        directories = self.directories(session_id)
        # First, because a loss is forgotten once it is marked.
        unmarked = self.unmarked.of(session_id)
        calls = self._calls(directories, session_id)
        if not unmarked:
            return calls
        known = {call.uuid for call in calls or ()}
        losses = [
            Call(intent.uuid, State.LOST, directories[0], State.LOST, key=intent.uuid, intent=intent)
            for intent in unmarked
            if intent.uuid not in known
        ]
        return sorted([*(calls or ()), *losses], key=lambda call: call.key)

    def first_calls(self) -> Iterator[tuple[str, str]]:
        """The key of the first call and the id of each session that has calls, in no order.

        What cannot be read is logged and left out.
        """
        unmarked = set(self.unmarked.sessions())
        try:
            names = self._filesystem.names(self.sessions)
        except FileNotFoundError:
            names = []
        for name in names:
            try:
                session_id = self.session_of(name)
                listing = self.listing(session_id) if session_id else None
            except OSError as error:
                log.warning("session directory %s cannot be read: %s", name, error)
                continue
            if session_id and listing and listing.calls:
                unmarked.discard(session_id)
                yield listing.calls[0].key, session_id
        for session_id in unmarked:
            listing = self.listing(session_id)
            if listing and listing.calls:
                yield listing.calls[0].key, session_id

    def session_of(self, name: str) -> str | None:
        """The session whose directory has that name; None when it has another one besides, or no file tells."""
        return name if is_readable(name) else self._session_of_digest(name)

    def read(self, call: Call) -> bytes:
        """The content of a call's file. Raises UnreadableRecord.

        A record withdrawn or delivered since it was listed changes the state of `call`, unless a seal says what it is.
        """
        try:
            return self._filesystem.read(call.path)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and call.stored >= State.UNDELIVERED:
                # Back again too: a withdrawn record may be delivered between two looks.
                other = State.UNDELIVERED if call.stored is State.COMMITTED else State.COMMITTED
                for moved in (replace(call, stored=other), call):
                    with contextlib.suppress(OSError):
                        data = self._filesystem.read(moved.path)
                        call.stored = moved.stored
                        if not call.sealed:
                            call.state = moved.stored
                        return data
            raise UnreadableRecord(f"unreadable: {error.strerror or 'input/output error'}") from None

    def header(self, call: Call, session_id: str | None) -> Header:
        """The header of a call that has a record. Raises FaultyRecord."""
        header = self._headers.get((call.directory, call.uuid))
        if header is None:
            header = read_header(self.read(call))
            header.check_origin(None, call.uuid)
            self._keep(call, header)
        header.check_origin(session_id, call.uuid)
        return header

    def record(self, call: Call, session_id: str) -> Record:
        """The record of a call, every byte of it checked. Raises FaultyRecord."""
        header, record = check_record(self.read(call))
        header.check_origin(session_id, call.uuid)
        self._keep(call, header)
        return record

    def intent(self, call: Call, session_id: str | None) -> CallIntent:
        """The intent of a call that has no record. Raises FaultyRecord."""
        if call.intent is not None:
            return call.intent
        intent = decode_intent(self.read(call))
        if intent is None:
            raise FaultyRecord("corrupt: no intent of a call")
        if intent.uuid != call.uuid or (session_id is not None and intent.session_id != session_id):
            raise FaultyRecord("foreign: an intent of another call")
        return intent

    def origin(self, call: Call, session_id: str | None) -> Header | CallIntent:
        """What a call's file says of its session, whatever its state. Raises FaultyRecord."""
        return self.header(call, session_id) if call.state >= State.UNDELIVERED else self.intent(call, session_id)

    def report(self, call: Call, reason: FaultyRecord) -> Fault:
        """Log and count a faulty file, the first time it is met."""
        with self._lock:
            if call.path not in self._faulty:
                _keep_bounded(self._faulty, call.path, None, _FAULTS_KEPT)
                self.faulty_files += 1
                log.warning("faulty file %s: %s", call.path, reason)
        return Fault(call.name, str(reason))

    def _calls(self, directories: Iterable[str], session_id: str | None) -> list[Call] | None:
        found: dict[str, Call] = {}
        exists = False
        for directory in directories:
            try:
                names = file_names(self._filesystem, directory)
            except (FileNotFoundError, NotADirectoryError):
                continue
            exists = True
            for uuid, state in filter(None, map(parse_call_file, names)):
                call = found.get(uuid)
                if call is None or call.state < state:
                    found[uuid] = Call(uuid, state, directory, stored=state)
        for call in found.values():
            self._place(call, session_id)
        return sorted(found.values(), key=_key) if exists else None

    def _as_sealed(self, found: list[Call], seal: Seal, session_id: str) -> list[Call]:
        """The calls that a seal names, whether or not their files are there, and those that it could not know of.

        An open one that it does not name never began: it was withdrawn, or its writer died before it could be.
        """
        rest = {call.uuid: call for call in found}
        calls = []
        for uuid, suffix in seal.calls.items():
            state = state_of_suffix(suffix)
            call = rest.pop(uuid, None)
            if call is None:
                call = Call(uuid, state, self.directories(session_id)[0], stored=state)
                self._place(call, session_id)
            call.state, call.sealed = state, True
            calls.append(call)
        return sorted([*calls, *(call for call in rest.values() if call.state is not State.OPEN)], key=_key)

    def _place(self, call: Call, session_id: str | None) -> None:
        call.key = call.uuid if ticks_of(call.uuid) is not None else self._key_of_other_name(call, session_id)

    def _session_of_digest(self, name: str) -> str | None:
        """The id whose digest names a directory, as the first of its files that tells; None when it is listed already
        under a readable name, or when no file tells."""
        if not is_digest(name):
            return None
        session_id = self._digests.get(name)
        if session_id is None:
            session_id = self._find_session(name)
            if session_id is None:
                return None
            with self._lock:
                _keep_bounded(self._digests, name, session_id, _SESSIONS_KEPT)
        if is_readable(session_id) and os.path.isdir(os.path.join(self.sessions, session_id)):
            return None
        return session_id

    def _find_session(self, name: str) -> str | None:
        for call in self._calls([os.path.join(self.sessions, name)], None) or ():
            try:
                session_id = self.origin(call, None).session_id
            except FaultyRecord as reason:
                self.report(call, reason)
                continue
            if digest_directory(session_id) == name:
                return session_id
            self.report(call, FaultyRecord("foreign: a call of another session"))
        return None

    def _keep(self, call: Call, header: Header) -> None:
        with self._lock:
            _keep_bounded(self._headers, (call.directory, call.uuid), header, _HEADERS_KEPT)

    def _key_of_other_name(self, call: Call, session_id: str | None) -> str:
        ticks = None
        if call.state >= State.UNDELIVERED:
            with contextlib.suppress(FaultyRecord):  # reported by whoever wants the record
                ticks = ticks_of_iso_time(self.header(call, session_id).captured_at)
        if ticks is None:
            try:
                ticks = ticks_of_nanoseconds(self._filesystem.modified_at(call.path))
            except OSError:
                ticks = 0
        return prefix(ticks) + call.uuid


def _key(call: Call) -> str:
    return call.key


def _keep_bounded(kept: dict[K, V], key: K, value: V, limit: int) -> None:
    """Add an entry and forget the oldest when there are more than `limit`."""
    kept[key] = value
    if len(kept) > limit:
        del kept[next(iter(kept))]
