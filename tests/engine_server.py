"""The server half of the scripted engine: HTTP/1.1 by hand, so that a script can send any bytes at any time.

Use it through `scripted_engine`, whose docstring shows how.
"""

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self

Script = Callable[["Exchange"], Coroutine[Any, Any, None]]
HeaderList = Sequence[tuple[str, str]] | Mapping[str, str]

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class Request:
    """A request as it was received; `at` and `sent_at` are seconds of `time.monotonic()`."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int
    at: float
    sent_at: list[float] = field(default_factory=list)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @cached_property
    def json(self) -> Any:
        """The parsed body; None when there is none."""
        return json.loads(self.body) if self.body else None


class Exchange:
    """What a script works with: the request, and the means to answer it, well or badly.

    A script that returns has ended its reply: a chunked body gets its last chunk. When the client goes away first, the
    script is cancelled where it waits.
    """

    def __init__(self, request: Request, connection: "_ServerConnection", engine: "ScriptedEngine") -> None:
        self.request = request
        self.engine = engine
        self._connection = connection
        self._chunked = False
        self._owed: int | None = None
        self.broken = False

    async def headers(self, status: int = 200, headers: HeaderList = ()) -> None:
        """Send the head; without a content-length among `headers` the body is chunked, one chunk each `send`."""
        fields = list(headers.items() if isinstance(headers, Mapping) else headers)
        length = next((value for name, value in fields if name.lower() == "content-length"), None)
        self._owed = None if length is None else int(length)
        if length is None:
            self._chunked = True
            fields.append(("transfer-encoding", "chunked"))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields)
        await self.raw(f"HTTP/1.1 {status} Scripted\r\n{head}\r\n".encode("latin-1"))

    async def json(self, body: object, status: int = 200, headers: HeaderList = ()) -> None:
        """Send a whole JSON reply; `bytes` are the body as it is. `headers` come on top of type and length."""
        data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
        extra = headers.items() if isinstance(headers, Mapping) else headers
        await self.headers(status, [("content-type", "application/json"), ("content-length", str(len(data))), *extra])
        await self.send(data)

    async def stream_headers(self) -> None:
        await self.headers(200, {"content-type": "text/event-stream; charset=utf-8"})

    async def send(self, data: bytes) -> None:
        """Send a piece of the body, framed as `headers` promised; waits while the client does not read."""
        self.request.sent_at.append(time.monotonic())
        if self._owed is not None:
            self._owed -= len(data)
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    async def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self._connection.write(data)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def gate(self) -> None:
        """Wait for one `engine.step()`."""
        await self.engine.gate.acquire()

    async def stall(self) -> None:
        """Say nothing until the client goes away or the engine stops."""
        await asyncio.Event().wait()

    def close(self) -> None:
        """Close the connection in both directions (FIN)."""
        self.broken = True
        self._connection.close()

    def reset(self) -> None:
        """Close the connection with a reset (RST)."""
        self.broken = True
        self._connection.reset()

    def half_close(self) -> None:
        """Send FIN, go on reading."""
        self.broken = True
        self._connection.half_close()

    def finish(self) -> None:
        """Called when the script returned: end the body, and the connection where it cannot be used again."""
        if self.broken:
            return
        if self._chunked:
            self._connection.put(b"0\r\n\r\n")
        elif self._owed != 0:
            self._connection.close()


class ScriptedEngine:
    """A server on a free port of 127.0.0.1. Every POST is a generation and runs one script.

    `requests` logs every request. Of the generations, `started` have begun; `completed` ended by their script's return;
    `broken` by its close, half-close or reset; `aborted` because the client went away first.
    `accepting` decides about new connections: serve them, close or reset them at once, or ignore what they send.
    """

    def __init__(self, *, model: str = "served-model", max_model_len: int = 4096) -> None:
        self.model = model
        self.max_model_len = max_model_len
        self.requests: list[Request] = []
        self.started = self.completed = self.broken = self.aborted = 0
        self.connections = 0
        self.accepting: Literal["serve", "close", "reset", "ignore"] = "serve"
        self.gate = asyncio.Semaphore(0)
        self.port = 0
        self._queue: deque[Script] = deque()
        self._default: Script | None = None
        self._paths: dict[tuple[str, str], Script] = {}
        self._open: set[_ServerConnection] = set()
        self._running: dict[asyncio.Task[None], Exchange] = {}
        self._faults: list[Exception] = []
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """What a target's `base_url` holds."""
        return f"{self.url}/v1"

    @property
    def open_connections(self) -> int:
        return len(self._open)

    @property
    def running(self) -> int:
        """Generations whose script has not ended."""
        return self.started - self.completed - self.broken - self.aborted

    @property
    def generations(self) -> list[Request]:
        """The logged requests that were generations."""
        return [request for request in self.requests if request.method == "POST"]

    def reply(self, *scripts: Script) -> None:
        """Queue scripts, one for each coming POST."""
        self._queue.extend(scripts)

    def default(self, script: Script) -> None:
        """Set the script for POSTs that find the queue empty; without one they get 500."""
        self._default = script

    def on(self, method: str, path: str, script: Script) -> None:
        """Set the script for one method and path, ahead of queue and default. `/health`, `/version` and `/v1/models`
        are answered as vLLM does unless set here."""
        self._paths[method, path] = script

    def step(self, count: int = 1) -> None:
        """Let `count` waits on `Exchange.gate` pass: one event each of a stepped stream."""
        for _ in range(count):
            self.gate.release()

    async def until(self, condition: Callable[[], bool], within: float = 2.0) -> None:
        """Return as soon as `condition` holds. Raises AssertionError after `within` seconds."""
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"not so within {within} s: {self}"
            await asyncio.sleep(0.002)

    def __repr__(self) -> str:
        return (
            f"<ScriptedEngine started={self.started} completed={self.completed} broken={self.broken}"
            f" aborted={self.aborted} connections={self.connections} requests={len(self.requests)}>"
        )

    async def start(self) -> None:
        """Listen; after `stop` on the same port again, as a restarted engine does."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _ServerConnection(self), "127.0.0.1", self.port, reuse_address=True, backlog=2048
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, close every connection, cancel running scripts."""
        if self._server is not None:
            self._server.close()
            self._server = None
        running = list(self._running.items())
        for task, exchange in running:
            exchange.reset()
            task.cancel()
        for connection in list(self._open):
            connection.reset()
        await asyncio.gather(*(task for task, _ in running), return_exceptions=True)
        while self._open:
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        if self._faults:
            raise ExceptionGroup("scripts failed", self._faults)

    def opened(self, connection: "_ServerConnection") -> int:
        self.connections += 1
        self._open.add(connection)
        return self.connections

    def closed(self, connection: "_ServerConnection") -> None:
        self._open.discard(connection)

    def received(self, request: Request, connection: "_ServerConnection") -> "asyncio.Task[None]":
        self.requests.append(request)
        script = self._paths.get((request.method, request.path))
        if script is None and request.method == "POST":
            script = self._queue.popleft() if self._queue else self._default
        script = script or _unscripted
        exchange = Exchange(request, connection, self)
        task = asyncio.get_running_loop().create_task(_run(script, exchange))
        self._running[task] = exchange
        task.add_done_callback(self._ended)
        self.started += request.method == "POST"
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        exchange = self._running.pop(task)
        fault = None if task.cancelled() else task.exception()
        if isinstance(fault, Exception):
            self._faults.append(fault)
            exchange.reset()
        if exchange.request.method != "POST":
            return
        if exchange.broken:
            self.broken += 1
        elif task.cancelled():
            self.aborted += 1
        else:
            self.completed += 1


