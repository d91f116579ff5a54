"""The agent's end of one call: its request body, whether it is still there, and what it has been sent.

Under ASGI `send` never fails, and a disconnect is only seen by whoever waits for it. A task that waits costs a call
some percent, so the server's end of the connection tells, from when the body is read until the answer is complete.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from starlette.types import Message, Receive, Scope, Send

from switchyard_py.dialects.dialect import AnswerStream
from switchyard_py.errors import Kind, RequestRefused, RequestStalled
from switchyard_py.observation import ANSWERED, CUT_SHORT, Observation

JSON = ((b"content-type", b"application/json"),)
EVENT_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
OVERHEAD_HEADER = b"x-switchyard-overhead-duration-ms"
# Without the blank line that would make it an event: some clients read a comment-only event as empty JSON.
HEARTBEAT = b": keepalive\n"


PEER = "switchyard.peer"
"""Key of an ASGI scope under which the server puts the `Peer` of the connection."""


class Peer:
    """What the server knows of the other side of a connection."""

    __slots__ = ("stalled", "watchers")

    def __init__(self) -> None:
        self.stalled = False
        """It was cut off, because it had stopped reading."""
        self.watchers: set[Callable[[], None]] = set()
        """Whom `leave` tells."""

    def leave(self) -> None:
        """The connection is lost."""
        for tell in list(self.watchers):
            tell()


class AgentGone(Exception):
    """The agent closed its connection before its answer was complete."""

    reason = "agent_gone"
    """What the account says of its call."""


class AgentStalled(AgentGone):
    """The agent stopped reading and was cut off."""

    reason = "agent_stalled"


class Agent:
    """One ASGI connection."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        observation: Observation,
        request_id_headers: tuple[bytes, ...] = (b"x-request-id",),
    ) -> None:
        self.scope = scope
        self.observation = observation
        self.request_id = str(uuid.uuid4())
        """Goes out in the `request_id_headers`; the name of the record for a call that has begun."""
        self.stream: AnswerStream | None = None
        """Writes the events it is sent, once there are any; it knows how an error ends them."""
        self.gone = False
        self.begun = False
        self.finished = False
        self.sent_at = 0.0
        """When it was sent something last, by the clock of the loop."""
        self._receive = receive
        self._send = send
        self._request_id_headers = request_id_headers
        # Heartbeats come from a task of their own.
        self._sending = asyncio.Lock()
        self._peer: Peer = scope[PEER]
        self._waiting: asyncio.Task[object] | None = None
        self._interruption: Callable[[], Exception] | None = None

    async def read_body(self, limit: int, stall_seconds: float) -> bytes:
        """The request's body; the agent is watched from here on. To be called while it is `present`, which also raises
        RequestStalled when nothing of the body came for `stall_seconds`.

        Raises:
            RequestRefused: it is compressed or larger than `limit` bytes; the rest is left unread.
            AgentGone: the connection closed before its end.
        """
        headers = dict(self.scope["headers"])
        _check_encoding(headers.get(b"content-encoding", b""))
        declared = headers.get(b"content-length", b"")
        _check_size(int(declared) if declared.isdigit() else 0, limit)
        loop = asyncio.get_running_loop()
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            stalled = loop.call_later(stall_seconds, self.interrupt, partial(_stalled, stall_seconds))
            try:
                with self.observation.waiting:
                    message = await self._receive()
            finally:
                stalled.cancel()
            if message["type"] == "http.disconnect":
                self.gone = True
                raise AgentGone
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            _check_size(size, limit)
        self._peer.watchers.add(self._leave)
        return b"".join(parts)

    @contextmanager
    def present(self) -> Iterator[None]:
        """Run the block only as long as the agent is there; its pending wait is cancelled when the agent goes.

        Raises:
            AgentGone: the agent went, before or during the block.
            Exception: what `interrupt` was given makes it, before or during the block.
        """
        if self._interruption is not None:
            raise self._interruption()
        task = asyncio.current_task()
        assert task is not None
        self._waiting = task
        try:
            yield
        except asyncio.CancelledError:
            if self._interruption is not None and task.uncancel() == 0:
                raise self._interruption() from None
            raise
        finally:
            self._waiting = None

    def interrupt(self, error: Callable[[], Exception]) -> None:
        """Make `present` raise a new `error()`, at once or when it is next entered. Only the first error counts."""
        if self._interruption is None:
            # Not an exception: kept here after it was raised, it would keep the frames of the call alive.
            self._interruption = error
            if self._waiting is not None:
                self._waiting.cancel()

    async def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the response's head, unless it has been sent."""
        async with self._sending:
            await self._start(status, headers)

    async def send(self, body: bytes) -> None:
        """Send a part of the body; waits while the agent is slow to take what it was sent before."""
        self.observation.first_byte()
        with self.observation.waiting:
            await self._transmit(body, more=True)
        self._note_sent()

    async def drained(self) -> None:
        """Wait until the agent has taken nearly all it was sent, or is gone."""
        with self.observation.waiting:
            await self._transmit(b"", more=True)

    async def beat(self) -> None:
        """Send a comment line, which begins the stream; does nothing where another part is on its way."""
        if self._sending.locked():
            return
        async with self._sending:
            if not self.finished:
                await self._start(200, EVENT_STREAM)
                await self._send(_body(HEARTBEAT, more=True))
                self._note_sent()

    async def finish(self, body: bytes) -> None:
        """Send the last part of the body together with the connection's final frame, in one send."""
        self.finished = True
        self.observation.first_byte()
        # Before the agent has its answer, so that nobody who has one finds it uncounted.
        self.observation.end(self.request_id, ANSWERED)
        await self._transmit(body, more=False)

    async def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole response."""
        await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.finish(body)

    def close(self) -> None:
        """Stop watching; a call without a whole answer is over now."""
        self.observation.end(self.request_id, CUT_SHORT)
        self._peer.watchers.discard(self._leave)

    async def _transmit(self, body: bytes, *, more: bool) -> None:
        async with self._sending:
            await self._send(_body(body, more=more))

    async def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if not self.begun:
            self.observation.status = status
            overhead = b"%.3f" % (self.observation.overhead_so_far * 1000)
            ids = ((name, self.request_id.encode()) for name in self._request_id_headers)
            sent = [*headers, *ids, (OVERHEAD_HEADER, overhead)]
            await self._send({"type": "http.response.start", "status": status, "headers": sent})
            # Not before: who is cancelled while an earlier answer waits to be taken has sent nothing.
            self.begun = True
            self._note_sent()

    def _note_sent(self) -> None:
        self.sent_at = asyncio.get_running_loop().time()

    def _leave(self) -> None:
        if not self.finished:
            self.gone = True
            self.interrupt(AgentStalled if self._peer.stalled else AgentGone)


def _stalled(seconds: float) -> RequestStalled:
    text = (
        f"The request's body stopped: nothing of it came for {seconds:g} s, the limit `server.agent_stall_seconds` "
        "of this proxy."
    )
    return RequestStalled(text)


def _check_encoding(encoding: bytes) -> None:
    if encoding.lower() not in (b"", b"identity"):
        text = "The request body has a content-encoding, which this proxy does not undo: send it as it is."
        raise RequestRefused(Kind.UNSUPPORTED_ENCODING, text)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        text = f"The request body is larger than {limit} bytes, the limit `server.max_body_bytes` of this proxy."
        raise RequestRefused(Kind.REQUEST_TOO_LARGE, text)


def _body(body: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}
