"""The response object, buffered from the engine's chat reply, and its parts that streams have as well."""

from collections.abc import Mapping
from dataclasses import dataclass

from switchyard_py.dialects.answer import TEXT, Piece, count, counts_of, pieces
from switchyard_py.dialects.responses.output import COMPLETED, INCOMPLETE, OutputWriter
from switchyard_py.dialects.translation import EMPTY_TEXT
from switchyard_py.engines.vllm import EngineFault
from switchyard_py.engines.vllm.message import is_null
from switchyard_py.rawjson import (
    NULL,
    TRUE,
    InvalidJSON,
    Slice,
    decode,
    encode,
    join_array,
    join_object,
    split_object,
    split_objects,
)

# Settings of the request that a response repeats, and what it says where the agent gave none. Not `store`, whatever
# was asked: nothing is.
_REPEATED: dict[str, Slice | None] = {
    "instructions": NULL,
    "max_output_tokens": NULL,
    "max_tool_calls": None,
    "metadata": b"{}",
    "parallel_tool_calls": TRUE,
    "previous_response_id": NULL,
    "prompt_cache_key": None,
    "reasoning": b'{"effort":null,"summary":null}',
    "safety_identifier": None,
    "service_tier": None,
    "temperature": NULL,
    "text": b'{"format":{"type":"text"}}',
    "tool_choice": b'"auto"',
    "tools": b"[]",
    "top_p": NULL,
    "truncation": b'"disabled"',
    "user": None,
}

_CUT_SHORT = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    # The engine was told to stop, or broke off; OpenAI has no word of its own for that.
    "abort": "max_output_tokens",
    "error": "max_output_tokens",
}


@dataclass(frozen=True, slots=True)
class ResponseWriter:
    """Writes the response object of one call: `asked` are the request's fields, `created_at` seconds since 1970."""

    asked: Mapping[str, Slice]
    created_at: int
    output: OutputWriter

    def response(
        self,
        status: str,
        *,
        model: Slice | None = None,
        items: list[bytes] | None = None,
        why_incomplete: str | None = None,
        error: Mapping[str, object] | None = None,
        usage: Slice = NULL,
    ) -> bytes:
        """The response in one of its states."""
        repeated = {key: self._repeated(key, default) for key, default in _REPEATED.items()}
        return join_object({
            "id": encode(f"resp_{self.output.common}"),
            "object": b'"response"',
            "created_at": encode(self.created_at),
            "status": encode(status),
            "background": b"false",
            "error": encode(error),
            "incomplete_details": NULL if why_incomplete is None else encode({"reason": why_incomplete}),
            **{key: value for key, value in repeated.items() if value is not None},
            "model": self.asked.get("model", EMPTY_TEXT) if model is None else model,
            "output": join_array(items or []),
            "usage": usage,
        })  # fmt: skip

    def reply(self, body: bytes) -> bytes:
        """The response for the first choice of a harvested chat reply.

        Raises:
            EngineFault: the engine's message has not the form of one.
        """
        try:
            return self._reply(split_object(body))
        except InvalidJSON as error:
            raise EngineFault(f"the engine's message cannot be read: {error}") from None

    def _reply(self, fields: dict[str, Slice]) -> bytes:
        choice = split_objects(fields["choices"])[0]
        # An empty answer is an empty message, which goes into the next prompt as the assistant's turn that it was.
        said = ([] if is_null(choice.get("message")) else pieces(split_object(choice["message"]))) or [
            Piece(TEXT, EMPTY_TEXT)
        ]
        status, why = outcome(decode(choice.get("finish_reason")))
        states = [COMPLETED] * (len(said) - 1) + [status]
        items = [
            self.output.item(index, piece.key, piece.call, piece.text, state)
            for index, (piece, state) in enumerate(zip(said, states, strict=True))
        ]
        return self.response(
            status, model=fields.get("model"), items=items, why_incomplete=why, usage=usage(fields.get("usage"))
        )

    def _repeated(self, key: str, default: Slice | None) -> Slice | None:
        return default if is_null(self.asked.get(key)) else self.asked[key]


def outcome(finish_reason: object) -> tuple[str, str | None]:
    """The status of a response, and why it is incomplete, for the engine's finish reason; its last item has it too."""
    why = _CUT_SHORT.get(finish_reason) if isinstance(finish_reason, str) else None
    return (COMPLETED if why is None else INCOMPLETE), why


def usage(given: Slice | None) -> bytes:
    """OpenAI's `usage` for vLLM's; null where there is none. What vLLM does not report in detail is 0."""
    counts = counts_of(decode(given))
    if not counts:
        return NULL
    prompt, completion = (
        counts_of(counts.get("prompt_tokens_details")),
        counts_of(counts.get("completion_tokens_details")),
    )
    tokens = count(counts, "prompt_tokens"), count(counts, "completion_tokens")
    return encode(
        {
            "input_tokens": tokens[0],
            "input_tokens_details": {
                "cache_write_tokens": count(prompt, "created_cache_tokens"),
                "cached_tokens": count(prompt, "cached_tokens"),
            },
            "output_tokens": tokens[1],
            "output_tokens_details": {"reasoning_tokens": count(completion, "reasoning_tokens")},
            "total_tokens": sum(tokens),
        }
    )