async def _run(script: Script, exchange: Exchange) -> None:
    await script(exchange)
    exchange.finish()


class _ServerConnection(asyncio.Protocol):
    """Reads requests one after the other and runs the engine's script for each."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self._buffer = bytearray()
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._number = self._engine.opened(self)
        if self._engine.accepting == "close":
            self.close()
        elif self._engine.accepting == "reset":
            self.reset()

    def data_received(self, data: bytes) -> None:
        if self._engine.accepting == "ignore":
            return
        self._buffer += data
        self._next_request()

    def eof_received(self) -> None:
        self._cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.closed(self)
        self._writable.set()
        self._cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def put(self, data: bytes) -> None:
        self._transport.write(data)

    async def write(self, data: bytes) -> None:
        self.put(data)
        if self._transport.is_closing():
            await asyncio.sleep(0)  # else a script that goes on sending never lets its end be told
        await self._writable.wait()

    def close(self) -> None:
        self._transport.close()

    def reset(self) -> None:
        with contextlib.suppress(OSError):
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def half_close(self) -> None:
        self._transport.write_eof()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _next_request(self) -> None:
        head_end = self._buffer.find(b"\r\n\r\n")
        if self._task is not None or head_end < 0:
            return
        request_line, *lines = self._buffer[:head_end].decode("latin-1").split("\r\n")
        method, path, _ = request_line.split(" ")
        fields = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        length = next((int(value) for name, value in fields if name.lower() == "content-length"), 0)
        body_end = head_end + 4 + length
        if len(self._buffer) < body_end:
            return
        body = bytes(self._buffer[head_end + 4 : body_end])
        del self._buffer[:body_end]
        request = Request(method, path, fields, body, self._number, time.monotonic())
        self._task = self._engine.received(request, self)
        self._task.add_done_callback(self._script_ended)

    def _script_ended(self, _: asyncio.Task[None]) -> None:
        self._task = None
        if not self._transport.is_closing():
            self._next_request()


async def _unscripted(exchange: Exchange) -> None:
    engine = exchange.engine
    match exchange.request.method, exchange.request.path:
        case "GET", "/health":
            await exchange.headers(200, {"content-length": "0"})
        case "GET", "/version":
            await exchange.json({"version": "0.32.0"})
        case "GET", "/v1/models":
            card = {"id": engine.model, "object": "model", "created": int(time.time()), "owned_by": "vllm"}
            card |= {"root": engine.model, "parent": None, "max_model_len": engine.max_model_len, "permission": []}
            await exchange.json({"object": "list", "data": [card]})
        case "POST", _:
            await exchange.json({"error": {"message": "nothing scripted for this request", "code": 500}}, 500)
        case _:
            await exchange.json({"detail": "Not Found"}, 404)
