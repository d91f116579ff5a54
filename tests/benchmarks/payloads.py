"""What is sent and answered: requests of an agent and replies in the form vLLM gives when token capture is on.

Sizes follow the question each payload asks. `small` is the fixed cost of a call, `large` the cost of a long agent
conversation (a context of 40,000 tokens, 400 KB of request), `stream` the cost of a token. `short` is a stream of few
tokens, for many of them at once.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ROUTE = "policy_model"
STREAM_CHUNKS = 200
SHORT_CHUNKS = 10
STAMP = b"@0000000.000000"
"""Stands in each token's text; the engine puts the monotonic time of sending there, so that a reader on the same
machine knows how long the token was under way."""

_IDENTITY = {"id": "chatcmpl-0123456789abcdef", "created": 1796051001, "model": "actual-model"}
_WORDS = (
    "the file holds",
    'a "quoted" word',
    "def main():\n    return 0\n",
    "and the test fails",
    "path\\to\\it",
    "für",
)


@dataclass(frozen=True, slots=True)
class Payload:
    """A request body and what the engine answers: one body, or the events of a stream in order."""

    name: str
    request: bytes
    reply: tuple[bytes, ...]
    streamed: bool


def payload(name: str) -> Payload:
    """The payload `small`, `large`, `stream` or `short`, the same bytes in every process."""
    if name == "small":
        return Payload(name, _request(2_000, 2), (_reply(160, 11),), streamed=False)
    if name == "large":
        return Payload(name, _request(400_000, 120), (_reply(40_000, 1_000),), streamed=False)
    if name in ("stream", "short"):
        chunks = STREAM_CHUNKS if name == "stream" else SHORT_CHUNKS
        request = _request(2_000, 2, stream=True, stream_options={"include_usage": True})
        return Payload(name, request, tuple(_events(160, chunks)), streamed=True)
    raise ValueError(f"no payload {name!r}; use small, large, stream or short")


def _request(size: int, messages: int, **parameters: Any) -> bytes:
    """A conversation of about `size` bytes, spread evenly over so many messages."""
    chance = random.Random(1)
    body = {"model": ROUTE, "messages": [{"role": "system", "content": "You are a coding agent."}], **parameters}
    for number in range(messages):
        text = ""
        while len(json.dumps(text)) < size / messages - 80:
            text += chance.choice(_WORDS) + " "
        body["messages"].append({"role": ("user", "assistant")[number % 2], "content": text})
    body |= {"temperature": 1.0, "top_p": 0.95, "max_tokens": 2048}
    return json.dumps(body).encode()


def _reply(prompt: int, sampled: int) -> bytes:
    chance = random.Random(2)
    ids = [chance.randrange(150_000) for _ in range(sampled)]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": " word" * sampled, "refusal": None, "tool_calls": []},
        "logprobs": {"content": [_log_prob(chance, " word") for _ in ids]},
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": ids,
    }
    return _dump(
        {
            **_IDENTITY,
            "object": "chat.completion",
            "choices": [choice],
            "usage": _usage(prompt, sampled),
            "prompt_logprobs": None,
            "prompt_token_ids": _prompt_ids(prompt),
            "kv_transfer_params": None,
        }
    )


def _events(prompt: int, sampled: int) -> Iterator[bytes]:
    chance = random.Random(3)
    role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    yield _event([role], prompt_token_ids=_prompt_ids(prompt), prompt_text=None)
    for number in range(1, sampled + 1):
        token = {
            "index": 0,
            "delta": {"content": STAMP.decode() + " "},
            "logprobs": {"content": [_log_prob(chance, " word")]},
            "finish_reason": None,
            "token_ids": [chance.randrange(150_000)],
        }
        yield _event([token | ({"finish_reason": "stop", "stop_reason": None} if number == sampled else {})])
    yield _event([], usage=_usage(prompt, sampled))
    yield b"data: [DONE]\n\n"


def _event(choices: list[dict[str, Any]], **more: Any) -> bytes:
    return b"data: " + _dump({**_IDENTITY, "object": "chat.completion.chunk", "choices": choices, **more}) + b"\n\n"


def _log_prob(chance: random.Random, token: str) -> dict[str, Any]:
    return {"token": token, "logprob": -chance.expovariate(1), "bytes": list(token.encode()), "top_logprobs": []}


def _prompt_ids(count: int) -> list[int]:
    chance = random.Random(4)
    return [chance.randrange(150_000) for _ in range(count)]


def _usage(prompt: int, sampled: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
