"""From the levels of the file to one target per route: bundle defaults < route defaults < route keys < target keys.

The highest level that gives a setting decides it whole: mappings and lists are replaced, never merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from switchyard_py.config.capturability import body_fault
from switchyard_py.config.document import Location, path_text
from switchyard_py.config.errors import ConfigError
from switchyard_py.config.fields import target_key_fault
from switchyard_py.config.keys import key_from_environment, resolve_auth
from switchyard_py.config.schema import BundleEntry, RouteEntry, TargetDefaults, TargetEntry
from switchyard_py.config.settings import Bundle, CaptureSettings, Route, ServerSettings, SessionSettings, Target

_Levels = list[tuple[Location, TargetDefaults]]


def resolve(path: Path, entry: BundleEntry, environ: Mapping[str, str]) -> Bundle:
    """Return the bundle that `entry`, read from `path`, describes. Raises ConfigError for contradictions."""
    if not entry.routes:
        raise ConfigError(path, "routes", "must contain at least one route")
    routes = tuple(_route(path, entry.defaults, name, route, environ) for name, route in entry.routes.items())
    _refuse_shared_names(path, routes)
    marked = [route for route in routes if route.default]
    if len(marked) > 1:
        location = path_text(("routes", marked[1].name, "default"))
        raise ConfigError(path, location, f"{marked[0].name!r} is the default already: remove one of the two")
    return Bundle(
        path=path,
        routes=routes,
        default_route=marked[0] if marked else routes[0],
        capture=CaptureSettings(**entry.capture.given()),
        sessions=SessionSettings(**entry.sessions.given()),
        auth=resolve_auth(path, entry.auth, environ),
        server=ServerSettings(**entry.server.given()),
    )


def _route(path: Path, defaults: TargetDefaults, name: str, entry: RouteEntry, environ: Mapping[str, str]) -> Route:
    here: Location = ("routes", name)
    levels: _Levels = [
        (("defaults",), defaults),
        ((*here, "defaults"), entry.defaults),
        (here, entry),
        ((*here, "target"), entry.target),
    ]
    beside, inside = entry.given(), entry.target.given()
    if "engine" in beside and "engine" in inside and beside["engine"] != inside["engine"]:
        location = path_text((*here, "target", "token_capture_engine"))
        raise ConfigError(path, location, "contradicts token_capture_engine beside target: give it once")
    values, origins = _merged(path, levels, environ)
    if "model" not in values:
        if entry.type != "passthrough":
            problem = "no model: give target.model, or type: passthrough to send whatever model the agent asks for"
            raise ConfigError(path, path_text(here), problem)
        values["model"] = ""
    if "base_url" not in values:
        raise ConfigError(path, path_text(here), "no base_url: give one such as base_url: http://127.0.0.1:8000/v1")
    target = Target(**values)
    fault = body_fault(target)
    if fault:
        setting, key, problem = fault
        raise ConfigError(path, path_text((*origins[setting], setting, key)), problem)
    return Route(
        name=name,
        type="passthrough" if entry.type == "passthrough" else "model",
        target=target,
        aliases=entry.aliases,
        default=entry.default,
        display_name=entry.display_name or name,
        description=entry.description,
    )


def _merged(path: Path, levels: _Levels, environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Location]]:
    """Return the settings that the levels, lowest first, come to, and the level that decided each."""
    values: dict[str, Any] = {}
    origins: dict[str, Location] = {}
    for location, level in levels:
        for name, value in level.given().items():
            if name == "api_key_env":
                values["api_key"] = key_from_environment(path, (*location, name), value, environ, target_key_fault)
            elif name in TargetEntry.model_fields:
                values[name] = value
                origins[name] = location
    return values, origins


def _refuse_shared_names(path: Path, routes: tuple[Route, ...]) -> None:
    owners = {route.name: "a route" for route in routes}
    for route in routes:
        for index, alias in enumerate(route.aliases):
            if alias in owners:
                location = path_text(("routes", route.name, "aliases", index))
                raise ConfigError(path, location, f"{alias!r} is already the name of {owners[alias]}: remove one")
            owners[alias] = f"an alias of route {route.name!r}"
