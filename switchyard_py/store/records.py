"""Records as they lie on disk: what is checked before one is served, and what stands in for a lost one.

A record is never changed or serialised again here: its bytes are served as they are or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from switchyard_py.rawjson import check_utf8
from switchyard_py.store.intent import CallIntent
from switchyard_py.strictjson import decode

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that cannot be served: `name` within the session's directory, and why."""

    name: str
    reason: str


class FaultyRecord(Exception):
    """A file does not hold what its name says. `str()` is the reason."""


class UnreadableRecord(FaultyRecord):
    """A file could not be read, or is gone since it was listed; what it holds is not known."""


class Header(msgspec.Struct, frozen=True):
    """The fields of a record that an account needs; the others are skipped, not decoded."""

    schema_version: int
    uuid: str
    session_id: str
    captured_at: str
    is_valid: bool
    parent_session_id: str | None = None

    def check_origin(self, session_id: str | None, uuid: str) -> None:
        """Raise FaultyRecord unless this is a record of that session (of any, if None) and uuid."""
        if self.schema_version != SCHEMA_VERSION:
            raise FaultyRecord(f"foreign: schema version {self.schema_version} instead of {SCHEMA_VERSION}")
        if session_id is not None and self.session_id != session_id:
            raise FaultyRecord("foreign: a record of another session")
        if self.uuid != uuid:
            raise FaultyRecord("foreign: a record of another uuid")


@dataclass(frozen=True, slots=True)
class Record:
    """A record that may be served: its bytes, and what they say."""

    data: bytes
    value: dict[str, Any]


_decoder = msgspec.json.Decoder(Header)


def read_header(data: bytes) -> Header:
    """The header of a record, at a fraction of the cost of reading it all. Raises FaultyRecord."""
    try:
        check_utf8(data)  # of what it skips, the decoder looks at nothing but the syntax
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise FaultyRecord(f"not a record: {error}") from None
    except (ValueError, RecursionError) as error:
        raise FaultyRecord(f"corrupt: {error}") from None


def check_record(data: bytes) -> tuple[Header, Record]:
    """Like `read_header`, with every byte read as strictly as the readers of the record will."""
    try:
        value = decode(data)
    except ValueError as error:
        raise FaultyRecord(f"corrupt: {error}") from None
    try:
        return msgspec.convert(value, Header), Record(data, value)
    except msgspec.ValidationError as error:
        raise FaultyRecord(f"not a record: {error}") from None


def placeholder(session_id: str, uuid: str, began_at: str, intent: CallIntent | None) -> Record:
    """The record of a lost call, which no reader can take for a valid one.

    `began_at` (ISO 8601) stands in for what `intent` says; that is None when it cannot be read.
    """
    started_at = intent.started_at if intent else began_at
    value = {
        "schema_version": SCHEMA_VERSION,
        "uuid": uuid,
        "session_id": session_id,
        "parent_session_id": intent.parent_session_id if intent else None,
        "captured_at": started_at,
        "request_id": "",
        "model": "",
        "messages": [],
        "tools": [],
        "tool_choice": "auto",
        "token_count": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        "prompt_token_ids": None,
        "generation_token_ids": None,
        "generation_log_probs": None,
        "finish_reason": None,
        "is_valid": False,
        "call": {
            "dialect": intent.dialect if intent else None,
            "route": intent.route if intent else None,
            "target": intent.target if intent else None,
            "started_at": started_at,
            "invalid_reasons": ["lost"],
            "client": {"request_id": intent.request_id if intent else None, "user_agent": None},
        },
    }
    return Record(orjson.dumps(value), value)
