"""An agent that sends any bytes as a request and takes whatever comes, fast enough for tens of thousands of calls.

agent = WireAgent(port)
answer = await agent.call(http_request(b'{"model": ...}', {"proxy_x_session_id": "s"}))
assert answer.complete and answer.status == 200
await agent.close()
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import httptools

PATH = "/v1/chat/completions"


def http_request(
    body: bytes, headers: Mapping[str, str | bytes] | None = None, *, path: str = PATH, chunk_bytes: int | None = None
) -> bytes:
    """A POST as bytes on the wire; with `chunk_bytes` its body goes out in chunks and without a length."""
    sent: dict[str, str | bytes] = {"content-type": "application/json", **(headers or {})}
    if chunk_bytes is None:
        sent["content-length"] = str(len(body))
    else:
        sent["transfer-encoding"] = "chunked"
        pieces = [body[start : start + chunk_bytes] for start in range(0, len(body), chunk_bytes)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    lines = b"".join(
        b"%b: %b\r\n" % (name.encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in sent.items()
    )
    return b"POST %b HTTP/1.1\r\nhost: proxy\r\n%b\r\n" % (path.encode(), lines) + body


@dataclass
class Answer:
    """What came of one request. `status` is 0 when the connection ended before a head; names of headers are lower
    case. `complete`: the body ended as the head said it would. `left`: the agent dropped the connection first."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False
    left: bool = False


class WireAgent:
    """One keep-alive connection, opened when it is needed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection: _Connection | None = None

    async def call(self, request: bytes, *, leave_after: float | None = None) -> Answer:
        """Send a request and read its answer as far as it goes; drop the connection after `leave_after` seconds.

        Raises OSError when there is no connection to be had.
        """
        if self._connection is None or not self._connection.usable:
            loop = asyncio.get_running_loop()
            _, self._connection = await loop.create_connection(_Connection, "127.0.0.1", self.port)
        connection = self._connection
        ended = connection.send(request)
        try:
            async with asyncio.timeout(leave_after):
                await ended
        except TimeoutError:
            connection.answer.left = True
            connection.drop()
            await connection.lost
        return connection.answer

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.drop()
            await self._connection.lost


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.usable = True
        self._begin()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, request: bytes) -> "asyncio.Future[None]":
        self._begin()
        if self.lost.done():
            self._end()
        else:
            self._transport.write(request)
        return self._ended

    def drop(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self.lost.set_result(None)
        self._end()

    # Called by the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answer.headers[name.decode().lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self.answer.status == 100:
            return  # the answer proper follows
        self.answer.complete = True
        self.usable = self._parser.should_keep_alive()
        self._end()

    def _begin(self) -> None:
        self.answer = Answer()
        self._pieces: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _end(self) -> None:
        self.usable = self.usable and self.answer.complete
        if not self._ended.done():
            self.answer.body = b"".join(self._pieces)
            self._ended.set_result(None)
