"""JSON answers of the reading side: `{"detail", "code"}` for every error."""

import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from switchyard_py.errors import SOURCE_HEADER, SWITCHYARD, Kind
from switchyard_py.rawjson import encode

log = logging.getLogger(__name__)

_OF_THE_FRAMEWORK = {404: Kind.NOT_FOUND, 405: Kind.METHOD_NOT_ALLOWED}


class Refused(HTTPException):
    """A request of the reading side that cannot be answered. `more` are keys beside `detail` and `code`."""

    def __init__(self, kind: Kind, detail: str, **more: object) -> None:
        super().__init__(kind.value.status, detail)
        self.kind = kind
        self.more = more


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(encode(value), status, headers, media_type="application/json")


async def refuse(request: Request, error: Exception) -> Response:
    """The handler for refusals, for what the framework itself refuses, for a store that cannot be read, and for
    mistakes in this program."""
    if isinstance(error, OSError):
        log.error("the store cannot be read: %s", error)
        error = Refused(Kind.CAPTURE_UNAVAILABLE, f"the store refuses: {error.strerror or 'input/output error'}")
    headers = {SOURCE_HEADER: SWITCHYARD}
    if not isinstance(error, HTTPException):
        body = {"detail": "The proxy failed; its log says why.", "code": Kind.INTERNAL.value.code}
        return answer(body, Kind.INTERNAL.value.status, headers)
    kind = error.kind if isinstance(error, Refused) else _OF_THE_FRAMEWORK.get(error.status_code, Kind.INVALID_BODY)
    headers.update({**kind.value.headers, **(error.headers or {})})
    more = error.more if isinstance(error, Refused) else {}
    # The trainer knows the body of an unknown session, which has no code.
    code = {} if kind is Kind.UNKNOWN_SESSION else {"code": kind.value.code}
    return answer({"detail": error.detail, **code, **more}, error.status_code, headers)
