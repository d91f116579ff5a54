"""The model ids agents may ask for, as OpenAI and Anthropic clients expect the list.

`max_model_len` is that of the target's own model, asked of the engine again and again: it may come up after the proxy.
"""

import asyncio
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from switchyard_py.config import Route
from switchyard_py.endpoints.answers import answer
from switchyard_py.errors import Kind, SwitchyardError
from switchyard_py.routing.catalogue import Catalogue
from switchyard_py.routing.table import RouteTable

INBOUND_FORMATS = ("openai-chat-completions", "openai-responses", "anthropic-messages")
# What the list says while the engine's own limit is not known.
ASSUMED_CONTEXT_WINDOW = 128_000


async def list_models(request: Request) -> Response:
    """GET /v1/models."""
    table: RouteTable = request.state.services.table
    entries = await _entries(table, request.state.services.catalogue)
    ids = [entry["id"] for entry in entries]
    listing = {"object": "list", "data": entries, "first_id": ids[0], "last_id": ids[-1], "has_more": False}
    return answer({**listing, "default_model": table.default_route.name, "model_pool": ids})


async def show_model(request: Request) -> Response:
    """GET /v1/models/{id}."""
    model = unquote(request.path_params["model"])
    if not model:
        return await list_models(request)
    for entry in await _entries(request.state.services.table, request.state.services.catalogue):
        if entry["id"] == model:
            return answer(entry)
    error = SwitchyardError(Kind.MODEL_NOT_FOUND, f"No route registered for model {model}.", param="model")
    return answer(error.body(), error.status, error.headers)


async def _entries(table: RouteTable, catalogue: Catalogue) -> list[dict[str, object]]:
    of_routes = await asyncio.gather(*(_route_entries(route, table, catalogue) for route in table.routes))
    unique = {entry["id"]: entry for entries in reversed(of_routes) for entry in entries}
    return [entry for entries in of_routes for entry in entries if unique[entry["id"]] is entry]


async def _route_entries(route: Route, table: RouteTable, catalogue: Catalogue) -> list[dict[str, object]]:
    length = await catalogue.max_model_len(route.target, route.target.model)
    profile: dict[str, object] = {"profile": route.type}
    if route.type == "passthrough":
        profile["source"] = "configured"
    entries = [_entry(route.name, route, profile, length)]
    entries += [_entry(alias, route, {**profile, "alias_of": route.name}, length) for alias in route.aliases]
    if route.type == "passthrough":
        found: dict[str, object] = {"profile": route.type, "source": "discovered"}
        for name in await table.discovered(route):
            entries.append(_entry(name, None, found, await catalogue.max_model_len(route.target, name)))
    return entries


def _entry(name: str, route: Route | None, profile: dict[str, object], length: int | None) -> dict[str, object]:
    entry: dict[str, object] = {
        "id": name,
        "object": "model",
        "type": "model",
        "created": 0,
        "owned_by": "switchyard",
        "display_name": (route.display_name if route else "") or name,
        "capabilities": {
            "streaming": True,
            "tool_calling": True,
            "context_window": length or ASSUMED_CONTEXT_WINDOW,
            "supported_inbound_formats": INBOUND_FORMATS,
        },
    }
    if route is not None and route.description:
        entry["description"] = route.description
    entry["switchyard"] = profile
    if length is not None:
        entry["max_model_len"] = length
    return entry
