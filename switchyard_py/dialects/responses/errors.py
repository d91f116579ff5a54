"""Errors as clients of OpenAI's Responses know them.

A stream ends with an `error` event and `response.failed`, as OpenAI's own do: its SDKs raise on an event with an
`error` inside and take `response.failed` for an event like any other; Codex ignores `error` and raises on the latter.
"""

from typing import Any, cast

from switchyard_py.dialects.chat import error_body as chat_error_body
from switchyard_py.dialects.dialect import prompt_is_too_long
from switchyard_py.errors import EngineRefused, SwitchyardError
from switchyard_py.rawjson import encode

TOO_LONG = "context_length_exceeded"
_STALLED = 408


def error_body(error: SwitchyardError) -> bytes:
    """The error as a response body. The engine's own is passed on, but for a prompt that does not fit: that has the
    code OpenAI gives it, with the engine's words."""
    return encode({"error": _told(error)}) if prompt_is_too_long(error) else chat_error_body(error)


def error_fields(error: SwitchyardError) -> dict[str, Any]:
    """The fields of the `error` event beside its type and number."""
    told = _told(error)
    return {"code": told["code"], "message": told["message"], "param": told["param"], "error": told}


def failure(error: SwitchyardError) -> dict[str, Any]:
    """The `error` of a failed response. Codex gives up after `invalid_prompt` and tries again after the others."""
    if prompt_is_too_long(error):
        code = TOO_LONG
    elif error.status == 429:
        code = "rate_limit_exceeded"
    else:
        code = "server_error" if error.status >= 500 or error.status == _STALLED else "invalid_prompt"
    return {"code": code, "message": str(error)}


def _told(error: SwitchyardError) -> dict[str, Any]:
    told = cast(dict[str, Any], error.body()["error"])
    if isinstance(error, EngineRefused) and error.status < 500:
        told["type"] = "rate_limit_error" if error.status == 429 else "invalid_request_error"
    if prompt_is_too_long(error):
        told["code"] = TOO_LONG
    return told
