"""What a target must be shown to let the proxy in, and what nobody else may see of it."""

import base64
import json
from typing import AnyStr
from urllib.parse import unquote, urlsplit

from switchyard_py.config import Target
from switchyard_py.config.settings import HIDDEN

# Shorter ones, such as EMPTY and dummy, are words of ordinary error texts, and no secrets.
_SHORTEST_HIDDEN = 8
_LONGEST_ERROR = 1024 * 1024


def target_headers(target: Target) -> list[tuple[str, str]]:
    """The target's key as a bearer token, and its `extra_headers`, which may replace it."""
    headers = {"accept-encoding": "identity"}
    if target.api_key:
        headers["authorization"] = f"Bearer {target.api_key}"
    headers.update((name.lower(), value) for name, value in target.extra_headers.items())
    return list(headers.items())


def hide_credentials(said: AnyStr, target: Target) -> AnyStr:
    """What an engine said in an error, with the target's key, header values and URL password replaced by `***`.

    Values of at least 8 characters are found, whole, as they are and as JSON text.
    """
    if isinstance(said, bytes):
        return _hide(said.decode(errors="surrogateescape"), target).encode(errors="surrogateescape")
    return _hide(said, target)


def hide_credentials_in_error(data: bytes, target: Target) -> bytes:
    """The same for bytes that may be an error; those without a key `error`, or too long for one, are left alone."""
    return hide_credentials(data, target) if len(data) <= _LONGEST_ERROR and b'"error"' in data else data


def _hide(text: str, target: Target) -> str:
    secrets = {form for secret in _secrets(target) if len(secret) >= _SHORTEST_HIDDEN for form in _spellings(secret)}
    # A secret may be part of another one.
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _secrets(target: Target) -> set[str]:
    secrets = {target.api_key or "", *target.extra_headers.values()}
    for name, value in target.extra_headers.items():
        if name.lower().endswith("authorization"):
            secrets.add(value.partition(" ")[2])
    url = urlsplit(target.base_url)
    if url.password:
        user, password = unquote(url.username or ""), unquote(url.password)
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        secrets.update((url.password, password, basic))
    return secrets


def _spellings(secret: str) -> set[str]:
    return {secret, *(json.dumps(secret, ensure_ascii=ascii)[1:-1] for ascii in (False, True))}
