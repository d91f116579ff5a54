"""Servers in the running event loop, for as long as a block lasts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from switchyard_py.config import ServerSettings
from switchyard_py.connection import ServerConfig

START_POLL_SECONDS = 0.01
CLOSE_SECONDS = 1


class NotStarted(Exception):
    """A server ended before it served; the log says why."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals to the event loop, which ends the block and with it the server."""
        yield


@asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[str]:
    """Serve `app` on a bound socket; gives the server's URL.

    Raises:
        NotStarted: the application failed to start.
    """
    config = ServerConfig(
        app,
        agent_stall_seconds=ServerSettings.agent_stall_seconds,
        log_level="error",
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )
    # Inherited by each connection. asyncio sets it on sockets of an explicit protocol number only, and without it the
    # second call of a connection waits 40 ms for an acknowledgement, then comes all at once.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = _Server(config)
    running = asyncio.create_task(_run(server, listener))
    try:
        while not server.started:
            if running.done():
                raise NotStarted
            await asyncio.sleep(START_POLL_SECONDS)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            # Cancelled while it closes: it closes in order all the same.
            await running
            raise


async def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    try:
        await server.serve([listener])
    except SystemExit:
        # The server's way to say that the application failed to start.
        return
