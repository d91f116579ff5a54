"""Which target answers a model id: a route by name or alias, a model of a passthrough engine, or the default route."""

from dataclasses import dataclass

from switchyard_py.config import Bundle, Route
from switchyard_py.errors import Kind, RequestRefused
from switchyard_py.routing.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a call goes: the route that won, and the model name its engine is asked for."""

    route: Route
    model: str


class RouteTable:
    """The routes of a bundle by the ids agents may ask for; ids match exactly."""

    def __init__(self, bundle: Bundle, catalogue: Catalogue) -> None:
        self.routes = bundle.routes
        self.default_route = bundle.default_route
        self._catalogue = catalogue
        self._by_id = {name: route for route in bundle.routes for name in (route.name, *route.aliases)}
        self._passthrough = tuple(route for route in bundle.routes if route.type == "passthrough")

    async def find(self, asked: str | None) -> Destination:
        """The destination of a call that asked for the model id `asked` (None: it gave none).

        Raises:
            RequestRefused: no route answers it.
        """
        route = self._by_id.get(asked or "")
        if route is not None and asked is not None:
            return Destination(route, route.target.model or asked)
        for route in self._passthrough if asked else ():
            if asked and await self._catalogue.serves(route.target, asked):
                return Destination(route, asked)
        if self.default_route.default:
            return Destination(self.default_route, self.default_route.target.model or asked or "")
        known = ", ".join(self._by_id)
        text = f"No route registered for model {asked or '<missing>'}. This proxy serves: {known}."
        raise RequestRefused(Kind.MODEL_NOT_FOUND, text, param="model")

    async def discovered(self, route: Route) -> list[str]:
        """Ids of the models a passthrough engine has, beside the routes' own ids."""
        return [name for name in await self._catalogue.names(route.target) if name not in self._by_id]
