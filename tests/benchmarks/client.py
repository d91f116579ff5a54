"""Our own load: connections that send one request after another and note when each part of the answer came.

Where wrk is missing it makes all load; streams are always its work, because wrk knows only whole replies.
"""

import asyncio
import itertools
import math
import re
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar, cast

import uvloop

SESSIONS = 64
CHAT = "/v1/chat/completions"
CALL_SECONDS = 120.0

_STATUS = re.compile(rb"HTTP/1\.1 (\d+)")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_STAMP = re.compile(rb'"@(\d{7}\.\d{6}) "')

T = TypeVar("T")


@dataclass(slots=True)
class Answer:
    """One answer: its status, and times in seconds.

    `first` and `total` count from the sending of the request to the first byte of the body and to the last one;
    `delays` has, for each token, the time from the engine's sending to its arrival.
    """

    status: int = 0
    first: float = 0.0
    total: float = 0.0
    delays: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Load:
    """Calls that were sent and answered; `failed` of them not with 200. `seconds` from the first to the last."""

    calls: int
    failed: int
    seconds: float
    p50: float
    p99: float


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # What uvloop passes is one in all but its base class.
        self._transport = cast(asyncio.Transport, transport)
        self._ended: asyncio.Future[None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ended and not self._ended.done():
            self._ended.set_exception(ConnectionError("the connection was closed before the answer was complete"))

    async def call(self, request: bytes) -> Answer:
        """Send a request and wait for the whole answer.

        Raises:
            ConnectionError: the connection ended first.
            TimeoutError: the answer took longer than `CALL_SECONDS`.
        """
        self._answer = Answer()
        self._unread: int | None = None
        self._rest = self._end = b""
        self._ended = asyncio.get_running_loop().create_future()
        self._sent = time.monotonic()
        self._transport.write(request)
        async with asyncio.timeout(CALL_SECONDS):
            await self._ended
        return self._answer

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        if not self._answer.status:
            self._rest += data
            head, separator, data = self._rest.partition(b"\r\n\r\n")
            if not separator:
                return
            self._rest = b""
            status, length = _STATUS.match(head), _LENGTH.search(head)
            self._answer.status = int(status[1]) if status else -1
            self._unread = int(length[1]) if length else None
        if data and not self._answer.first:
            self._answer.first = now - self._sent
        if self._is_last(data, now):
            self._answer.total = now - self._sent
            if self._ended and not self._ended.done():
                self._ended.set_result(None)

    def _is_last(self, data: bytes, now: float) -> bool:
        if self._unread is not None:
            self._unread -= len(data)
            return self._unread <= 0
        lines, _, self._rest = (self._rest + data).rpartition(b"\n")
        self._answer.delays += [now - float(stamp) for stamp in _STAMP.findall(lines)]
        self._end = (self._end + data)[-len(_LAST_CHUNK) :]
        return self._end == _LAST_CHUNK


def _run(load: Coroutine[None, None, T]) -> T:
    """Raises RuntimeError when a connection was lost or an answer did not come."""
    try:
        return uvloop.run(load)
    except* (OSError, TimeoutError) as group:
        reason = group.exceptions[0]
    raise RuntimeError(f"a call was not answered: {reason or type(reason).__name__}") from reason


def http_request(body: bytes, session: str, path: str = CHAT) -> bytes:
    """One call as bytes on the wire."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}proxy_x_session_id: {session}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def buffered_load(port: int, body: bytes, connections: int, *, seconds: float, path: str = CHAT) -> Load:
    """Keep so many connections busy for so long; calls that were sent are waited for."""
    requests = itertools.cycle(http_request(body, f"bench-{number}", path) for number in range(SESSIONS))
    return _run(_buffered_load(port, requests, connections, seconds))


def fixed_load(port: int, body: bytes, connections: int, sessions: list[str]) -> Load:
    """Make one call for each item of `sessions`, in it."""
    requests = iter([http_request(body, session) for session in sessions])
    return _run(_drive(port, connections, requests))


def stream_load(
    port: int, body: bytes, connections: int, streams: int, stream_seconds: float, path: str = CHAT
) -> list[Answer]:
    """Play so many streams on each connection, one after another; return all but the first of each, a warm-up.

    Connection i of n starts i/n of a stream's length after the first, so the streams that count begin one by one
    while all connections are busy.
    """
    (answers,) = mixed_streams(port, [(body, path)], connections, streams, stream_seconds)
    return answers


def mixed_streams(
    port: int, asked: list[tuple[bytes, str]], connections: int, streams: int, stream_seconds: float
) -> list[list[Answer]]:
    """The same for several requests, each a body and its path, that take turns from connection to connection; the
    answers of each."""
    turns = [asked[number % len(asked)] for number in range(connections)]
    requests = [http_request(body, f"bench-{number % SESSIONS}", path) for number, (body, path) in enumerate(turns)]
    answers = _run(_stream_load(port, requests, streams, stream_seconds))
    return [list(chain.from_iterable(answers[which :: len(asked)])) for which in range(len(asked))]


async def _buffered_load(port: int, requests: Iterator[bytes], connections: int, seconds: float) -> Load:
    deadline = time.monotonic() + seconds
    return await _drive(port, connections, itertools.takewhile(lambda _: time.monotonic() < deadline, requests))


async def _drive(port: int, connections: int, requests: Iterator[bytes]) -> Load:
    times: list[float] = []
    failed = 0

    async def keep_busy() -> None:
        nonlocal failed
        connection = await _connect(port)
        for request in requests:
            answer = await connection.call(request)
            times.append(answer.total)
            failed += answer.status != 200
        connection.close()

    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(keep_busy())
    return Load(len(times), failed, time.monotonic() - started, quantile(times, 0.5), quantile(times, 0.99))


async def _stream_load(port: int, requests: list[bytes], streams: int, stream_seconds: float) -> list[list[Answer]]:
    async def play(number: int, request: bytes) -> list[Answer]:
        await asyncio.sleep(stream_seconds * number / len(requests))
        connection = await _connect(port)
        answers = [await connection.call(request) for _ in range(streams)]
        connection.close()
        return answers[1:]

    async with asyncio.TaskGroup() as group:
        playing = [group.create_task(play(number, request)) for number, request in enumerate(requests)]
    return [each.result() for each in playing]


async def _connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
