"""The intent of a call: the one JSON line that is on disk before anything is sent to an engine."""

from __future__ import annotations

import msgspec

__all__ = ["CallIntent", "decode_intent", "encode_failure", "encode_intent", "failure_reason"]


class CallIntent(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a call before it is sent.

    `digest` is equal for equal requests of the session, `started_at` UTC in ISO 8601. The store fills in `uuid` and
    `writer` when the call begins.
    """

    uuid: str = ""
    session_id: str
    parent_session_id: str | None = None
    writer: str = ""
    route: str
    target: str
    dialect: str
    request_id: str | None = None
    digest: str
    started_at: str


class _Failure(msgspec.Struct):
    reason: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(CallIntent)
_failure_decoder = msgspec.json.Decoder(_Failure)


def encode_intent(intent: CallIntent) -> bytes:
    """One JSON line. Raises ValueError when a text has lone surrogates."""
    return _encoder.encode(intent) + b"\n"


def decode_intent(line: bytes) -> CallIntent | None:
    """The intent a file of an unfinished, lost or failed call holds; None when it holds none."""
    try:
        return _decoder.decode(line)
    except (ValueError, RecursionError):
        return None


def encode_failure(intent: CallIntent, reason: str, seen: bytes | None) -> bytes:
    """The body of a failed call: the fields of its intent, why it failed, and what was seen of the reply.

    `seen` is kept as it is when it is JSON, else as text.
    """
    partial: object = None
    if seen is not None:
        try:
            msgspec.json.decode(seen, type=msgspec.Raw)
            partial = msgspec.Raw(seen)
        except ValueError:
            partial = seen.decode(errors="replace")
    body = msgspec.structs.asdict(intent) | {"reason": _storable(reason), "seen": partial}
    return _encoder.encode(body) + b"\n"


def failure_reason(body: bytes) -> str | None:
    """Why a call failed, None for what is no body of a failed call."""
    try:
        return _failure_decoder.decode(body).reason
    except (ValueError, RecursionError):
        return None


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()
