"""What a caller is told when a call does not go well: one table of kinds, and the exceptions that carry one.

    SwitchyardError        anything a caller is told of; its kind decides how it looks
    ├── RequestRefused     the request itself cannot be served: nothing was sent to the engine
    │   └── RequestStalled its body stopped in the middle
    ├── ShuttingDown       this process is ending: the call was not begun, or ended before its answer was whole
    └── EngineRefused      the engine answered with an error of its own; its status and text are kept

Statuses, types and codes follow what OpenAI and Anthropic clients expect of a server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

PROVIDER = "provider"
SWITCHYARD = "switchyard"
"""Values of the header `x-switchyard-error-source`: who is to blame, the engine or the proxy."""

SOURCE_HEADER = "x-switchyard-error-source"
RETRY_HEADER = "x-should-retry"
"""Wins over what SDKs of OpenAI and Anthropic do by status: they repeat 408, 409, 429 and all from 500."""

BUSY_SECONDS = 2
"""After how many seconds to ask an engine again that is full and does not say when."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How one kind of error looks: HTTP status, OpenAI `type` and `code`, and seconds for `Retry-After`.

    `should_retry`: whether the agent does well to send the same again; None leaves it to what it does by status.
    """

    status: int
    type: str
    code: str
    retry_after: int | None = None
    should_retry: bool | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers that go with every error of the kind."""
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        if self.should_retry is not None:
            headers[RETRY_HEADER] = str(self.should_retry).lower()
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


class Kind(Enum):
    """Every kind of error a caller can be told of."""

    INVALID_BODY = Shape(400, "invalid_request_error", "invalid_body")
    EMPTY_MESSAGES = Shape(400, "invalid_request_error", "empty_messages")
    INVALID_SESSION = Shape(400, "invalid_request_error", "invalid_session")
    SESSION_REQUIRED = Shape(400, "invalid_request_error", "session_required")
    INVALID_PARAMETER = Shape(400, "invalid_request_error", "invalid_parameter")
    INVALID_API_KEY = Shape(401, "authentication_error", "invalid_api_key", should_retry=False)
    PERMISSION_DENIED = Shape(403, "permission_error", "permission_denied", should_retry=False)
    MODEL_NOT_FOUND = Shape(404, "not_found_error", "model_not_found")
    NOT_FOUND = Shape(404, "not_found_error", "not_found")
    CAPTURE_OFF = Shape(404, "not_found_error", "capture_off")
    UNKNOWN_SESSION = Shape(404, "not_found_error", "unknown_session")
    UNKNOWN_RECORD = Shape(404, "not_found_error", "unknown_record")
    SESSION_GONE = Shape(404, "not_found_error", "session_gone")
    METHOD_NOT_ALLOWED = Shape(405, "invalid_request_error", "method_not_allowed")
    REQUEST_TIMEOUT = Shape(408, "invalid_request_error", "request_timeout", should_retry=True)
    OPEN_CALLS = Shape(409, "conflict_error", "open_calls", should_retry=True)
    SESSION_SEALED = Shape(409, "conflict_error", "session_sealed", should_retry=False)
    SESSION_DELETED = Shape(409, "conflict_error", "session_deleted", should_retry=False)
    REQUEST_TOO_LARGE = Shape(413, "invalid_request_error", "request_too_large")
    UNSUPPORTED_ENCODING = Shape(415, "invalid_request_error", "unsupported_encoding")
    ROLLOUT_REFUSED = Shape(422, "invalid_request_error", "rollout_refused")
    # The same request meets the same mistake, and may have been answered by the engine before that.
    INTERNAL = Shape(500, "server_error", "internal_error", should_retry=False)
    EXTRA_MISSING = Shape(501, "server_error", "extra_missing", should_retry=False)
    # Engines restart, and a generation that was cut off is not going on.
    UPSTREAM_ERROR = Shape(502, "server_error", "upstream_error", should_retry=True)
    UPSTREAM_AUTH = Shape(502, "server_error", "upstream_auth", should_retry=False)
    CAPTURE_UNAVAILABLE = Shape(503, "server_error", "capture_unavailable", retry_after=1, should_retry=True)
    SHUTTING_DOWN = Shape(503, "server_error", "shutting_down", retry_after=5, should_retry=True)
    # The generation was aborted, so a repeat runs alone.
    UPSTREAM_TIMEOUT = Shape(504, "server_error", "upstream_timeout", should_retry=True)


class SwitchyardError(Exception):
    """An error a caller is told of. `str()` is the message: plain words, no Python repr, no credentials."""

    source = SWITCHYARD

    def __init__(self, kind: Kind, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.param = param

    @property
    def status(self) -> int:
        return self.kind.value.status

    @property
    def code(self) -> str:
        """The machine-readable name of the error."""
        return self.kind.value.code

    @property
    def headers(self) -> dict[str, str]:
        """Headers that go with the error."""
        return {SOURCE_HEADER: self.source, **self.kind.value.headers}

    def body(self) -> dict[str, object]:
        """The OpenAI error object: `{"error": {"message", "type", "param", "code"}}`."""
        shape = self.kind.value
        return {"error": {"message": str(self), "type": shape.type, "param": self.param, "code": shape.code}}


class RequestRefused(SwitchyardError):
    """The request cannot be served; nothing was sent to the engine."""


class RequestStalled(RequestRefused):
    """The agent stopped in the middle of its request."""

    def __init__(self, message: str) -> None:
        super().__init__(Kind.REQUEST_TIMEOUT, message)

    @property
    def headers(self) -> dict[str, str]:
        # What may still come of the body is no request.
        return {**super().headers, "connection": "close"}


class ShuttingDown(SwitchyardError):
    """This process is ending: the call was not begun, or was ended before its answer was whole."""

    def __init__(self, message: str) -> None:
        super().__init__(Kind.SHUTTING_DOWN, message)

    @property
    def headers(self) -> dict[str, str]:
        # The next attempt should look for another process, not come back over this connection.
        return {**super().headers, "connection": "close"}


class EngineRefused(SwitchyardError):
    """The engine answered with an error; its status, text and `Retry-After` are kept.

    A 429 without one gets one: Codex ends its turn otherwise, however many retries it is allowed.

    `given` is the engine's body where it has the OpenAI shape, else None: it is passed on as it is.
    """

    source = PROVIDER

    def __init__(
        self, status: int, message: str, *, given: bytes | None = None, passed_headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(Kind.UPSTREAM_ERROR, message)
        self.given = given
        self._status = status
        self._passed = dict(passed_headers or {})

    @property
    def status(self) -> int:
        return self._status

    @property
    def headers(self) -> dict[str, str]:
        advice = {"retry-after": str(BUSY_SECONDS)} if self._status == 429 else {}
        return {SOURCE_HEADER: self.source, **advice, **self._passed}
