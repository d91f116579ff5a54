"""The seam between a call and whatever HTTP client reaches the engine."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

_NO_STOPWATCH = nullcontext()


@dataclass(frozen=True, slots=True, repr=False)
class UpstreamRequest:
    """One request. `headers` go out as given; only Host and Content-Length are added. Has no repr: it holds keys.

    Credentials in the URL become Basic authorization unless a header brings its own.
    Timeouts are seconds, None is none: `connect_timeout` until the connection stands (name look-up and TLS included),
    `first_byte_timeout` from there until the reply's head is complete (sending the body included), `idle_timeout`
    while waiting for the next bytes of the body, `total_timeout` from `send` to the end of the body.
    `waiting` is entered while the engine is waited for, again and again.
    """

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    connect_timeout: float | None = None
    first_byte_timeout: float | None = None
    idle_timeout: float | None = None
    total_timeout: float | None = None
    waiting: AbstractContextManager[object] = _NO_STOPWATCH


class Reply(Protocol):
    """A reply whose head has arrived. Read it to its end, once, with `read` or `chunks`, or `close` it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Case-insensitive; the first value of a repeated header. `header_bytes` gives the bytes of a value."""

    @property
    def reused(self) -> bool:
        """Whether the connection had carried an earlier exchange."""

    async def read(self, limit: int) -> bytes:
        """Return the whole body. Raises BodyTooLarge beyond `limit` bytes, BrokenReply, UpstreamTimeout."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises BrokenReply, after all that arrived before, and UpstreamTimeout."""

    def close(self) -> None:
        """Drop the connection at once unless the body was read to its end. A pending read raises BrokenReply."""


class Upstream(Protocol):
    """Sends requests to engines."""

    async def send(self, request: UpstreamRequest) -> Reply:
        """Send and return when the reply's head is there, whatever its status; redirects are not followed.

        Raises NotConnected, SentNoReply, BrokenReply, UpstreamTimeout; ValueError when a header holds a line break.
        """

    async def close(self) -> None:
        """Close all connections; replies still being read break."""
