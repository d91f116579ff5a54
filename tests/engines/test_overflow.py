"""Which refusals say that a prompt is too long, and what can be given in their place."""

import json

import pytest
from event_stream import DONE, events, finish_reason, joined
from wire_recordings import recording, recordings

from switchyard_py.engines.vllm import empty_completion, is_context_overflow

# In the order of the releases that say so, vLLM 0.4 to 0.32.
WORDINGS = [
    "This model's maximum context length is 32768 tokens. However, you requested 32818 tokens in the messages, Please "
    "reduce the length of the messages.",
    "This model's maximum context length is 4096 tokens. However, you requested 5031 tokens (31 in the messages, 5000 "
    "in the completion). Please reduce the length of the messages or completion.",
    "This model's maximum context length is 32768 tokens. However, your request has 40000 input tokens. Please reduce "
    "the length of the input messages.",
    "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens "
    "and your request has 31 input tokens (5000 > 4096 - 31).",
    "max_tokens must be at least 1, got -5.",
    "The prompt (total length 5951) is too long to fit into the model (context length 4096). Make sure that "
    "`max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
    "The decoder prompt (length 5951) is longer than the maximum model length of 4096. Make sure that `max_model_len` "
    "is no smaller than the number of text tokens.",
    "Input length (196905) exceeds model's maximum context length (196608).",
]
OTHERS = [
    "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
    "max_tokens=5000 cannot be greater than max_model_len=4096. Please request fewer output tokens.",
    "The encoder prompt (length 9000) is longer than the maximum model length of 8192.",
    "1 validation error:\n  {'type': 'missing', 'input': \"This model's maximum context length is 4096 tokens.\"}",
    "[{'type': 'missing', 'input': \"This model's maximum context length is 4096 tokens.\"}]",
    "The maximum context length",
]


def _refusal(message: str, **fields: object) -> bytes:
    error = {"message": message, "type": "BadRequestError", "param": None, "code": 400, **fields}
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize("message", WORDINGS)
def test_every_wording_is_recognised_in_a_400_and_nowhere_else(message: str) -> None:
    flat = json.dumps({"object": "error", "message": message, "type": "BadRequestError", "code": 400}).encode()
    for body in (_refusal(message), flat):
        assert is_context_overflow(400, body)
        assert not any(is_context_overflow(status, body) for status in (200, 404, 413, 422, 500))


def test_the_code_of_openai_is_recognised() -> None:
    assert is_context_overflow(400, _refusal("too long", code="context_length_exceeded"))


@pytest.mark.parametrize("message", OTHERS)
def test_other_refusals_are_not(message: str) -> None:
    assert not is_context_overflow(400, _refusal(message))


def test_of_all_recorded_refusals_those_of_a_long_prompt_are() -> None:
    found = [each.name for each in recordings() if is_context_overflow(each.status, each.body)]
    assert found == ["err_ctx_overflow", "err_ctx_overflow_stream", "reuse_ids_overflow"]


def test_an_empty_completion_has_the_fields_of_a_reply() -> None:
    body = json.loads(empty_completion("rid", "served", streamed=False, usage=False))
    assert set(body) <= set(json.loads(recording("chat_nocapture").body))
    assert (body["id"], body["model"]) == ("chatcmpl-rid", "served")
    assert body["usage"] == {"prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0}
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": ""}
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("usage", [False, True])
def test_an_empty_completion_as_a_stream(usage: bool) -> None:
    chunks = events(empty_completion("rid", "served", streamed=True, usage=usage))
    assert chunks.pop() == DONE
    assert (joined(chunks, "content"), finish_reason(chunks)) == ("", "length")
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [bool(chunk["choices"]) for chunk in chunks] == [True, True, *([False] if usage else [])]
    assert {chunk["id"] for chunk in chunks} == {"chatcmpl-rid"}
