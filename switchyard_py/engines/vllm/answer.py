"""A whole answer in the other form: what a finished stream amounts to, and the stream a buffered reply would have been.

The forms are vLLM 0.32's. A stream made here says each thing in one chunk; ids and log-probs an agent asked for stand
on the chunk that finishes a choice, as those of tokens without visible text do there.
"""

from switchyard_py.capture.call import Choice, Generation
from switchyard_py.engines.vllm.harvest import Chunk, Part
from switchyard_py.engines.vllm.message import hide_reasoning, is_null
from switchyard_py.engines.vllm.prepare import Wants
from switchyard_py.rawjson import (
    NULL,
    InvalidJSON,
    Slice,
    decode,
    encode,
    join_array,
    join_object,
    split_object,
    split_objects,
)

_OF_FIRST_CHUNK = ("prompt_token_ids", "prompt_text")
_OF_LAST_CHUNK = ("logprobs", "finish_reason", "stop_reason", "token_ids")
# Models think before they speak and speak before they call.
_SAID = ("reasoning", "reasoning_content", "content", "refusal", "tool_calls", "function_call")
_NOTHING = (NULL, b'""', b"[]")


def buffered_answer(generation: Generation, wants: Wants) -> bytes:
    """The buffered reply, as the agent wants it, of a generation that was streamed to its end."""
    choices = [_buffered_choice(index, choice, wants) for index, choice in enumerate(generation.choices)]
    return join_object(
        {
            "id": generation.id or NULL,
            "object": b'"chat.completion"',
            "created": generation.created or NULL,
            "model": generation.model or NULL,
            "choices": join_array(choices),
            "system_fingerprint": generation.system_fingerprint or NULL,
            "usage": generation.usage or NULL,
            "prompt_token_ids": (wants.prompt_ids and generation.prompt_ids) or NULL,
        }
    )


def answer_chunks(answer: bytes, *, usage: bool) -> list[Chunk]:
    """The chunks of a stream that says what a buffered answer says, with a usage chunk only if it is asked for."""
    reply = split_object(answer)
    choices = split_objects(reply["choices"])
    envelope = {
        "id": reply.get("id", NULL),
        "object": b'"chat.completion.chunk"',
        "created": reply.get("created", NULL),
        "model": reply.get("model", NULL),
        "choices": b"[]",
    }
    fingerprint = {key: reply[key] for key in ("system_fingerprint",) if not is_null(reply.get(key))}
    first = {**envelope, **{key: reply[key] for key in _OF_FIRST_CHUNK if key in reply}}
    last = envelope if usage else {**envelope, **fingerprint}
    chunks = []
    for position, choice in enumerate(choices):
        index = int(decode(choice.get("index", encode(position))))
        message = {} if is_null(choice.get("message")) else split_object(choice["message"])
        role = {"role": message.get("role", b'"assistant"'), "content": b'""'}
        chunks.append(Chunk(dict(first), [_part(index, role)]))
        chunks += [Chunk(dict(envelope), [_part(index, delta)]) for delta in _deltas(message)]
        ending = {key: choice[key] for key in _OF_LAST_CHUNK if key in choice}
        chunks.append(Chunk(dict(last), [_part(index, {}, ending)]))
    if usage:
        chunks.append(Chunk({**envelope, "usage": reply.get("usage", NULL), **fingerprint}))
    return chunks


def _buffered_choice(index: int, choice: Choice, wants: Wants) -> bytes:
    message: dict[str, Slice] = {"role": b'"assistant"', "content": NULL, **choice.message}
    if not wants.reasoning:
        hide_reasoning(message)
    ids = choice.token_ids if wants.token_ids else None
    return join_object(
        {
            "index": encode(index),
            "message": join_object(message),
            "logprobs": _joined_log_probs(choice.log_probs_shown),
            "finish_reason": choice.finish_reason or NULL,
            "stop_reason": choice.stop_reason or NULL,
            "token_ids": encode(ids) if ids is None or isinstance(ids, list) else ids,
        }
    )


def _joined_log_probs(shown: list[Slice]) -> Slice:
    """The `logprobs` of a whole choice from those of its chunks; what is no list of entries is left out."""
    lists = [split_object(each).get("content", NULL) for each in shown if bytes(each).startswith(b"{")]
    entries = [bytes(each)[1:-1] for each in lists if bytes(each).startswith(b"[")]
    return join_object({"content": b"[" + b",".join(filter(None, entries)) + b"]"}) if entries else NULL


def _deltas(message: dict[str, Slice]) -> list[dict[str, Slice]]:
    """What a message says, one thing at a time."""
    deltas: list[dict[str, Slice]] = []
    for key in _SAID:
        value = message.get(key, NULL)
        if bytes(value) in _NOTHING:
            continue
        try:
            calls = split_objects(value) if key == "tool_calls" else []
        except InvalidJSON:
            calls = []  # no calls as anybody knows them: passed on as they are
        deltas += [
            {key: join_array([join_object({"index": encode(index), **call})])} for index, call in enumerate(calls)
        ] or [{key: value}]
    return deltas


def _part(index: int, delta: dict[str, Slice], ending: dict[str, Slice] | None = None) -> Part:
    fields: dict[str, Slice] = {"index": encode(index), "delta": NULL, "logprobs": NULL, "finish_reason": NULL}
    content = decode(delta.get("content"))
    text = content if isinstance(content, str) else None
    return Part(index, {**fields, **(ending or {})}, delta, text, finished=ending is not None)
