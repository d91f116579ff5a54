"""Names on disk: the directory of a session and the files of a call.

A call's file is `<uuid>.<suffix>`. The suffix is the call's state; where a crash left two files of one uuid, the state
that comes later in `State` is the true one.
"""

from __future__ import annotations

import enum
import hashlib
import re
from typing import Literal

SESSIONS = "sessions"
WRITERS = "writers"
CLOSED = "closed"

Suffix = Literal[".open", ".failed", ".lost", ".undelivered", ".json"]

_READABLE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class State(enum.IntEnum):
    """The state of a call, in the order in which a later one overrules an earlier one."""

    OPEN = 0
    FAILED = 1
    LOST = 2
    UNDELIVERED = 3
    COMMITTED = 4

    @property
    def suffix(self) -> Suffix:
        return _SUFFIXES[self]


_SUFFIXES: dict[State, Suffix] = {
    State.OPEN: ".open",
    State.FAILED: ".failed",
    State.LOST: ".lost",
    State.UNDELIVERED: ".undelivered",
    State.COMMITTED: ".json",
}
_STATES: dict[str, State] = {suffix: state for state, suffix in _SUFFIXES.items()}


def session_directory(session_id: str) -> str:
    """The directory that calls of a session are written to: the id itself when it is harmless, else its SHA-256.

    Raises ValueError for an id that is empty or has lone surrogates.
    """
    if not session_id:
        raise ValueError("a session id is empty")
    if is_readable(session_id):
        return session_id
    return digest_directory(session_id)


def digest_directory(session_id: str) -> str:
    """The directory the original proxy gave to a session: always the SHA-256 of the id."""
    return hashlib.sha256(session_id.encode()).hexdigest()


def is_readable(name: str) -> bool:
    """Whether a name can only be a session id as it is. Digests are not, so no id can name another's directory."""
    return _READABLE.fullmatch(name) is not None and not is_digest(name)


def is_digest(name: str) -> bool:
    return _DIGEST.fullmatch(name) is not None


def state_of_suffix(suffix: Suffix) -> State:
    return _STATES[suffix]


def call_file(uuid: str, state: State) -> str:
    return uuid + _SUFFIXES[state]


def temporary_file(uuid: str, writer: str) -> str:
    """A name that is no state and tells whose it is: one call of one writer has at most one such file at a time."""
    return f"{uuid}@{writer}.tmp"


def writer_of_temporary(name: str) -> str | None:
    """The writer of a temporary file, None for any other file."""
    stem, dot, suffix = name.rpartition(".")
    _, at, writer = stem.partition("@")
    return writer if at and dot + suffix == ".tmp" else None


def parse_call_file(name: str) -> tuple[str, State] | None:
    """The uuid and state a file name stands for, None for any other file."""
    uuid, dot, suffix = name.rpartition(".")
    state = _STATES.get(dot + suffix)
    return (uuid, state) if uuid and state is not None else None
