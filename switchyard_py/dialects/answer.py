"""What the engine's chat message says, whole or in deltas, for dialects that tell it in another form."""

from dataclasses import dataclass, field

from switchyard_py.dialects.translation import EMPTY_TEXT, is_text
from switchyard_py.engines.vllm.message import is_null
from switchyard_py.rawjson import NULL, InvalidJSON, Slice, decode, split_object, split_objects

THINKING = "thinking"
TEXT = "text"
REFUSAL = "refusal"

Key = str | int
"""What something said belongs to: `THINKING`, `TEXT`, `REFUSAL`, or the index of a tool call."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Something said. `text` is a JSON string, the arguments of a tool call; `call` has its `id` and `name`."""

    key: Key
    text: Slice
    call: dict[str, Slice] = field(default_factory=dict)


def pieces(message: dict[str, Slice]) -> list[Piece]:
    """What a message or a delta says: thinking first, tool calls last. An empty text is nothing said.

    Thinking is told once, though vLLM 0.11 to 0.13 write it under two names.

    Raises:
        InvalidJSON: a tool call has not the form of one, or what should be text is none.
    """
    thinking = _said(message, THINKING, "reasoning") or _said(message, THINKING, "reasoning_content")
    return [*thinking, *_said(message, TEXT, "content"), *_said(message, REFUSAL, "refusal"), *_calls(message)]


def counts_of(value: object) -> dict[str, object]:
    """Counts of tokens, none where the engine reports none."""
    return value if isinstance(value, dict) else {}


def count(counts: dict[str, object], key: str) -> int:
    """One of them, 0 where it is not reported."""
    value = counts.get(key)
    return value if isinstance(value, int) else 0


def _said(message: dict[str, Slice], key: Key, name: str) -> list[Piece]:
    text = _text(message, name)
    return [] if bytes(text) == EMPTY_TEXT else [Piece(key, text)]


def _calls(message: dict[str, Slice]) -> list[Piece]:
    found = []
    for entry in [] if is_null(message.get("tool_calls")) else split_objects(message["tool_calls"]):
        call = entry if is_null(entry.get("function")) else {**entry, **split_object(entry["function"])}
        named = {key: _text(call, key) for key in ("id", "name")}
        index = decode(call.get("index"))
        found.append(Piece(index if isinstance(index, int) else 0, _text(call, "arguments"), named))
    return found


def _text(fields: dict[str, Slice], key: str) -> Slice:
    """A JSON string, empty where there is none. Anything else could be told in no dialect."""
    value = fields.get(key, NULL)
    if is_null(value):
        return EMPTY_TEXT
    if not is_text(value):
        raise InvalidJSON(f"{key} is no text")
    return value
