"""Which session a call belongs to.

The first non-empty id wins, in the order of `identify`. Ids a trainer assigned come before those a harness makes up on
its own, because harnesses always send theirs.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from switchyard_py.engines.vllm import SESSION_FIELD
from switchyard_py.errors import Kind, RequestRefused
from switchyard_py.rawjson import Slice, decode

MAX_ID_LENGTH = 512
# Only these are trimmed: any other white space is part of an id, or a control character and refused.
BLANKS = " \t"

# The hyphenated twin exists because reverse proxies drop header names with underscores.
ASSIGNED_HEADERS = ("proxy_x_session_id", "proxy-x-session-id", "x-switchyard-session-id")
GENERIC_HEADER = "x-session-id"
AFFINITY_HEADER = "x-session-affinity"
PARENT_HEADER = "x-parent-session-id"
NATIVE_HEADERS = (
    "x-litellm-session-id",
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "x-opencode-session",
    GENERIC_HEADER,
)
SUBAGENT_HEADERS = (
    "x-claude-code-agent-id",
    "x-claude-code-parent-agent-id",
    "thread-id",
    "x-codex-parent-thread-id",
    "x-codex-window-id",
    "x-openai-subagent",
)
GROUPING_FIELD = "prompt_cache_key"

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a call says of its origin. `session_id` is None for a call that belongs to no session."""

    session_id: str | None = None
    parent_session_id: str | None = None
    agent: dict[str, str] = field(default_factory=dict)
    """Ids a harness gave that did not become the session's: its own session id, sub-agent and thread ids."""


def identify(
    headers: Mapping[str, str],
    fields: Mapping[str, Slice],
    path_session: str | None = None,
    native_headers: tuple[str, ...] | None = None,
    *,
    key_session: str | None = None,
    reads_user_id: bool = False,
) -> Identity:
    """Find the session of a call from its headers (see `header_values`), body fields, base URL and API key.

    `key_session` is the session its API key names (see `Access.admit_caller`). `native_headers` replaces the built-in
    list of headers a harness sends on its own. With `reads_user_id` the session id inside the JSON text of
    `metadata.user_id` counts as such a header (Anthropic Messages only).

    Raises:
        RequestRefused: the id that won, or the parent's, is not usable.
    """
    native_names = NATIVE_HEADERS if native_headers is None else native_headers
    native = _native_ids(headers, native_names, fields if reads_user_id else {})
    session_id = _assigned_id(headers, fields, path_session) or key_session or next(iter(native.values()), None)
    agent = {name: value for name, value in native.items() if value != session_id}
    agent.update({name: headers[name] for name in SUBAGENT_HEADERS if headers.get(name)})
    group = _text(fields.get(GROUPING_FIELD))
    if group:
        agent[GROUPING_FIELD] = group
    parent = headers.get(PARENT_HEADER) or None
    return Identity(
        session_id=None if session_id is None else checked_id(session_id),
        parent_session_id=None if parent is None else checked_id(parent, "parent session id"),
        agent={name: value[:MAX_ID_LENGTH] for name, value in agent.items()},
    )


def header_values(headers: Headers) -> dict[str, str]:
    """Headers by lower-case name, trimmed: the first of equal names, as UTF-8 where the bytes are UTF-8."""
    values: dict[str, str] = {}
    for name, value in headers:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        values.setdefault(name.decode("latin-1").lower(), text.strip(BLANKS))
    return values


def checked_id(session_id: str, what: str = "session id") -> str:
    """The id without the blanks around it; `what` names it in the error.

    Raises:
        RequestRefused: it is empty, too long, `.` or `..`, or has control characters or lone surrogates.
    """
    session_id = session_id.strip(BLANKS)
    fault = None
    if not 1 <= len(session_id) <= MAX_ID_LENGTH:
        fault = f"it has {len(session_id)} characters"
    elif session_id in (".", ".."):
        fault = "it is a path step"
    elif any(character < " " or "\x7f" <= character <= "\x9f" for character in session_id):
        fault = "it has control characters"
    elif any("\ud800" <= character <= "\udfff" for character in session_id):
        fault = "it has lone surrogates"
    if fault is not None:
        text = f"The {what} cannot be used: {fault}. Use 1 to {MAX_ID_LENGTH} printable characters."
        raise RequestRefused(Kind.INVALID_SESSION, text)
    return session_id


def _assigned_id(headers: Mapping[str, str], fields: Mapping[str, Slice], path_session: str | None) -> str | None:
    """The session the trainer gave the call: by header or base URL, body field, or plain session header."""
    for name in ASSIGNED_HEADERS:
        if headers.get(name):
            return headers[name]
    if path_session and path_session.strip(BLANKS):
        return path_session
    if body := _text(fields.get(SESSION_FIELD)):
        return body
    generic = headers.get(GENERIC_HEADER)
    if generic and generic != headers.get(AFFINITY_HEADER):
        return generic
    return None


def _native_ids(headers: Mapping[str, str], names: Iterable[str], fields: Mapping[str, Slice]) -> dict[str, str]:
    """Session ids a harness made up, by the name of their place, in order of rank."""
    ids = {name: headers[name] for name in names if headers.get(name)}
    metadata = decode(fields.get("metadata"))
    user_id = metadata.get("user_id") if isinstance(metadata, dict) else None
    if isinstance(user_id, str) and user_id.startswith("{"):
        try:
            inner = json.loads(user_id)
        except (ValueError, RecursionError):
            inner = None
        session_id = inner.get("session_id") if isinstance(inner, dict) else None
        if isinstance(session_id, str) and session_id.strip(BLANKS):
            ids["metadata.user_id"] = session_id
    return ids


def _text(value: Slice | None) -> str | None:
    """A JSON string that is more than blanks, else None."""
    text = decode(value)
    return text if isinstance(text, str) and text.strip(BLANKS) else None
