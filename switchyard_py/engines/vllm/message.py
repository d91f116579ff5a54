"""The assistant message of a reply: read off a buffered one, or put together from a stream's deltas."""

from dataclasses import dataclass, field
from typing import Any

from switchyard_py.rawjson import NULL, Slice, decode, encode

# Parts of an assistant message a record keeps, in the order they are written.
_KEPT = ("content", "tool_calls", "reasoning", "reasoning_content", "refusal", "function_call")
_REASONING = ("reasoning", "reasoning_content")
_NOTHING = (NULL, b'""', b"[]")


def is_null(value: Slice | None) -> bool:
    """Whether a key is missing or null."""
    return value is None or bytes(value) == NULL


def hide_reasoning(message: dict[str, Slice]) -> None:
    """Make a buffered message look as with `include_reasoning: false`: the keys stay, their text goes."""
    for key in _REASONING:
        if key in message:
            message[key] = NULL


def drop_reasoning(delta: dict[str, Slice]) -> None:
    """The same for a stream's delta: one with content or a tool call has `reasoning: null`, any other says nothing.

    vLLM 0.32 does so for all that its parsers put out, which the role's delta is not.
    """
    if "role" in delta:
        return
    rest = {key: value for key, value in delta.items() if key not in _REASONING}
    delta.clear()
    if any(bytes(rest.get(key, NULL)) not in _NOTHING for key in ("content", "tool_calls")):
        if "content" in rest:
            delta["content"] = rest.pop("content")
        delta["reasoning"] = NULL
        delta.update(rest)


def kept_message(message: dict[str, Slice]) -> dict[str, Slice]:
    """What a record keeps of a buffered assistant message: its parts that are not null, as the engine spelled them."""
    kept = {key: message[key] for key in _KEPT if not is_null(message.get(key))}
    if bytes(kept.get("tool_calls", b"[]")) == b"[]":
        kept.pop("tool_calls", None)
    return kept


@dataclass(slots=True)
class _ToolCall:
    id: Any = None
    type: Any = "function"
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


class MessageBuilder:
    """Collects the deltas of one choice. `drops_whitespace`: the agent does not get what only leads up to a call."""

    def __init__(self, *, drops_whitespace: bool = True) -> None:
        self.malformed = False
        """Whether a delta said something that `message` cannot repeat, because it has another form than vLLM's."""
        self._drops_whitespace = drops_whitespace
        self._texts: dict[str, list[str]] = {}
        self._tools: dict[int, _ToolCall] = {}

    def take(self, delta: dict[str, Slice]) -> str | None:
        """Add one delta; returns its content text, None where it has none."""
        content = None
        for key, value in delta.items():
            if key == "role" or is_null(value):
                continue
            if key == "tool_calls":
                self._take_tools(decode(value))
            elif isinstance(text := decode(value), str):
                self._texts.setdefault(key, []).append(text)
                if key == "content":
                    content = text
            elif key in _KEPT:
                self.malformed = True
        return content

    def message(self) -> dict[str, Slice]:
        """What a record keeps of the message: what the agent got, in the form of a buffered reply.

        There an empty text beside reasoning or a tool call is no content.
        """
        texts = {key: "".join(parts) for key, parts in self._texts.items()}
        content = texts.pop("content", "")
        kept: dict[str, Slice] = {}
        if self._tools and self._drops_whitespace and not content.strip():
            content = ""
        if content or not (self._tools or any(texts.values())):
            kept["content"] = encode(content)
        if self._tools:
            kept["tool_calls"] = encode([_written(self._tools[index]) for index in sorted(self._tools)])
        kept.update((key, encode(texts[key])) for key in _KEPT if texts.get(key))
        return kept

    def _take_tools(self, calls: Any) -> None:
        self.malformed |= not isinstance(calls, list)
        for call in calls if isinstance(calls, list) else []:
            if not isinstance(call, dict) or not isinstance(index := call.get("index", 0), int):
                self.malformed = True
                continue
            tool = self._tools.setdefault(index, _ToolCall())
            tool.id = call.get("id") or tool.id
            tool.type = call.get("type") or tool.type
            function = call.get("function")
            if isinstance(function, dict):
                self._append(tool.name, function.get("name"))
                self._append(tool.arguments, function.get("arguments"))
            else:
                self.malformed |= function is not None

    def _append(self, parts: list[str], text: Any) -> None:
        if isinstance(text, str):
            parts.append(text)
        else:
            self.malformed |= text is not None


def _written(tool: _ToolCall) -> dict[str, Any]:
    function = {"name": "".join(tool.name), "arguments": "".join(tool.arguments)}
    return {"id": tool.id, "type": tool.type, "function": function}
