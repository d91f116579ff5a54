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


PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
"""Where each dialect is spoken."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A request body and what the engine answers: one body, or the events of a stream in order.

    `counted` are those of a stream that was asked to tell the usage in every chunk, as it is for the dialect messages.
    """

    name: str
    path: str
    request: bytes
    reply: tuple[bytes, ...]
    streamed: bool
    counted: tuple[bytes, ...] = ()


def payload(name: str, dialect: str = "chat") -> Payload:
    """The payload `small`, `large`, `stream` or `short`, the same bytes in every process."""
    path = PATHS[dialect]
    if name == "small":
        return Payload(name, path, _request(dialect, 2_000, 2), (_reply(160, 11),), streamed=False)
    if name == "large":
        return Payload(name, path, _request(dialect, 400_000, 120), (_reply(40_000, 1_000),), streamed=False)
    if name in ("stream", "short"):
        chunks = STREAM_CHUNKS if name == "stream" else SHORT_CHUNKS
        request = _request(dialect, 2_000, 2, stream=True)
        plain, counted = (tuple(_events(160, chunks, counted=counted)) for counted in (False, True))
        return Payload(name, path, request, plain, streamed=True, counted=counted)
    raise ValueError(f"no payload {name!r}; use small, large, stream or short")


def _request(dialect: str, size: int, messages: int, *, stream: bool = False) -> bytes:
    """A conversation of about `size` bytes, spread evenly over so many messages, as agents of the dialect write it."""
    chance = random.Random(1)
    turns: list[tuple[str, str]] = []
    for number in range(messages):
        text = ""
        while len(json.dumps(text)) < size / messages - 80:
            text += chance.choice(_WORDS) + " "
        turns.append((("user", "assistant")[number % 2], text))
    body: dict[str, Any] = {"model": ROUTE, **_CONVERSATIONS[dialect]("You are a coding agent.", turns)}
    if stream:
        body |= {"stream": True, **({"stream_options": {"include_usage": True}} if dialect == "chat" else {})}
    return json.dumps(body | {"temperature": 1.0, "top_p": 0.95}).encode()


def _chat(system: str, turns: list[tuple[str, str]]) -> dict[str, Any]:
    said = [{"role": role, "content": text} for role, text in [("system", system), *turns]]
    return {"messages": said, "max_tokens": 2048}


def _messages(system: str, turns: list[tuple[str, str]]) -> dict[str, Any]:
    said = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in turns]
    return {"system": [{"type": "text", "text": system}], "messages": said, "max_tokens": 2048}


def _responses(system: str, turns: list[tuple[str, str]]) -> dict[str, Any]:
    kinds = {"user": "input_text", "assistant": "output_text"}
    said = [{"type": "message", "role": role, "content": [{"type": kinds[role], "text": text}]} for role, text in turns]
    return {"instructions": system, "input": said, "max_output_tokens": 2048, "store": False}


_CONVERSATIONS = {"chat": _chat, "messages": _messages, "responses": _responses}


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


def _events(prompt: int, sampled: int, *, counted: bool) -> Iterator[bytes]:
    chance = random.Random(3)
    role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    so_far = [{"usage": _usage(prompt, number)} if counted else {} for number in range(sampled + 1)]
    yield _event([role], prompt_token_ids=_prompt_ids(prompt), prompt_text=None, **so_far[0])
    for number in range(1, sampled + 1):
        token = {
            "index": 0,
            "delta": {"content": STAMP.decode() + " "},
            "logprobs": {"content": [_log_prob(chance, " word")]},
            "finish_reason": None,
            "token_ids": [chance.randrange(150_000)],
        }
        end = {"finish_reason": "stop", "stop_reason": None} if number == sampled else {}
        yield _event([token | end], **so_far[number])
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
