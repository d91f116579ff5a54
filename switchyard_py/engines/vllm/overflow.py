"""A prompt that does not fit: how vLLM says so, and the empty completion that can be given in place of its refusal.

Wordings: recorded from vLLM 0.32 (`tests/wire/err_ctx_overflow`, `reuse_ids_overflow`), and of releases since 0.4.
"""

import re
import time

from switchyard_py.rawjson import encode

# Not among them, because wrong whatever the prompt: `max_tokens=5000 cannot be greater than max_model_len=4096` and
# `max_tokens must be at least 1, got 0`; a negative number is what a prompt as long as the context leaves of it.
_WORDINGS = re.compile(
    rb"maximum context length (?:is \d|of \d|\(\d)"
    rb"|decoder prompt \(length \d+\) is longer than the maximum model length"
    rb"|prompt \((?:total )?length \d+\) is too long to fit into the model"
    rb"|max_tokens must be at least 1, got -\d"
    rb'|"code": ?"context_length_exceeded"'
)
# vLLM quotes the request in these, and agents' histories quote errors they met before.
_SCHEMA_ERROR = re.compile(rb'"message": ?"(?:\d+ validation errors?:|\[\{)')

_USAGE = {"prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0}


def is_context_overflow(status: int, body: bytes) -> bool:
    """Whether an engine's reply says that the prompt, or what it leaves of the context, is too long for the model."""
    return status == 400 and _WORDINGS.search(body) is not None and _SCHEMA_ERROR.search(body) is None


def empty_completion(request_id: str, model: str, *, streamed: bool, usage: bool) -> bytes:
    """A reply, or the events of a stream, in which the model says nothing and stops for `length`.

    Usage counts nothing: the engine does not tell how long the prompt was. A stream has it where `usage` asks for it.
    """
    envelope = {"id": f"chatcmpl-{request_id}", "created": int(time.time()), "model": model}
    end = {"logprobs": None, "finish_reason": "length", "stop_reason": None}
    message = {"role": "assistant", "content": ""}
    if not streamed:
        choice = {"index": 0, "message": message, **end}
        return encode({**envelope, "object": "chat.completion", "choices": [choice], "usage": _USAGE})
    begin = {"index": 0, "delta": message, "logprobs": None, "finish_reason": None}
    chunks: list[dict[str, object]] = [{"choices": [begin]}, {"choices": [{"index": 0, "delta": {}, **end}]}]
    if usage:
        chunks.append({"choices": [], "usage": _USAGE})
    events = [encode({**envelope, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return b"".join(b"data: %b\n\n" % event for event in [*events, b"[DONE]"])
