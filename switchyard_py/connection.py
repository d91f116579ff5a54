"""The server's end of one connection: uvicorn's, made to end when the other side stops.

uvicorn waits without limit for a peer that stays connected and no longer reads, or stops in the middle of a request's
head. Here a peer that takes nothing of what waits for it for `agent_stall_seconds` is cut off: the application sees a
disconnect, and nothing is held for it any longer. One that is slow, however slow, is left alone.

uvicorn also loses the body of a request that offers another protocol, as Java's HTTP client does with every request.
Here the offer is ignored, as RFC 9110 (7.8) lets a server do.

And uvicorn keeps the head of a request, however large, before anybody can be asked for a key. Here it ends at
`MAX_HEAD_BYTES`.
"""

import asyncio
import fcntl
import struct
import termios
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from switchyard_py.agent import PEER, Peer

# Longer than the idle time of common client pools, so that it is the client that closes (AWS and nginx: 60 s).
KEEP_ALIVE_SECONDS = 130
LOOKS_PER_LIMIT = 10
# A proxy before this one may write as much as a megabyte into one header.
MAX_HEAD_BYTES = 2 * 1024 * 1024


class ServerConfig(uvicorn.Config):
    """How an application is served."""

    def __init__(self, app: Any, *, agent_stall_seconds: float, **options: Any) -> None:
        """`options` are those of uvicorn that differ from one server to the next."""
        self.agent_stall_seconds = agent_stall_seconds
        super().__init__(
            app,
            http=PeerConnection,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            **options,
        )


class RequestParser(httptools.HttpRequestParser):
    """Reads requests that offer another protocol like any other; httptools takes what follows for that protocol."""

    def __init__(self, connection: "PeerConnection") -> None:
        super().__init__(connection)
        # As uvicorn has it: whoever sends two requests and closes gets an answer to the first.
        self.set_dangerous_leniencies(lenient_data_after_close=True)
        self._connection = connection

    def feed_data(self, data: Any) -> None:
        connection, parser, rest = self._connection, self, memoryview(data)
        while True:
            try:
                httptools.HttpRequestParser.feed_data(parser, rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not connection.offers_upgrade:
                    raise
                head, rest = connection.head_without_offer(), rest[upgrade.args[0] :]
                # A new one, because this one may have seen that the connection is to be closed.
                parser = connection.parser = RequestParser(connection)
                httptools.HttpRequestParser.feed_data(parser, head)


class PeerConnection(HttpToolsProtocol):
    """One connection of an agent or a trainer."""

    config: ServerConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._peer = Peer()
        # Of the next head, or of what else is no body: the fields after the last chunk.
        self._head_bytes = 0
        self._untaken = 0
        self._moved_at = 0.0
        self._look: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        self.parser = RequestParser(self)

    @property
    def offers_upgrade(self) -> bool:
        """Whether the request whose head has just been read offers to go on in another protocol."""
        return bool(self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._limit_silence()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watch()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        # uvicorn tells the request that came last, and that one may still wait for the answer to the one before.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self._running = None
        self._peer.leave()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast(dict[str, Any], self.scope)[PEER] = self._peer

    def on_headers_complete(self) -> None:
        if not self.offers_upgrade:  # else the parser reads it again
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        if self.offers_upgrade:
            return
        super().on_message_complete()
        if not self.pipeline:
            # uvicorn stops when much of a body waits. Only who reads sees that the peer goes.
            self.flow.resume_reading()

    def head_without_offer(self) -> bytes:
        """The head of the request that has just been read, without what offers another protocol."""
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + self.parser.get_http_version().encode()]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            text = f"The head of the request is larger than {MAX_HEAD_BYTES} bytes, the limit of this proxy."
            self.logger.warning(text)
            self.send_400_response(text)
            return
        super().data_received(data)
        if not self._answering:
            # In the middle of a head. The body has a limit of its own, which the application answers.
            self._limit_silence()

    def eof_received(self) -> None:
        if self._answering:
            # Nobody waits for the rest: do not wait until it is taken.
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        self._stop_watch()
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_close()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_close()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _limit_silence(self) -> None:
        """Close the connection when it stays silent for as long as one may that is kept for another request."""
        self._unset_keepalive_if_required()
        if not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _watch_close(self) -> None:
        # A transport closes only when everything is taken.
        if self.transport.is_closing():
            self._watch()

    def _watch(self) -> None:
        """See to it that the peer takes something of what waits for it; nothing is added to that meanwhile."""
        if self._look is None:
            self._untaken, self._moved_at = self._count_untaken(), self.loop.time()
            self._look_later()

    def _stop_watch(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_later(self) -> None:
        self._look = self.loop.call_later(self.config.agent_stall_seconds / LOOKS_PER_LIMIT, self._look_again)

    def _look_again(self) -> None:
        untaken, now = self._count_untaken(), self.loop.time()
        if untaken < self._untaken:
            self._untaken, self._moved_at = untaken, now
        elif now - self._moved_at >= self.config.agent_stall_seconds:
            self._peer.stalled = True
            self.transport.abort()
            return
        self._look_later()

    def _count_untaken(self) -> int:
        """Bytes that the peer's machine has not acknowledged, where the kernel tells; else those we still hold.

        The kernel holds megabytes, and takes more from us only when a third of them is gone: too coarse a measure.
        """
        held = self.transport.get_write_buffer_size()
        try:
            queued = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return held
        return held + int(struct.unpack("i", queued)[0])
