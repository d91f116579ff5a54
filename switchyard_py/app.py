"""Assembles the ASGI application and runs it.

Paths are matched as they came, percent-encoded, one segment an id: the session `a/completions` can never be taken for
the completions of `a`.
"""

import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.supervisors import Multiprocess

from switchyard_py.capture.ledger import Ledger
from switchyard_py.config import ServeSettings
from switchyard_py.dialects import chat
from switchyard_py.endpoints import health, models, sessions
from switchyard_py.endpoints.answers import refuse
from switchyard_py.logs import configure_logging
from switchyard_py.services import open_services

log = logging.getLogger(__name__)

# Longer than the idle time of common client pools, so that it is the client that closes (AWS and nginx: 60 s).
KEEP_ALIVE_SECONDS = 130
MAX_REQUEST_HEAD_BYTES = 1024 * 1024
# A worker that does not answer for so long is replaced; importing everything takes seconds on a loaded machine.
WORKER_START_SECONDS = 60


def build_app(settings: ServeSettings, *, open_ledger: Callable[[Path], Ledger] = Ledger.open) -> ASGIApp:
    """The application of one process; its parts are opened and closed by the ASGI lifespan (see `open_services`)."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        async with open_services(settings, open_ledger) as services:
            yield {"services": services}

    session = "/v1/sessions/{session_id}"
    routes = [
        Route(chat.PATH, _ModelCalls(), methods=["POST"]),
        Route("/v1/models", models.list_models),
        Route("/v1/models/{model:path}", models.show_model),
        Route("/v1/sessions", sessions.list_sessions),
        Route(session, sessions.show_session),
        Route(f"{session}/completions", sessions.completions),
        Route(f"{session}/completions/{{uuid}}", sessions.completion),
        Route("/v1/stats", health.stats),
        Route("/readyz", health.ready),
        *(Route(path, health.live) for path in ("/health", "/healthz", "/livez")),
        Route("/", health.root),
    ]
    handlers = {HTTPException: refuse, Exception: refuse}
    return RawPaths(Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers))


def _build_process(settings: ServeSettings) -> ASGIApp:
    # A worker process starts with nothing but its settings.
    configure_logging(settings.log_level)
    return build_app(settings)


def serve(settings: ServeSettings, sock: socket.socket) -> int:
    """Serve on a bound socket until told to stop; the exit status of the program."""
    config = uvicorn.Config(
        partial(_build_process, settings),
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level=settings.log_level,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_worker_healthcheck=WORKER_START_SECONDS,
        h11_max_incomplete_event_size=MAX_REQUEST_HEAD_BYTES,
        lifespan="on",
        http="httptools",
        loop="uvloop",
    )
    if settings.workers > 1:
        Multiprocess(config, sockets=[sock]).run()
        return 0
    server = uvicorn.Server(config)
    server.run(sockets=[sock])
    return 0 if server.started else 1


class RawPaths:
    """Routes by the raw path, and takes a session out of a base URL of the form `/s/<id>/v1/...`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["raw_path"].decode("latin-1")
            scope = {**scope, "path": path, "root_path": ""}
            parts = path.split("/", 3)
            if len(parts) == 4 and parts[:2] == ["", "s"] and parts[3].startswith("v1"):
                scope["root_path"] = f"/s/{parts[2]}"
                scope["switchyard.session"] = unquote(parts[2], errors="surrogateescape")
        await self._app(scope, receive, send)


class _ModelCalls:
    """Hands a model call to the proxy of this process."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["state"]["services"].proxy(scope, receive, send)
