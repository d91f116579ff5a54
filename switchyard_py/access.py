"""Who may call and who may read: the keys a request brings, held against the section `auth` of the bundle.

Keys are compared in constant time and with every known one, so that the time an answer takes tells nothing of them.
An API key may also name the session of its call, `sycap-session:<id>`. Where the bundle has session secrets only a
signed one counts, `sycap-session:<id>.<mac>`: it opens that session to its holder, for calls and for nothing else.
"""

import base64
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from switchyard_py.config import SESSION_KEY_MARKER, AuthSettings
from switchyard_py.errors import Kind, RequestRefused
from switchyard_py.sessions import BLANKS

KEY_HEADERS = ("x-switchyard-api-key", "authorization", "x-api-key")
"""Where keys are looked for, in order of rank; in `authorization` after the word `Bearer`."""

# Of the 32 bytes of SHA-256 half are enough: a guess must hit 128 bits.
_MAC_BYTES = 16
# So that a signature made with the same secret for another purpose is no session key.
_PURPOSE = b"switchyard session key 1\0"


@dataclass(frozen=True, slots=True)
class Admission:
    """What the keys of a call allow: `session_id` is the session its session key names, None without one."""

    session_id: str | None = None
    bound: bool = False
    """The session key is all the call has: it may belong to no other session."""

    def check(self, session_id: str | None) -> None:
        """Raises RequestRefused when the call may not belong to the session `session_id`."""
        if self.bound and session_id != self.session_id:
            text = (
                "The key of this call is for one session, and the call names another one: "
                "leave that out, or send a caller key."
            )
            raise RequestRefused(Kind.PERMISSION_DENIED, text)


class Access:
    """The keys of one bundle. Headers are those of `sessions.header_values`."""

    def __init__(self, auth: AuthSettings) -> None:
        self._caller_keys = _encoded(auth.caller_keys)
        self._reader_keys = _encoded(auth.reader_keys)
        self._session_secrets = _encoded(auth.session_secrets)

    def admit_caller(self, headers: Mapping[str, str]) -> Admission:
        """Let a model call in.

        Raises:
            RequestRefused: caller keys are asked for and it brings neither one nor a signed session key; or it brings
                a session key that is not signed where session keys are.
        """
        keys = _keys(headers)
        session_id = self._session_named_by(keys)
        if not self._caller_keys or _any_known(keys, self._caller_keys):
            return Admission(session_id)
        if session_id is not None and self._session_secrets:
            return Admission(session_id, bound=True)
        raise _refusal("caller key" if not self._session_secrets else "caller key or the signed key of a session", keys)

    def admit_reader(self, headers: Mapping[str, str]) -> None:
        """Let a request in that reads, seals or deletes sessions, or reads counts.

        Raises:
            RequestRefused: reader keys are asked for and it brings none.
        """
        keys = _keys(headers)
        if self._reader_keys and not _any_known(keys, self._reader_keys):
            raise _refusal("reader key", keys)

    def _session_named_by(self, keys: Iterable[str]) -> str | None:
        """The session that the first session key names."""
        session_id = None
        for key in keys:
            if not key.startswith(SESSION_KEY_MARKER):
                continue
            named = key.removeprefix(SESSION_KEY_MARKER).strip(BLANKS)
            if self._session_secrets:
                named = self._verified(named)
            session_id = session_id or named or None
        return session_id

    def _verified(self, signed: str) -> str:
        """The session id out of `<id>.<mac>`; ids may hold dots. Raises RequestRefused: no secret here made the mac."""
        session_id, _, mac = signed.rpartition(".")
        if not _any_known([mac], [_mac(session_id, secret) for secret in self._session_secrets]):
            text = (
                "The session key is not signed by this proxy. `switchyard sessions key ID` makes one; "
                "without its signature a session key names no session here."
            )
            raise RequestRefused(Kind.INVALID_API_KEY, text)
        return session_id


def signed_session_key(session_id: str, secret: str) -> str:
    """The API key that admits its holder to the calls of one session. `session_id` is one of `sessions.checked_id`."""
    return f"{SESSION_KEY_MARKER}{session_id}.{_mac(session_id, secret.encode()).decode()}"


def _mac(session_id: str, secret: bytes) -> bytes:
    digest = hmac.digest(secret, _PURPOSE + session_id.encode(), "sha256")
    return base64.urlsafe_b64encode(digest[:_MAC_BYTES]).rstrip(b"=")


def _keys(headers: Mapping[str, str]) -> list[str]:
    """The API keys that a request brings."""
    keys = []
    for name in KEY_HEADERS:
        key = headers.get(name, "")
        if name == "authorization":
            scheme, _, token = key.partition(" ")
            key = token.strip(BLANKS) if scheme.lower() == "bearer" else ""
        if key:
            keys.append(key)
    return keys


def _any_known(keys: Iterable[str], known: Iterable[bytes]) -> bool:
    found = False
    for key in keys:
        given = key.encode()
        for one in known:
            found |= hmac.compare_digest(given, one)
    return found


def _encoded(secrets: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(secret.encode() for secret in secrets)


def _refusal(wanted: str, keys: list[str]) -> RequestRefused:
    found = "The key of this request is not one that is known here" if keys else "This request brings no key"
    text = f"{found}: send a {wanted} as `Authorization: Bearer`, `x-api-key` or `x-switchyard-api-key`."
    return RequestRefused(Kind.INVALID_API_KEY, text)
