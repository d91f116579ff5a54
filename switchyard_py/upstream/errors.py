"""What can go wrong between the proxy and an engine.

    UpstreamError
    ├── NotConnected       nothing was sent: the call may go elsewhere or be sent again
    ├── SentNoReply        the request left, the connection ended before one byte of reply
    ├── BrokenReply        a reply began and is not HTTP, was cut, or was closed by us
    ├── UpstreamTimeout    a limit ran out; `which` names it
    ├── BodyTooLarge       the reply's body is larger than the caller reads
    └── EventTooLarge      one event of a stream is larger than the reader holds

Messages name host and port at most: no path, no credentials, no header values.
"""

from typing import Literal

TimeoutName = Literal["connect", "first_byte", "idle", "total"]

_WAITED_FOR: dict[TimeoutName, str] = {
    "connect": "no connection to {origin} within {seconds:g} s",
    "first_byte": "{origin} did not begin its reply within {seconds:g} s",
    "idle": "{origin} sent nothing for {seconds:g} s in the middle of its reply",
    "total": "{origin} did not finish its reply within {seconds:g} s",
}


class UpstreamError(Exception):
    """Base of everything the upstream seam raises."""

    repeated = 0
    """How often the request had been sent before; set by who sends requests again."""


class NotConnected(UpstreamError):
    """No connection came about; not one byte of the request was sent."""


class SentNoReply(UpstreamError):
    """The request was sent, at least in part, and the connection ended before one byte of reply.

    `reused` tells whether the connection had carried an earlier exchange.
    """

    def __init__(self, message: str, *, reused: bool) -> None:
        super().__init__(message)
        self.reused = reused


class BrokenReply(UpstreamError):
    """A reply began, but its head or framing is invalid, it was cut, or the caller closed it while reading."""


class UpstreamTimeout(UpstreamError):
    """A time limit ran out: `which` one, and how long it was in `seconds`."""

    def __init__(self, which: TimeoutName, seconds: float, origin: str) -> None:
        super().__init__(_WAITED_FOR[which].format(origin=origin, seconds=seconds))
        self.which = which
        self.seconds = seconds


class BodyTooLarge(UpstreamError):
    """The body has more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the reply is larger than {limit} bytes")
        self.limit = limit


class EventTooLarge(UpstreamError):
    """One event of a stream has more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"one event of the stream is larger than {limit} bytes")
        self.limit = limit
