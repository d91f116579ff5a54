"""Keys are asked for around endpoints, once the router has found them, so that no spelling of a path gets by."""

from starlette.types import ASGIApp, Receive, Scope, Send

from switchyard_py.access import Access
from switchyard_py.endpoints.answers import Refused, answer
from switchyard_py.errors import RequestRefused
from switchyard_py.sessions import header_values


class ReaderGate:
    """Lets through what brings a reader key, if the bundle asks for one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            _access(scope).admit_reader(header_values(scope["headers"]))
        except RequestRefused as error:
            raise Refused(error.kind, str(error)) from None
        await self._app(scope, receive, send)


class CallerGate:
    """Lets through what brings a caller key or a signed session key, if the bundle asks for one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        try:
            _access(scope).admit_caller(header_values(scope["headers"]))
        except RequestRefused as error:
            app = answer(error.body(), error.status, error.headers)
        await app(scope, receive, send)


def _access(scope: Scope) -> Access:
    access: Access = scope["state"]["services"].access
    return access
