"""The one way to an engine: aiohttp under the protocol of `seam`.

Invariants: nothing is sent twice, except once, counted, when a connection that had carried an earlier exchange ends
without one byte of reply (it was closed just as the request went out). Whoever stops waiting, by cancelling or by
`close()`, drops the connection, and the engine stops generating.
"""

import asyncio
import io
import os
from collections.abc import AsyncIterator, Mapping
from weakref import WeakSet

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from switchyard_py.upstream.connection import EngineConnection, Exchange, current_exchange
from switchyard_py.upstream.errors import (
    BodyTooLarge,
    BrokenReply,
    NotConnected,
    SentNoReply,
    TimeoutName,
    UpstreamError,
    UpstreamTimeout,
)
from switchyard_py.upstream.seam import Reply, UpstreamRequest

# vLLM closes idle connections after 5 s: stay under it.
IDLE_CONNECTION_SECONDS = 4.0
# Reading pauses when twice this many bytes wait for a slow reader.
READ_BUFFER_BYTES = 256 * 1024
MAX_REPLY_HEAD_BYTES = 64 * 1024
MAX_REPLY_HEADERS = 1000
# aiohttp warns about longer bytes, which block the loop; a file object it sends in slices.
MAX_UNSLICED_BODY_BYTES = 1024 * 1024

_AIOHTTP_ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError)


class AiohttpUpstream:
    """The Upstream in use. Construct it inside the running loop; `resent` counts requests sent a second time."""

    def __init__(self, *, idle_connection_seconds: float = IDLE_CONNECTION_SECONDS) -> None:
        self.resent = 0
        self._loop = asyncio.get_running_loop()
        self._connections: WeakSet[EngineConnection] = WeakSet()
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=idle_connection_seconds)
        connector._factory = self._new_connection  # type: ignore[assignment]
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=MAX_REPLY_HEAD_BYTES,
            max_field_size=MAX_REPLY_HEAD_BYTES,
            max_headers=MAX_REPLY_HEADERS,
        )
        # aiohttp repeats GET, PUT and the like on its own; here every repetition is counted. It has no public switch.
        self._session._retry_connection = False

    async def send(self, request: UpstreamRequest) -> Reply:
        url = _url(request)
        deadline = _after(self._loop.time(), request.total_timeout)
        try:
            with request.waiting:
                return await self._attempt(request, url, deadline)
        except SentNoReply as error:
            if not error.reused:
                raise
            first_failure = error
        # The engine closed one idle connection; the others of that time are no better.
        for connection in list(self._connections):
            if connection.idle:
                connection.abort()
        try:
            with request.waiting:
                return await self._attempt(request, url, deadline, again=True)
        except UpstreamError as error:
            if isinstance(error, NotConnected) or (isinstance(error, UpstreamTimeout) and error.which == "connect"):
                # True of the second attempt only; the caller must not take it for "nothing was sent".
                raise first_failure from error
            raise

    async def close(self) -> None:
        await self._session.close()

    def connections(self) -> dict[str, int]:
        """How many connections stand: `busy` with an exchange or about to take one, and `idle`."""
        standing = [connection.idle for connection in self._connections if connection.is_connected()]
        return {"busy": standing.count(False), "idle": standing.count(True)}

    def _new_connection(self) -> EngineConnection:
        connection = EngineConnection(self._loop)
        self._connections.add(connection)
        return connection

    async def _attempt(
        self, request: UpstreamRequest, url: URL, deadline: float | None, again: bool = False
    ) -> "_AiohttpReply":
        now = self._loop.time
        origin = _origin(url)

        def taken() -> None:
            self.resent += again
            limit.reschedule(_earlier(_after(now(), request.first_byte_timeout), deadline))

        exchange = Exchange(taken)
        token = current_exchange.set(exchange)
        try:
            async with asyncio.timeout_at(_earlier(_after(now(), request.connect_timeout), deadline)) as limit:
                response = await self._session.request(
                    request.method,
                    url,
                    headers=request.headers,
                    data=_payload(request.body),
                    allow_redirects=False,
                )
        except _AIOHTTP_ERRORS as error:
            if limit.expired():
                before_total: TimeoutName = "connect" if exchange.connection is None else "first_byte"
                raise _expired("total" if limit.when() == deadline else before_total, request, origin) from None
            # Without the cause: tracebacks of it show URLs and headers.
            raise _send_failure(error, exchange, origin) from None
        finally:
            current_exchange.reset(token)
        return _AiohttpReply(response, exchange, origin, request, deadline)


