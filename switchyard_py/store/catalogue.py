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
from typing import TypeVar

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
)
from switchyard_py.store.records import Fault, FaultyRecord, Header, UnreadableRecord, check_record, read_header
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
    proxy's) the time of `captured_at` in the same form, then the name."""

    uuid: str
    state: State
    directory: str
    key: str = ""

    @property
    def name(self) -> str:
        return call_file(self.uuid, self.state)

    @property
    def path(self) -> str:
        return os.path.join(self.directory, self.name)


class Catalogue:
    """Reads the directories under `sessions`. Headers of records, which never change, are kept up to a bound."""

    def __init__(self, sessions: str, filesystem: Filesystem) -> None:
        self.sessions = sessions
        self.faulty_files = 0
        """Files found faulty so far, each counted and logged once."""
        self._filesystem = filesystem
        self._headers: dict[tuple[str, str], Header] = {}
        self._digests: dict[str, str] = {}
        self._faulty: dict[str, None] = {}
        self._lock = threading.Lock()

    def directories(self, session_id: str) -> list[str]:
        """Where a session can lie, the place it is written to first."""
        names = dict.fromkeys((session_directory(session_id), digest_directory(session_id)))
        return [os.path.join(self.sessions, name) for name in names]

    def calls(self, session_id: str) -> list[Call] | None:
        """All calls of a session in call order, each once, in its latest state; None when it has no directory."""
        return self._calls(self.directories(session_id), session_id)

    def first_calls(self) -> Iterator[tuple[str, str]]:
        """The key of the first call and the id of each session that has calls, in no order.

        What cannot be read is logged and left out.
        """
        try:
            names = self._filesystem.names(self.sessions)
        except FileNotFoundError:
            return
        for name in names:
            try:
                session_id = name if is_readable(name) else self._session_of_digest(name)
                calls = self.calls(session_id) if session_id else None
            except OSError as error:
                log.warning("session directory %s cannot be read: %s", name, error)
                continue
            if session_id and calls:
                yield calls[0].key, session_id

    def read(self, call: Call) -> bytes:
        """The content of a call's file. Raises UnreadableRecord.

        A record that was withdrawn since it was listed changes the state of `call`.
        """
        try:
            return self._filesystem.read(call.path)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and call.state is State.COMMITTED:
                withdrawn = replace(call, state=State.UNDELIVERED)
                with contextlib.suppress(OSError):
                    data = self._filesystem.read(withdrawn.path)
                    call.state = withdrawn.state
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

    def record(self, call: Call, session_id: str) -> bytes:
        """The bytes of a call's record, all of them checked. Raises FaultyRecord."""
        data = self.read(call)
        header = check_record(data)
        header.check_origin(session_id, call.uuid)
        self._keep(call, header)
        return data

    def intent(self, call: Call, session_id: str | None) -> CallIntent:
        """The intent of a call that has no record. Raises FaultyRecord."""
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
                    found[uuid] = Call(uuid, state, directory)
        for call in found.values():
            call.key = call.uuid if ticks_of(call.uuid) is not None else self._key_of_other_name(call, session_id)
        return sorted(found.values(), key=lambda call: call.key) if exists else None

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


def _keep_bounded(kept: dict[K, V], key: K, value: V, limit: int) -> None:
    """Add an entry and forget the oldest when there are more than `limit`."""
    kept[key] = value
    if len(kept) > limit:
        del kept[next(iter(kept))]
