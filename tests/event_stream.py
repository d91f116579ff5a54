"""What an agent reads out of a chat stream."""

import json
from typing import Any

DONE = "[DONE]"


def events(body: bytes) -> list[Any]:
    """The data of each event: parsed, or the text `[DONE]`. Comment lines are left out."""
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
    return [DONE if line == b"[DONE]" else json.loads(line) for line in lines]


def joined(chunks: list[Any], key: str) -> str:
    """One text of the first choice's deltas, put together."""
    return "".join(delta.get(key) or "" for delta in deltas(chunks))


def arguments(chunks: list[Any]) -> str:
    """The arguments of all tool calls of the first choice, put together."""
    calls = [call for delta in deltas(chunks) for call in delta.get("tool_calls") or []]
    return "".join(call["function"].get("arguments") or "" for call in calls)


def deltas(chunks: list[Any]) -> list[dict[str, Any]]:
    return [
        choice["delta"]
        for chunk in chunks
        if isinstance(chunk, dict)
        for choice in chunk.get("choices") or []
        if choice["index"] == 0
    ]


def finish_reason(chunks: list[Any]) -> str | None:
    """The finish reason of the first choice, None when none was seen."""
    choices = [choice for chunk in chunks if isinstance(chunk, dict) for choice in chunk.get("choices") or []]
    reasons = [choice.get("finish_reason") for choice in choices if choice["index"] == 0]
    return next(filter(None, reasons), None)
