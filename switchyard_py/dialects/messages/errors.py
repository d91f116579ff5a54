"""Errors as Anthropic's clients know them: `{"type": "error", "error": {"type", "message"}, "request_id"}`."""

from switchyard_py.dialects.dialect import prompt_is_too_long
from switchyard_py.dialects.messages.request import THREAD
from switchyard_py.errors import SwitchyardError
from switchyard_py.rawjson import encode

_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}

# Anthropic's words, which agents look for.
_TOO_LONG = "prompt is too long"
# On which Anthropic's SDKs go on without a thread, with the whole conversation in each request.
_NO_THREADS = {"error_code": "thread_unsupported_request", "unsupported": [THREAD]}


def error_body(error: SwitchyardError, request_id: str) -> bytes:
    """The error as a response body, with the engine's own words where it gave some."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    told: dict[str, object] = {"type": kind, "message": _message(error)}
    if error.param == THREAD:
        told["details"] = _NO_THREADS
    return encode({"type": "error", "error": told, "request_id": request_id})


def error_event(error: SwitchyardError, request_id: str) -> bytes:
    """The error as the last event of a stream that had begun."""
    return b"event: error\ndata: %b\n\n" % error_body(error, request_id)


def _message(error: SwitchyardError) -> str:
    return f"{_TOO_LONG}: {error}" if prompt_is_too_long(error) else str(error)
