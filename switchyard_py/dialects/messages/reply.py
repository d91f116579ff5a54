"""The engine's buffered chat reply as a Messages reply, and the words both forms of a reply share."""

from collections.abc import Sequence

from switchyard_py.dialects.answer import THINKING, Piece, count, counts_of, pieces
from switchyard_py.dialects.translation import EMPTY_TEXT
from switchyard_py.engines.vllm import EngineFault
from switchyard_py.engines.vllm.message import is_null
from switchyard_py.rawjson import (
    InvalidJSON,
    Slice,
    decode,
    encode,
    join_array,
    join_object,
    split_object,
    split_objects,
)

SIGNATURE = b'"switchyard"'
"""Signs every thinking block; it stands for nothing, but clients drop a block without one. Not checked when it returns:
the engine gets all thinking the agent sends back."""

_STOP_REASONS = {
    "length": "max_tokens",
    "content_filter": "refusal",
    # The engine was told to stop, or broke off: the answer is cut short, and this is the word for that.
    "abort": "max_tokens",
    "error": "max_tokens",
}


def reply(body: bytes, message_id: str) -> bytes:
    """The Messages reply for the first choice of a harvested chat reply. `message_id` is the reply's `id`.

    Raises:
        EngineFault: the engine's message has not the form of one.
    """
    try:
        return _reply(split_object(body), message_id)
    except InvalidJSON as error:
        raise EngineFault(f"the engine's message cannot be read: {error}") from None


def message_head(message_id: str, model: Slice, content: bytes) -> dict[str, Slice]:
    """The first fields of a message."""
    return {
        "id": encode(message_id),
        "type": b'"message"',
        "role": b'"assistant"',
        "model": model,
        "content": content,
    }


def stop_fields(reason: str | None, sequence: str | None) -> dict[str, Slice]:
    """The fields that say why a message ended; None for both while it has not."""
    return {"stop_reason": encode(reason), "stop_sequence": encode(sequence)}


def tool_use(call: dict[str, Slice], given: bytes) -> bytes:
    """A `tool_use` block with the engine's id and name, and `given` as its input."""
    named = {"id": call.get("id", EMPTY_TEXT), "name": call.get("name", EMPTY_TEXT)}
    return join_object({"type": b'"tool_use"', **named, "input": given})


def stop_reason(finish_reason: object, stopped_by: object, arguments: Sequence[Slice]) -> tuple[str, str | None]:
    """Anthropic's `stop_reason` and `stop_sequence` for what vLLM says of a choice with calls of these `arguments`.

    vLLM says "stop" after a call the agent forced by name, and tells in its own `stop_reason` which stop string was
    hit; an integer there is the token that ended the reply. A stream that a stop string ended inside a call says
    "tool_calls" all the same.
    """
    if isinstance(finish_reason, str) and finish_reason in _STOP_REASONS:
        return _STOP_REASONS[finish_reason], None
    if isinstance(stopped_by, str) and (finish_reason == "stop" or (arguments and _object(arguments[-1]) is None)):
        return "stop_sequence", stopped_by
    return ("tool_use" if arguments else "end_turn"), None


def usage(given: Slice | None) -> bytes:
    """Anthropic's `usage`: tokens of the prompt that came from a cache are counted apart where vLLM reports them."""
    counts = counts_of(decode(given))
    details = counts_of(counts.get("prompt_tokens_details"))
    cached = {
        name: count(details, key)
        for name, key in (
            ("cache_creation_input_tokens", "created_cache_tokens"),
            ("cache_read_input_tokens", "cached_tokens"),
        )
        if details.get(key) is not None
    }
    fresh = max(0, count(counts, "prompt_tokens") - sum(cached.values()))
    return encode({"input_tokens": fresh, **cached, "output_tokens": count(counts, "completion_tokens")})


def _reply(fields: dict[str, Slice], message_id: str) -> bytes:
    choice = split_objects(fields["choices"])[0]
    said = [] if is_null(choice.get("message")) else pieces(split_object(choice["message"]))
    arguments = [piece.text for piece in said if isinstance(piece.key, int)]
    why = stop_reason(decode(choice.get("finish_reason")), decode(choice.get("stop_reason")), arguments)
    head = message_head(message_id, fields.get("model", EMPTY_TEXT), join_array(map(_block, said)))
    return join_object({**head, **stop_fields(*why), "usage": usage(fields.get("usage"))})


def _block(piece: Piece) -> bytes:
    if isinstance(piece.key, int):
        # `input` must be an object.
        return tool_use(piece.call, _object(piece.text) or b"{}")
    if piece.key == THINKING:
        return join_object({"type": b'"thinking"', "thinking": piece.text, "signature": SIGNATURE})
    return join_object({"type": b'"text"', "text": piece.text})


def _object(arguments: Slice) -> bytes | None:
    """The arguments of a call as they were generated, None where they are no JSON object."""
    # A lone surrogate can only stand inside a string, where its escape says the same.
    text: bytes = decode(arguments).encode("utf-8", "backslashreplace")
    try:
        split_object(text)
    except InvalidJSON:
        return None
    return text
