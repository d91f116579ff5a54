"""Kinds of values in the file: each a type that says in plain words what it wants when it gets something else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from switchyard_py.config.settings import SESSION_KEY_MARKER

_ROUTE_TYPES = {
    "model": "model",
    "direct": "model",
    "target": "model",
    "llm_target": "model",
    "passthrough": "passthrough",
}
_SIZE_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")
# Set by the HTTP client: a second value would garble the framing or the decoding of the reply.
_CLIENT_HEADERS = frozenset(
    ("accept-encoding", "connection", "content-length", "content-type", "expect", "te", "trailer", "transfer-encoding")
)
# Short enough for keys made by hand, long enough not to be guessed over a network.
_SHORTEST_KEY = 8
# Whoever has one signed key can try secrets without asking anybody.
_SHORTEST_SESSION_SECRET = 16
# Their values are credentials, and session ids are stored and listed in clear.
_CREDENTIAL_HEADERS = frozenset(("authorization", "cookie", "proxy-authorization", "x-api-key", "x-switchyard-api-key"))


def problem(text: str) -> PydanticCustomError:
    """Return the error to raise in a validator; `text` says what is wrong and what to write instead."""
    return PydanticCustomError("problem", "{text}", {"text": text})


def _nothing_as_mapping(value: Any) -> Any:
    # A key whose children are all commented out reads as null.
    return {} if value is None else value


def _nothing_as_list(value: Any) -> Any:
    return [] if value is None else value


def _number(value: Any) -> Any:
    # To Python `true` is the number 1.
    if isinstance(value, bool):
        raise problem("must be a number")
    return value


def _base_url(url: str) -> str:
    example = "write one such as http://127.0.0.1:8000/v1"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  raises for a port that is no number
    except ValueError:
        raise problem(f"is not a URL: {example}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not re.fullmatch(r"[\x21-\x7e]*", url):
        raise problem(f"must be an http:// or https:// URL with a host: {example}")
    if "?" in url or "#" in url:
        raise problem(f"must have no query and no fragment: {example}")
    path = re.sub(r"/+(?:chat/completions|responses)$", "", parts.path.rstrip("/")).rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def target_key_fault(text: str) -> str | None:
    """Say why the key of a target cannot be used, and what to write instead; None if it can."""
    if re.fullmatch(r"[\x20-\x7e]*", text):
        return None
    return "must be printable ASCII without line breaks: it is sent in a header"


def caller_key_fault(text: str) -> str | None:
    """The same for a key that callers or readers send."""
    if text.startswith(SESSION_KEY_MARKER):
        return f"begins with {SESSION_KEY_MARKER}, which marks the keys of sessions: write another one"
    return _own_secret_fault(text, _SHORTEST_KEY)


def session_secret_fault(text: str) -> str | None:
    """The same for a secret that signs session keys."""
    return _own_secret_fault(text, _SHORTEST_SESSION_SECRET)


def _own_secret_fault(text: str, shortest: int) -> str | None:
    if not re.fullmatch(r"[\x21-\x7e]*", text):
        return "must be printable ASCII without blanks and line breaks"
    if len(text) < shortest:
        return f"must have at least {shortest} characters: make one with `openssl rand -hex 24`"
    return None


def _secret(text: str) -> str | None:
    _refuse(target_key_fault(text))
    return text or None


def _caller_key(text: str) -> str:
    _refuse(caller_key_fault(text))
    return text


def _session_secret(text: str) -> str:
    _refuse(session_secret_fault(text))
    return text


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise problem(fault)


def _variable(name: str) -> str:
    # Not repeated: people write the secret itself here.
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise problem("must be the name of an environment variable, which holds the key")
    return name


def _some(values: tuple[str, ...]) -> tuple[str, ...]:
    # An empty list could mean nobody or anybody.
    if not values:
        raise problem("must not be an empty list: give one, or remove the key to ask nobody for one")
    return values


def _headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise problem(f"{name!r} is not a header name")
        if name.lower() in _CLIENT_HEADERS:
            raise problem(f"{name} is set by the proxy itself: remove it")
        if not _HEADER_VALUE.fullmatch(value):
            raise problem(f"the value of {name} holds a line break or control character")
    return headers


def _format(text: str) -> str:
    if text not in ("openai", "auto"):
        raise problem(f"the format {text!r} is not offered: engines are called over chat completions, write openai")
    return "openai"


def _route_type(text: str) -> str:
    try:
        return _ROUTE_TYPES[text.lower().replace("-", "_")]
    except KeyError:
        raise problem(f"the route type {text!r} is not offered: write model or passthrough") from None


def _size(value: Any) -> Any:
    if not isinstance(value, str):
        return _number(value)
    match = re.fullmatch(r"(\d{1,18})\s*([A-Za-z]*)", value.strip(), re.ASCII)
    if not match or match[2].lower() not in _SIZE_UNITS:
        raise problem("must be a size in bytes, such as 134217728 or 128MiB")
    return int(match[1]) * _SIZE_UNITS[match[2].lower()]


def _native_ids(names: tuple[str, ...]) -> tuple[str, ...]:
    lowered = tuple(name.lower() for name in names)
    for name in lowered:
        if not _HEADER_NAME.fullmatch(name):
            raise problem(f"{name!r} is not a header name")
        if name in _CREDENTIAL_HEADERS:
            raise problem(f"{name} carries credentials, and session ids are stored in clear: name another header")
    return lowered


def _directory(value: Any) -> Path:
    try:
        if isinstance(value, str) and value and "\0" not in value:
            return Path(value).expanduser()
    except RuntimeError:  # `~name` of no user
        pass
    raise problem("must be the name of a directory")


def _access_log(value: Any) -> str | None:
    if isinstance(value, bool):
        return "-" if value else None
    if isinstance(value, str) and value == "-":
        return value
    try:
        return str(_directory(value))
    except PydanticCustomError:
        raise problem("must be the name of a file, or true or - for standard error") from None


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


Text = Annotated[str, Field(min_length=1)]
Secret = Annotated[str, AfterValidator(_secret)]
Variable = Annotated[str, AfterValidator(_variable)]
Variables = Annotated[tuple[Variable, ...], AfterValidator(_some)]
CallerKeys = Annotated[tuple[Annotated[str, AfterValidator(_caller_key)], ...], AfterValidator(_some)]
SessionSecrets = Annotated[tuple[Annotated[str, AfterValidator(_session_secret)], ...], AfterValidator(_some)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
Format = Annotated[str, AfterValidator(_format)]
RouteType = Annotated[str, AfterValidator(_route_type)]
Seconds = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_number), Field(ge=1)]
CountOrZero = Annotated[int, BeforeValidator(_number), Field(ge=0)]
Port = Annotated[int, BeforeValidator(_number), Field(ge=0, le=65535)]
Size = Annotated[int, BeforeValidator(_size), Field(ge=1)]
SizeOrZero = Annotated[int, BeforeValidator(_size), Field(ge=0)]
Body = Annotated[dict[str, Any], BeforeValidator(_nothing_as_mapping)]
Headers = Annotated[dict[str, str], BeforeValidator(_nothing_as_mapping), AfterValidator(_headers)]
Names = Annotated[tuple[Text, ...], BeforeValidator(_nothing_as_list)]
HeaderNames = Annotated[tuple[Text, ...], AfterValidator(_native_ids)]
Directory = Annotated[Path, BeforeValidator(_directory)]
AccessLog = Annotated[str | None, BeforeValidator(_access_log)]
Durability = Literal["process", "power"]
LogLevel = Annotated[Literal["critical", "error", "warning", "info", "debug", "trace"], BeforeValidator(_lower)]