class _AiohttpReply:
    """The Reply of AiohttpUpstream."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        exchange: Exchange,
        origin: str,
        request: UpstreamRequest,
        deadline: float | None,
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.reused = exchange.reused
        self._response = response
        self._origin = origin
        self._request = request
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._waiting_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failure: UpstreamError | None = None
        self._ended = False
        response.content.on_eof(exchange.over)
        self._watch()

    async def read(self, limit: int) -> bytes:
        declared = self._response.content_length
        pieces: list[bytes] = []
        size = declared if declared is not None and declared > limit else 0
        while size <= limit and (piece := await self._piece()):
            pieces.append(piece)
            size += len(piece)
        if size > limit:
            self.close()
            raise BodyTooLarge(limit)
        return b"".join(pieces)

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            while piece := await self._piece():
                yield piece
        finally:
            self.close()

    def close(self) -> None:
        if not self._ended:
            self._fail(BrokenReply(f"the reply of {self._origin} was closed before its end"))

    async def _piece(self) -> bytes:
        """Return what has arrived, waiting for some; b"" at the end of the body."""
        if self._failure is not None:
            raise self._failure
        content = self._response.content
        self._waiting_since = self._loop.time()
        try:
            with self._request.waiting:
                piece = await content.readany()
        except _AIOHTTP_ERRORS as error:
            failure = self._fail(BrokenReply(f"{self._origin} broke off its reply: {_reason(error)}"))
            # readany() raises before it hands out what arrived earlier: the engine's own error event, say.
            if piece := content._read_nowait(-1):
                return piece
            raise failure from None
        except BaseException:
            self.close()
            raise
        finally:
            self._waiting_since = None
        if not piece:
            self._ended = True
            self._stop_watch()
        return piece

    def _fail(self, failure: UpstreamError) -> UpstreamError:
        """Drop the connection and wake a pending read. The first failure stays the one that reads raise."""
        if self._failure is None:
            self._failure = failure
            self._stop_watch()
            self._response.close()
        return self._failure

    def _watch(self) -> None:
        """Enforce the idle and the total timeout with one timer a reply, not one a chunk."""
        now = self._loop.time()
        if self._deadline is not None and now >= self._deadline:
            self._fail(_expired("total", self._request, self._origin))
            return
        silent_until = _after(now if self._waiting_since is None else self._waiting_since, self._request.idle_timeout)
        if silent_until is not None and now >= silent_until:
            self._fail(_expired("idle", self._request, self._origin))
            return
        due = _earlier(silent_until, self._deadline)
        if due is not None:
            self._timer = self._loop.call_at(due, self._watch)

    def _stop_watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def header_bytes(value: str) -> bytes:
    """A header value of a reply as it was received."""
    # As aiohttp decodes them.
    return value.encode("utf-8", "surrogateescape")


def _url(request: UpstreamRequest) -> URL:
    try:
        url = URL(request.url)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise NotConnected("the URL of the target is not valid: write http://host:port/v1")
    if url.raw_user is not None and any(name.lower() == "authorization" for name, _ in request.headers):
        return url.with_user(None)
    return url


def _origin(url: URL) -> str:
    return f"{url.host_subcomponent}:{url.port}"


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    return body if body is None or len(body) <= MAX_UNSLICED_BODY_BYTES else io.BytesIO(body)


def _after(start: float, seconds: float | None) -> float | None:
    return None if seconds is None else start + seconds


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((when for when in (one, other) if when is not None), default=None)


def _expired(which: TimeoutName, request: UpstreamRequest, origin: str) -> UpstreamTimeout:
    seconds = {
        "connect": request.connect_timeout,
        "first_byte": request.first_byte_timeout,
        "idle": request.idle_timeout,
        "total": request.total_timeout,
    }[which]
    assert seconds is not None
    return UpstreamTimeout(which, seconds, origin)


def _send_failure(error: Exception, exchange: Exchange, origin: str) -> UpstreamError:
    if exchange.connection is None:
        return NotConnected(f"cannot connect to {origin}: {_reason(error)}")
    if exchange.got_bytes:
        return BrokenReply(f"{origin} did not finish the head of its reply: {_reason(error)}")
    return SentNoReply(f"{origin} ended the connection without a reply: {_reason(error)}", reused=exchange.reused)


def _reason(error: BaseException) -> str:
    """Say why in words of ours: those of aiohttp hold URLs, header values and Python reprs."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the name does not resolve"
    if isinstance(error, aiohttp.ClientSSLError):
        return "the TLS handshake failed or the certificate is not trusted"
    if isinstance(error, (aiohttp.ClientResponseError, HttpProcessingError)):
        return "not valid HTTP"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    # The words by which pi tells a fault that may pass.
    return "connection lost"
