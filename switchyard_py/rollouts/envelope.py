"""The records of a session out of the bytes of its envelope, one by one as they arrive.

An envelope is cut where a record can begin, and a piece that is JSON is a record: no text of a JSON object is the
beginning of another one's. What is no envelope with records of one make is read whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from switchyard_py.rollouts.refusal import Refusal, Rule
from switchyard_py.strictjson import decode

_COMPLETIONS = re.compile(rb'"completions"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*')
_FIRST_KEY = re.compile(rb'\{[ \t\r\n]*"[^"\\]*"[ \t\r\n]*:')
_MOST_HEAD_BYTES = 65536


def check_envelope(envelope: object, session_id: str | None) -> dict[str, Any]:
    """The envelope of a session (of any, if None). Raises Refusal: E1 to E3, or E4 where completions is no list."""
    if not isinstance(envelope, dict):
        raise Refusal(Rule.E1, "the envelope is not an object")
    if envelope.get("schema_version") != 1:
        raise Refusal(Rule.E2, f"its schema version is {envelope.get('schema_version')!r}")
    given = envelope.get("session_id")
    if not isinstance(given, str) or (session_id is not None and given != session_id):
        raise Refusal(Rule.E3, f"it is of the session {given!r}" + (f", not {session_id!r}" if session_id else ""))
    if not isinstance(envelope.get("completions"), list):
        raise Refusal(Rule.E4, "completions is not a list")
    return envelope


class EnvelopeReader:
    """Reads one envelope from chunks of its bytes. Memory is one record and one chunk.

    `session_id` is known when the first record is; `rest` holds the other keys of the envelope after the last one.
    """

    def __init__(self, chunks: Iterable[bytes], session_id: str | None) -> None:
        self.session_id = session_id
        self.rest: dict[str, Any] = {}
        self._chunks = iter(chunks)
        self._buffer = bytearray()

    def records(self) -> Iterator[Any]:
        """The values of the records. Raises Refusal: E1 to E3, as late as the bytes allow, or E4 for no list."""
        head = self._read_head()
        if head is not None:
            yield from self._split()
        try:
            envelope = check_envelope(decode(self._whole(head or b"")), self.session_id)
        except ValueError as error:
            raise Refusal(Rule.E1, f"the envelope is not JSON: {error}") from None
        self.session_id = envelope["session_id"]
        yield from envelope.pop("completions")
        self.rest = envelope

    def _read_head(self) -> bytes | None:
        """Everything before the first record, None (and nothing taken) unless the rest can be read record by record."""
        while (match := _COMPLETIONS.search(self._buffer)) is None and len(self._buffer) < _MOST_HEAD_BYTES:
            if not self._read_more():
                break
        if match is None:
            return None
        head = bytes(self._buffer[: match.end()])
        try:
            known: dict[str, Any] = decode(head + b"]}")
        except ValueError:
            return None
        if known.get("completions") != []:
            return None
        if {"schema_version", "session_id"} <= known.keys():
            self.session_id = check_envelope(known, self.session_id)["session_id"]
        if self.session_id is None:
            return None
        del self._buffer[: match.end()]
        return head

    def _split(self) -> Iterator[Any]:
        """All records but the last, which stays in the buffer with what follows."""
        while (key := _FIRST_KEY.match(self._buffer)) is None:
            if len(self._buffer) >= _MOST_HEAD_BYTES or not self._read_more():
                return
        boundary = re.compile(rb"\}([ \t\r\n]*,[ \t\r\n]*)" + re.escape(key.group()))
        searched = 0
        while True:
            match = boundary.search(self._buffer, searched)
            if match is None:
                # A boundary may lie across two chunks.
                searched = max(searched, len(self._buffer) - len(key.group()) - 64)
                if not self._read_more():
                    return
                continue
            end = match.start(1)
            searched = end
            try:
                record = decode(bytes(memoryview(self._buffer)[:end]))
            except ValueError:
                continue
            del self._buffer[: match.end(1)]
            searched = 0
            yield record
            del record

    def _read_more(self) -> bool:
        chunk = next(self._chunks, None)
        self._buffer += chunk or b""
        return chunk is not None

    def _whole(self, head: bytes) -> bytes:
        """The envelope without the records that were cut off."""
        self._buffer[:0] = head
        while self._read_more():
            pass
        whole = bytes(self._buffer)
        self._buffer.clear()
        return whole
