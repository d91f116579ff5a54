"""Where the proxy is: exactly `http://<host>:<port>`.

The model client inside NeMo Gym's agent containers makes its URL of a host and a port and nothing else, so whatever
more a URL says would be dropped there without a word. It is refused when the agent server starts instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address

MAX_PORT = 65535
_SCHEME = "http://"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_PORT = re.compile(r"0{0,9}[1-9][0-9]{0,4}")


class BaseURLRefused(ValueError):
    """The URL is not `http://<host>:<port>`. The text says why and repeats nothing of the URL: it may hold a secret."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the proxy's base URL {reason}: write http://<host>:<port>, such as http://10.0.0.5:4000")


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """A host, an IPv6 address in brackets, and a port. As text: the base URL, without a slash at its end."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_SCHEME}{self.host}:{self.port}"


def proxy_address(base_url: str) -> ProxyAddress:
    """Read a base URL; slashes behind the port are dropped. Raises BaseURLRefused."""
    if any(character.isspace() or not character.isprintable() for character in base_url):
        raise BaseURLRefused("holds blanks or control characters")
    if not base_url.startswith(_SCHEME):
        raise BaseURLRefused("does not begin with http:// (the agent's client speaks nothing else)")
    rest = base_url.removeprefix(_SCHEME)
    for mark, name in (("?", "a query"), ("#", "a fragment"), ("@", "a user")):
        if mark in rest:
            raise BaseURLRefused(f"has {name}")
    authority, _, path = rest.partition("/")
    if path.strip("/"):
        raise BaseURLRefused("has a path")
    host, colon, port = authority.rpartition(":")
    if not colon or port.endswith("]"):
        raise BaseURLRefused("names no port")
    if not host:
        raise BaseURLRefused("names no host")
    if not _is_host(host):
        raise BaseURLRefused("names a host that is neither a name nor an address (IPv6 goes in brackets)")
    if not (_PORT.fullmatch(port) and int(port) <= MAX_PORT):
        raise BaseURLRefused(f"has a port that is not a number from 1 to {MAX_PORT}")
    return ProxyAddress(host, int(port))


def _is_host(host: str) -> bool:
    if not (host.startswith("[") and host.endswith("]")):
        return _NAME.fullmatch(host) is not None
    try:
        IPv6Address(host[1:-1])
    except AddressValueError:
        return False
    return True
