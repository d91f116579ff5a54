"""Assembles the ASGI application.

Paths are matched as they came, percent-encoded, one segment an id: the session `a/completions` can never be taken for
the completions of `a`.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from switchyard_py.capture.ledger import Ledger
from switchyard_py.config import ServeSettings
from switchyard_py.dialects import DIALECTS
from switchyard_py.dialects.dialect import Dialect
from switchyard_py.endpoints import health, metrics, models, rollouts, sessions
from switchyard_py.endpoints.answers import refuse
from switchyard_py.endpoints.gates import CallerGate, ReaderGate
from switchyard_py.lifecycle import RunningCalls
from switchyard_py.services import open_services

MODEL_LIST = "/v1/models"
OPEN_PATHS = ("/", "/health", "/healthz", "/livez", "/readyz")
"""Nobody is asked for a key there."""


def build_app(
    settings: ServeSettings,
    *,
    open_ledger: Callable[..., Ledger] = Ledger.open,
    calls: RunningCalls | None = None,
) -> ASGIApp:
    """The application of one process; its parts are opened and closed by the ASGI lifespan (see `open_services`).

    Who serves it with `calls` of its own can end the calls that run.
    """
    running = RunningCalls() if calls is None else calls

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        async with open_services(settings, running, open_ledger) as services:
            yield {"services": services}

    session = "/v1/sessions/{session_id}"
    routes = [
        *(Route(dialect.path, _ModelCalls(dialect), methods=["POST"]) for dialect in DIALECTS),
        Route(MODEL_LIST, models.list_models),
        Route(f"{MODEL_LIST}/{{model:path}}", models.show_model),
        Route("/v1/sessions", sessions.list_sessions),
        Route(session, sessions.one_session, methods=["GET", "DELETE"]),
        Route(f"{session}/seal", sessions.seal_session, methods=["POST"]),
        Route(f"{session}/completions", sessions.completions),
        Route(f"{session}/completions/{{uuid}}", sessions.completion),
        Route(f"{session}/lineage", rollouts.show_lineage),
        Route(f"{session}/rollout", rollouts.show_rollout),
        Route("/v1/stats", metrics.stats),
        Route("/metrics", metrics.metrics),
        Route("/readyz", health.ready),
        *(Route(path, health.live) for path in ("/health", "/healthz", "/livez")),
        Route("/", health.root),
    ]
    handlers = {HTTPException: refuse, OSError: refuse, Exception: refuse}
    return RawPaths(Starlette(routes=_gated(routes), lifespan=lifespan, exception_handlers=handlers))


class RawPaths:
    """Routes by the raw path, and takes a session out of a base URL of the form `/s/<id>/v1/...`.

    Model calls go to the proxy at once: it answers its own errors, and the layers around a route cost a small call 6 %.
    """

    def __init__(self, app: Starlette) -> None:
        self._app = app
        routes = (route for route in app.routes if isinstance(route, Route))
        self._calls = {route.path: route.endpoint for route in routes if isinstance(route.endpoint, _ModelCalls)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self._app
        if scope["type"] == "http":
            path = scope["raw_path"].decode("latin-1")
            scope = {**scope, "path": path, "root_path": ""}
            parts = path.split("/", 3)
            if len(parts) == 4 and parts[:2] == ["", "s"] and parts[3].startswith("v1"):
                scope["root_path"] = f"/s/{parts[2]}"
                scope["switchyard.session"] = unquote(parts[2], errors="surrogateescape")
                path = f"/{parts[3]}"
            if scope["method"] == "POST":
                app = self._calls.get(path, app)
        await app(scope, receive, send)


def _gated(routes: list[Route]) -> list[Route]:
    """Ask for a reader key wherever nothing else is said, so that a new route is not open by oversight."""
    for route in routes:
        if route.path.startswith(MODEL_LIST):
            route.app = CallerGate(route.app)
        elif route.path not in OPEN_PATHS and not isinstance(route.endpoint, _ModelCalls):
            route.app = ReaderGate(route.app)
    return routes


class _ModelCalls:
    """Hands a model call in one dialect to the proxy of this process, which asks for the caller's key itself."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["state"]["services"].proxy.serve(self._dialect, scope, receive, send)
