"""A fast engine with slots and a memory: calls beyond the slots wait in line, and it tells what became of each.

    python -m benchmarks.queued_engine PORT SLOTS GAP_SECONDS PAYLOAD

A call that asks for a stream gets the payload's, any other the reply `small`. `GET /calls` answers with the names
(`x-request-id`) of the calls that were `started`, `completed` and `aborted`, because the proxy closed the connection
first. After `GET /gather/N` nobody is served until N calls are open at once.
"""

import asyncio
import re
import sys
from collections import deque
from typing import Any, cast

import orjson
import uvloop
from benchmarks.fast_engine import CONTENT_LENGTH, NOT_A_CALL, frames
from benchmarks.payloads import payload

NAME = re.compile(rb"\r\nx-request-id: *([^\r]+)", re.IGNORECASE)
GATHER = re.compile(rb"GET /gather/(\d+) ")
STREAMED = re.compile(rb'"stream": ?true')


class Engine:
    """The slots, the line before them, and the account."""

    def __init__(self, slots: int, gap: float, stream: str) -> None:
        self.gap = gap
        self.whole = frames(payload("small"))
        self.stream = frames(payload(stream))
        self.account: dict[str, list[str]] = {"started": [], "completed": [], "aborted": []}
        self._free = slots
        self._line: deque[Connection] = deque()
        self._open = 0
        self._awaited = 0

    def begin(self, connection: "Connection", name: str) -> None:
        """Give the call a slot, or let it wait for one."""
        self.account["started"].append(name)
        self._open += 1
        if self._open >= self._awaited:
            self._awaited = 0
        self._line.append(connection)
        self._fill()

    def end(self, connection: "Connection", name: str, how: str) -> None:
        """Note the end of a call and give its slot away."""
        self.account[how].append(name)
        self._open -= 1
        if connection in self._line:
            self._line.remove(connection)
        else:
            self._free += 1
            self._fill()

    def gather(self, calls: int) -> None:
        """Serve nobody until so many calls are open."""
        self._awaited = calls

    def report(self) -> bytes:
        """The account as a response."""
        body = orjson.dumps(self.account)
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body

    def _fill(self) -> None:
        while self._free and self._line and not self._awaited:
            self._free -= 1
            self._line.popleft().answer()


class Connection(asyncio.Protocol):
    """One request after the other; a client does not send the next before it has the reply."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._received = b""
        self._name: str | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # What uvloop passes is one in all but its base class.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        self._end("aborted")

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        length = CONTENT_LENGTH.search(head)
        if not separator or len(body) < (int(length[1]) if length else 0):
            return
        self._received = b""
        if head.startswith(b"POST"):
            name = NAME.search(head)
            self._name = name[1].decode() if name else ""
            self._frames = self._engine.stream if STREAMED.search(body) else self._engine.whole
            self._engine.begin(self, self._name)
        elif awaited := GATHER.match(head):
            self._engine.gather(int(awaited[1]))
            self._transport.write(NOT_A_CALL)
        else:
            self._transport.write(self._engine.report() if head.startswith(b"GET /calls ") else NOT_A_CALL)

    def answer(self) -> None:
        """Send the reply, its frames one by one."""
        self._begun = asyncio.get_running_loop().time()
        self._send(0)

    def _send(self, number: int) -> None:
        self._transport.write(self._frames[number])
        if number + 1 == len(self._frames):
            self._end("completed")
            return
        # By the clock, not by the frame before: what is late must not make all the rest late.
        due = self._begun + (number + 1) * self._engine.gap
        self._timer = asyncio.get_running_loop().call_at(due, self._send, number + 1)

    def _end(self, how: str) -> None:
        if self._name is not None:
            name, self._name = self._name, None
            self._engine.end(self, name, how)


async def serve(port: int, engine: Engine) -> None:
    loop: Any = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Engine(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])))
