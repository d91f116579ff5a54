"""From what went wrong at an engine to what the agent is told, in words that name the target and never a secret."""

from collections.abc import Mapping

import orjson

from switchyard_py.config import Target
from switchyard_py.engines.vllm import EngineFault, message_of
from switchyard_py.errors import EngineRefused, Kind, SwitchyardError
from switchyard_py.routing.credentials import hide_credentials
from switchyard_py.upstream import BodyTooLarge, EventTooLarge, UpstreamError, UpstreamTimeout

# Retry advice and rate limits of the engine stay useful to the agent.
_PASSED_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry")
_PASSED_PREFIX = "x-ratelimit-"
_MAX_TEXT = 4000
_TYPES = {400: "invalid_request_error", 404: "not_found_error", 413: "invalid_request_error", 429: "rate_limit_error"}


def engine_failed(error: UpstreamError | EngineFault, target: Target) -> SwitchyardError:
    """The error for a reply that did not come about or is no answer."""
    if isinstance(error, EngineFault):
        text = hide_credentials(str(error), target)
        if error.given is not None:
            given = hide_credentials(error.given, target)
            return EngineRefused(Kind.UPSTREAM_ERROR.value.status, text, given=given)
        return SwitchyardError(Kind.UPSTREAM_ERROR, f"Target {target.id}: {text}.")
    kind, text = Kind.UPSTREAM_ERROR, f"Target {target.id}: {error}"
    if isinstance(error, UpstreamTimeout):
        kind = Kind.UPSTREAM_TIMEOUT
        text += f" ({error.which}_timeout of the target)"
    elif isinstance(error, (BodyTooLarge, EventTooLarge)):
        text += " (a limit of the proxy)"
    if error.repeated:
        times = "once" if error.repeated == 1 else f"{error.repeated} times"
        text += f"; sent again {times} (retries {target.retries}, retry_budget {target.retry_budget:g} s of the target)"
    return SwitchyardError(kind, text + ".")


def engine_refused(status: int, headers: Mapping[str, str], body: bytes, target: Target) -> SwitchyardError:
    """The error for a reply whose status is not 200: the engine's own words, with its status, in the caller's shape."""
    if status in (401, 403):
        text = f"Target {target.id} refused the proxy's own key (HTTP {status}): check `api_key` of the target."
        return SwitchyardError(Kind.UPSTREAM_AUTH, text)
    if not 400 <= status <= 599:
        text = f"Target {target.id} answered HTTP {status}, which is no answer; redirects are not followed."
        return SwitchyardError(Kind.UPSTREAM_ERROR, text)
    body = hide_credentials(body, target)
    passed = {
        name.lower(): hide_credentials(value, target)
        for name, value in headers.items()
        if name.lower() in _PASSED_HEADERS or name.lower().startswith(_PASSED_PREFIX)
    }
    message = message_of(body)
    if message is not None:
        return EngineRefused(status, message, given=body, passed_headers=passed)
    message = _text_of(body) or f"The engine of target {target.id} answered HTTP {status} without a text."
    error = {"message": message, "type": _TYPES.get(status, "server_error" if status >= 500 else "upstream_error")}
    given = orjson.dumps({"error": {**error, "param": None, "code": "upstream_error"}})
    return EngineRefused(status, message, given=given, passed_headers=passed)


def _text_of(body: bytes) -> str:
    """What an error body says, whatever its shape: `message`, `detail`, `error`, else the text itself."""
    text = body.decode(errors="replace").strip()[:_MAX_TEXT]
    try:
        value = orjson.loads(body)
    except ValueError:
        return text
    if isinstance(value, dict):
        said = next((value[key] for key in ("message", "detail", "error") if value.get(key)), None)
        return said if isinstance(said, str) else text
    return value if isinstance(value, str) else text
