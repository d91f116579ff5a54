"""Chat messages as they are compared: exactly as the strict reader does, and as a template is likely to render them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from switchyard_py.rawjson import encode
from switchyard_py.rollouts.refusal import Refusal, Rule

ROLES = ("system", "developer", "user", "assistant", "tool")

Message = dict[str, Any]

_THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)


def normalise(message: object) -> Message:
    """A message in the form in which strict mode compares and converts it.

    `role`, `content` (a text, never null), an assistant's `tool_calls` as `{id, type, function{name, arguments}}` where
    it has any, a tool message's `tool_call_id`; everything else is dropped.

    Raises:
        Refusal: N1 to N4.
    """
    if not isinstance(message, dict):
        raise Refusal(Rule.N1, "a message is not an object")
    role = message.get("role")
    if role not in ROLES:
        raise Refusal(Rule.N1, f"a message has the role {role!r}")
    normal: Message = {"role": role, "content": _content(message.get("content"), role)}
    calls = message.get("tool_calls")
    if role == "assistant" and calls:
        if not isinstance(calls, list):
            raise Refusal(Rule.N3, "tool_calls is not a list")
        normal["tool_calls"] = [_tool_call(call) for call in calls]
    if role == "tool":
        normal["tool_call_id"] = _name(message.get("tool_call_id"), Rule.N4, "a tool message has no tool_call_id")
    return normal


def _content(content: object, role: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refusal(Rule.N2, f"content of the role {role} is neither a text nor a list")
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise Refusal(Rule.N2, f"content of the role {role} has a part without text (type {kind!r})")
    return "".join(part["text"] for part in content)


def _tool_call(call: object) -> Message:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise Refusal(Rule.N3, "a tool call has no function")
    name = _name(function.get("name"), Rule.N3, "a tool call has no name")
    if not isinstance(function.get("arguments"), str):
        raise Refusal(Rule.N3, f"the arguments of a call of {name} are not a text")
    return {
        "id": _name(call.get("id"), Rule.N3, f"a call of {name} has no id"),
        "type": "function",
        "function": {"name": name, "arguments": function["arguments"]},
    }


def _name(value: object, rule: Rule, fault: str) -> str:
    if not isinstance(value, str) or not value:
        raise Refusal(rule, fault)
    return value


@dataclass(frozen=True, slots=True)
class Told:
    """What of a message a chat template can render, whatever the form in which it was sent.

    Null, absent and empty are the same; the name, id and cache marks of a message are left out. `other` is the JSON of
    parts of the content that are no text.
    """

    role: str
    text: str
    reasoning: str
    tool_calls: tuple[tuple[str, str], ...]
    """Name and arguments of each."""
    other: bytes = b""

    @property
    def thinks_in_text(self) -> bool:
        return _THINKING.search(self.text) is not None

    @property
    def text_without_thinking(self) -> str:
        return _THINKING.sub("", self.text)


def told(message: Message) -> Told:
    """Read a message of any form; what is malformed counts as absent."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if _is_text_part(part)]
    other = [part for part in parts if not _is_text_part(part)]
    return Told(
        role=str(message.get("role")),
        text=content if isinstance(content, str) else "".join(texts),
        reasoning=_first_text(message.get("reasoning"), message.get("reasoning_content")),
        tool_calls=tuple(
            (str(function.get("name")), _as_text(function.get("arguments"))) for function in _functions(message)
        ),
        other=encode(other) if other else b"",
    )


def first_tool_call_id(message: Message) -> str | None:
    """The id of the first of an assistant message's tool calls."""
    calls = message.get("tool_calls")
    first = calls[0] if isinstance(calls, list) and calls else None
    call_id = first.get("id") if isinstance(first, dict) else None
    return call_id if isinstance(call_id, str) else None


def same_json(one: str, other: str) -> bool:
    """Whether two texts are JSON of the same value."""
    try:
        return bool(orjson.loads(one) == orjson.loads(other))
    except orjson.JSONDecodeError:
        return False


def shared_messages(one: list[Message], other: list[Message]) -> int:
    """How many messages two lists have in common from the beginning."""
    start, end = 0, min(len(one), len(other))
    if one[:end] == other[:end]:
        return end
    while start < end:
        middle = (start + end + 1) // 2
        if one[start:middle] == other[start:middle]:
            start = middle
        else:
            end = middle - 1
    return start


def _is_text_part(part: object) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _first_text(*values: object) -> str:
    return next((value for value in values if isinstance(value, str) and value), "")


def _functions(message: Message) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    found = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return [function for function in found if isinstance(function, dict)]


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else encode(value).decode()
