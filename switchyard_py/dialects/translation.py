"""From other dialects to chat completions: shapes that are checked while they are cut, and the chat shapes themselves.

Everything the agent wrote stays in its own spelling, as slices of its request: text, ids, names and schemas.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from switchyard_py.dialects.arguments import ArgumentsMemory, faithful_arguments
from switchyard_py.engines.vllm.message import is_null
from switchyard_py.errors import Kind, RequestRefused
from switchyard_py.rawjson import (
    NULL,
    TRUE,
    InvalidJSON,
    Slice,
    decode,
    encode,
    join_array,
    join_object,
    split_array,
    split_object,
)

EMPTY_TEXT = b'""'


def refusal(where: str, problem: str) -> RequestRefused:
    """The error for a field of a request; `where` is its path, as in `messages[0].content`."""
    return RequestRefused(Kind.INVALID_PARAMETER, f"{where} {problem}", param=where)


def as_object(value: Slice | None, where: str) -> dict[str, Slice]:
    """Cut an object into its fields; those that are null are left out.

    Raises:
        RequestRefused: it is missing or something else.
    """
    try:
        fields = split_object(NULL if value is None else value)
    except InvalidJSON:
        raise refusal(where, "must be an object.") from None
    return {key: field for key, field in fields.items() if not is_null(field)}


def as_array(value: Slice | None, where: str) -> list[Slice]:
    """Cut an array into its items.

    Raises:
        RequestRefused: it is missing or something else.
    """
    try:
        return split_array(NULL if value is None else value)
    except InvalidJSON:
        raise refusal(where, "must be an array.") from None


def as_text(value: Slice | None, where: str) -> Slice:
    """A JSON string as it is.

    Raises:
        RequestRefused: it is missing or something else.
    """
    if value is None or not is_text(value):
        raise refusal(where, "must be a string.")
    return value


def is_text(value: Slice) -> bool:
    """Whether a slice is a JSON string."""
    return bytes(memoryview(value)[:1]) == b'"'


def joined_text(texts: Sequence[Slice]) -> bytes:
    """Several JSON strings as one, nothing between them."""
    return b'"' + b"".join(bytes(text)[1:-1] for text in texts) + b'"'


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a chat message's content; `text` is the JSON string of a text part, None for anything else."""

    json: bytes
    text: Slice | None = None


def text_part(text: Slice) -> Part:
    return Part(join_object({"type": b'"text"', "text": text}), text)


def image_part(url: Slice) -> Part:
    """An image by its URL, which may be a `data:` one."""
    return Part(join_object({"type": b'"image_url"', "image_url": join_object({"url": url})}))


def content_of(parts: Sequence[Part]) -> Slice:
    """The `content` of a message. A single text is a string, however the agent wrote it: some agents write the same
    message as a list in one call and as a string in the next."""
    if not parts:
        return EMPTY_TEXT
    if len(parts) == 1 and parts[0].text is not None:
        return parts[0].text
    return join_array(part.json for part in parts)


def plain_message(role: str, content: Slice) -> bytes:
    return join_object({"role": encode(role), "content": content})


def tool_message(tool_call_id: Slice, content: Slice, *, is_error: bool = False) -> bytes:
    """A tool's result. vLLM knows no flag for a failure and ignores it; it is kept for whoever reads the record."""
    message = {"role": b'"tool"', "tool_call_id": tool_call_id, "content": content}
    return join_object({**message, "is_error": TRUE} if is_error else message)


def assistant_message(texts: Sequence[Slice], reasoning: Sequence[Slice], calls: Sequence[bytes]) -> bytes:
    """An assistant turn in the form vLLM's buffered replies have: no text beside reasoning or a call is null content.

    vLLM gives `reasoning` to the chat template.
    """
    text, thought = joined_text(texts), joined_text(reasoning)
    thinks = thought != EMPTY_TEXT
    message: dict[str, Slice] = {"role": b'"assistant"', "content": text}
    if text == EMPTY_TEXT and (thinks or calls):
        message["content"] = NULL
    if thinks:
        message["reasoning"] = thought
    if calls:
        message["tool_calls"] = join_array(calls)
    return join_object(message)


def tool_call(call_id: Slice, name: Slice, arguments: str, memory: ArgumentsMemory) -> bytes:
    """A call in an assistant's turn; `arguments` is the JSON text the agent sent back."""
    chosen = faithful_arguments(decode(call_id), arguments, memory)
    function = join_object({"name": name, "arguments": encode(chosen)})
    return join_object({"id": call_id, "type": b'"function"', "function": function})


def function_tool(fields: Iterable[tuple[str, Slice | None]]) -> bytes:
    """A tool, from the fields of its function (`name`, `description`, `parameters`, `strict`) that are there."""
    function = {key: value for key, value in fields if value is not None}
    return join_object({"type": b'"function"', "function": join_object(function)})


def named_choice(name: Slice) -> bytes:
    """The `tool_choice` that makes the engine call one function."""
    return join_object({"type": b'"function"', "function": join_object({"name": name})})
