"""An engine that costs next to nothing: it counts the bytes of a request and sends a reply made beforehand.

    python -m benchmarks.fast_engine PORT small|large|stream GAP_SECONDS

The reply has the captured form for everybody, because it is the cost of handling that reply that is compared. A stream
tells the usage in every chunk where it is asked to, as the proxy asks for the dialect messages.
"""

import asyncio
import re
import sys
import time
from functools import partial
from typing import cast

import uvloop
from benchmarks.payloads import STAMP, Payload, payload

CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
COUNTED = b'"continuous_usage_stats":true'
NOT_A_CALL = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 27\r\n\r\n" + (
    b'{"object":"list","data":[]}'
)


class Connection(asyncio.Protocol):
    """Answers one request after another; a client does not send the next before it has the reply."""

    def __init__(self, plain: tuple[bytes, ...], counted: tuple[bytes, ...], gap: float) -> None:
        self._plain = plain
        self._counted = counted
        self._gap = gap
        self._head = b""
        self._unread = 0
        self._is_call = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # What uvloop passes is one in all but its base class.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._unread:
            self._unread -= len(data)
        else:
            self._head += data
            head, separator, body = self._head.partition(b"\r\n\r\n")
            if not separator:
                return
            length = CONTENT_LENGTH.search(head)
            self._unread = (int(length[1]) if length else 0) - len(body)
            self._is_call = head.startswith(b"POST")
            self._frames = self._plain
            self._head = b""
        if COUNTED in data:
            self._frames = self._counted
        if self._unread == 0:
            self._answer()

    def _answer(self) -> None:
        if not self._is_call:
            self._transport.write(NOT_A_CALL)
            return
        self._transport.write(self._frames[0])
        if len(self._frames) > 1:
            self._begun = asyncio.get_running_loop().time()
            self._send_later(1)

    def _send_later(self, number: int) -> None:
        # By the clock, not by the frame before: what is late must not make all the rest late.
        self._timer = asyncio.get_running_loop().call_at(self._begun + number * self._gap, self._send, number)

    def _send(self, number: int) -> None:
        self._transport.write(self._frames[number].replace(STAMP, b"@%014.6f" % time.monotonic()))
        if number + 1 < len(self._frames):
            self._send_later(number + 1)


def frames(answer: Payload, *, counted: bool = False) -> tuple[bytes, ...]:
    """The reply of a payload as bytes on the wire, one item for each time the engine writes."""
    if not answer.streamed:
        (body,) = answer.reply
        return (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body,)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    events = answer.counted if counted else answer.reply
    role, *tokens, usage, done = (b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    return (head + role, *tokens[:-1], tokens[-1] + usage + done + b"0\r\n\r\n")


async def serve(port: int, name: str, gap: float) -> None:
    answer = payload(name)
    connection = partial(Connection, frames(answer), frames(answer, counted=True), gap)
    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
