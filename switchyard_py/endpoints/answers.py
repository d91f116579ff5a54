"""JSON answers of the reading side: `{"detail", "code"}` for every error."""

from collections.abc import Mapping

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from switchyard_py.errors import SOURCE_HEADER, SWITCHYARD

_CODES = {404: "not_found", 405: "method_not_allowed"}


class Refused(HTTPException):
    """A request of the reading side that cannot be answered. `code` None leaves it out of the body."""

    def __init__(self, status: int, detail: str, code: str | None) -> None:
        super().__init__(status, detail)
        self.code = code


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


async def refuse(request: Request, error: Exception) -> Response:
    """The handler for refusals, for what the framework itself refuses, and for mistakes in this program."""
    headers = {SOURCE_HEADER: SWITCHYARD}
    if not isinstance(error, HTTPException):
        return answer({"detail": "The proxy failed; its log says why.", "code": "internal_error"}, 500, headers)
    headers.update(error.headers or {})
    code = error.code if isinstance(error, Refused) else _CODES.get(error.status_code, "error")
    body = {"detail": error.detail} if code is None else {"detail": error.detail, "code": code}
    return answer(body, error.status_code, headers)
