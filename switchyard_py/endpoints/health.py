"""Whether the proxy lives, and whether it can do its work."""

import asyncio
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from switchyard_py import __version__
from switchyard_py.endpoints.answers import answer
from switchyard_py.services import Services

STORE_SECONDS = 2.0


async def root(request: Request) -> Response:
    """GET and HEAD /: some agents look before they call."""
    return answer({"service": "switchyard", "version": __version__})


async def live(request: Request) -> Response:
    """GET and HEAD /health, /healthz, /livez: the event loop turns; nothing else is asked."""
    return answer({"status": "ok"})


async def ready(request: Request) -> Response:
    """GET and HEAD /readyz: 503 names the checks that fail, each with a reason."""
    services: Services = request.state.services
    if services.calls.draining:
        return _not_ready({"draining": "the proxy is shutting down and takes no new calls"})
    checks = {"store": await _store_fault(services), "engines": await _engines_fault(services)}
    failing = {name: fault for name, fault in checks.items() if fault is not None}
    if failing:
        return _not_ready(failing)
    return answer({"status": "ok", "checks": list(checks)})


def _not_ready(failing: Mapping[str, str]) -> Response:
    return answer({"status": "not ready", "failing": failing}, 503, {"retry-after": "2"})


async def _store_fault(services: Services) -> str | None:
    return None if services.ledger is None else await services.ledger.fault(STORE_SECONDS)


async def _engines_fault(services: Services) -> str | None:
    """Why no engine can be reached; one that answers is enough."""
    targets = [route.target for route in services.table.routes]
    if any(await asyncio.gather(*map(services.catalogue.answers, targets))):
        return None
    return "no engine answers: " + ", ".join(dict.fromkeys(target.id for target in targets))
