"""One connection to an engine: aiohttp's, made to tell what aiohttp keeps to itself.

The seam must know whether a connection is reused, whether one byte of reply came and whether the end was a reset;
aiohttp reports none of it. It does build every connection through a factory and tells it of every request.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientOSError, ClientPayloadError
from aiohttp.client_proto import ResponseHandler


@dataclass(slots=True)
class Exchange:
    """One request on one connection, and what the connection saw of it."""

    taken: Callable[[], None]
    """Called when a connection takes the request, before its first byte is written."""
    connection: "EngineConnection | None" = None
    reused: bool = False
    got_bytes: bool = False

    def over(self) -> None:
        """The reply's last byte is here: the connection is free for another exchange."""
        if self.connection is not None and self.connection.exchange is self:
            self.connection.exchange = None


# aiohttp offers no way to hand a value from the request to its connection; they share the task's context.
current_exchange: ContextVar[Exchange] = ContextVar("current_exchange")


class EngineConnection(ResponseHandler):
    """A connection that carries one exchange after the other; `exchange` is the one under way, None between two."""

    exchange: Exchange | None = None
    used = False

    @property
    def idle(self) -> bool:
        return self.used and self.exchange is None

    def set_response_params(self, **params: Any) -> None:
        """aiohttp calls this when a request takes the connection, in the context of whoever sends."""
        self.exchange = exchange = current_exchange.get()
        exchange.connection = self
        exchange.reused, self.used = self.used, True
        exchange.taken()
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        # aiohttp feeds itself b"" when a reader of the reply before catches up: that is no byte of this reply.
        if self.exchange is not None:
            self.exchange.got_bytes = self.exchange.got_bytes or bool(data)
        elif data:
            # Bytes nobody asked for must not become the next call's reply.
            self.abort()
            return
        super().data_received(data)

    def close(self) -> None:
        # Whatever aiohttp closes, nobody wants any more; a graceful close would wait until the engine took the rest of
        # the request, and keep it working.
        self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        payload = self._payload
        if payload is None or payload.is_eof():
            super().connection_lost(exc)
            return
        # aiohttp takes a reset for the end of a body without length, and leaves who reads a body with broken framing
        # waiting for ever.
        if exc is not None:
            payload.set_exception(ClientOSError(*exc.args))
        super().connection_lost(exc)
        if not payload.is_eof() and payload.exception() is None:
            payload.set_exception(ClientPayloadError())
