"""Errors in vLLM's own shapes.

EngineError           status and {"error": {"message", "type", "param", "code"}}
├── BadRequest        400, a value the engine refuses
├── InvalidBody       400, a body that does not fit the schema; type "Bad Request", with a space
├── ModelNotFound     404
└── EngineDead        500
"""

from collections.abc import Sequence
from typing import Any

from pydantic_core import ErrorDetails

DEATH_NOTICE = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class EngineError(Exception):
    """An error with the status and body vLLM answers."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"error": {"message": message, "type": kind, "param": param, "code": status}}


class BadRequest(EngineError):
    """A parameter out of range. With `param` the message names it, and `value` where one was sent."""

    def __init__(self, message: str, param: str | None = None, value: object = None, *, named: bool = True) -> None:
        if param is not None and named:
            suffix = "" if value is None else f", value={value}"
            message = f"{message} (parameter={param}{suffix})"
        super().__init__(400, "BadRequestError", message, param)


class InvalidBody(EngineError):
    """A body that is no JSON or does not fit the schema."""

    def __init__(self, details: Sequence[str], param: str | None) -> None:
        plural = "" if len(details) == 1 else "s"
        lines = "".join(f"\n  {detail}" for detail in details)
        super().__init__(400, "Bad Request", f"{len(details)} validation error{plural}:{lines}", param)

    @classmethod
    def of_fields(cls, errors: Sequence[ErrorDetails]) -> "InvalidBody":
        """From pydantic's account of the fields."""
        places = [".".join(["body", *(str(step) for step in error["loc"])]) for error in errors]
        details = [
            str({"type": error["type"], "loc": place, "msg": error["msg"], "input": _shown(error["input"])})
            for error, place in zip(errors, places, strict=True)
        ]
        return cls(details, places[0])

    @classmethod
    def of_json(cls, problem: str, position: int) -> "InvalidBody":
        """From a JSON syntax error at a character position."""
        place = f"body.{position}"
        detail = {"type": "json_invalid", "loc": place, "msg": "JSON decode error", "input": _shown({})}
        return cls([str({**detail, "ctx": {"error": problem}})], place)


class ModelNotFound(EngineError):
    """A model the simulator does not serve."""

    def __init__(self, model: str, served: str) -> None:
        message = f"The model `{model}` does not exist. Valid aliases: {served}."
        super().__init__(404, "NotFoundError", message, "model")


class EngineDead(EngineError):
    """The engine process ended in the middle of a call."""

    def __init__(self) -> None:
        super().__init__(500, "InternalServerError", DEATH_NOTICE)


def fault_error(status: int) -> EngineError:
    """The error of a scripted failure with this status."""
    kinds = {401: "AuthenticationError", 404: "NotFoundError", 429: "RateLimitError", 503: "ServiceUnavailableError"}
    kind = kinds.get(status, "BadRequestError" if status < 500 else "InternalServerError")
    return EngineError(status, kind, f"Simulated failure with status {status}.")


def _shown(value: object) -> str:
    return f"<dict of {len(value)} items>" if isinstance(value, dict) else str(value)
