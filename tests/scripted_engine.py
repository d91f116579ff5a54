"""A scriptable engine over a real socket, and ready-made scripts that answer as vLLM does.

    async with ScriptedEngine() as engine:
        engine.reply(chat(Turn(text="hello")))          # for the next POST: buffered or streamed, as the request asks
        engine.default(json_reply({"error": {...}}, 503, {"retry-after": "1"}))    # when the queue is empty
        ... point the proxy at engine.base_url, call it ...
        assert engine.generations[0].json["return_token_ids"] is True
        assert (engine.started, engine.completed, engine.aborted) == (1, 1, 0)

A script is a coroutine function; everything a server can do wrong is one line:

    async def cut(exchange):
        await exchange.stream_headers()
        await exchange.send(b'data: {"choices":[]}\\n\\n')
        await exchange.pause(0.05)                      # cancelled when the client goes away: counted as aborted
        exchange.reset()                                # or close(), half_close(), stall(), raw(b"any bytes")

Step by step: `engine.reply(chat(turn, stepped=True))` sends the head at once and one event for each `engine.step()`.
Vocabulary: `Turn` is one generated choice; its `token_ids`, `logprobs` and `prompt_token_ids` are what a record of the
call must hold. The recorded exchanges of a real engine are in `wire_recordings`.

Chat replies follow vLLM 0.32: field order, nulls, the role chunk, tokens without text, the usage chunk. They honour
`stream`, `logprobs`, `top_logprobs`, `return_token_ids`, `include_reasoning`, `n` and `stream_options`.
"""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Literal

from dead_ports import refused_port, unanswered_port
from engine_server import Exchange, HeaderList, Request, Script, ScriptedEngine
from engine_thread import ScriptedEngineThread
from engine_turns import Token, Turn

__all__ = [
    "DONE",
    "Exchange",
    "Request",
    "Script",
    "ScriptedEngine",
    "ScriptedEngineThread",
    "Token",
    "Turn",
    "chat",
    "chat_body",
    "chat_events",
    "chat_reply",
    "chat_stream",
    "json_reply",
    "refused_port",
    "sse_reply",
    "unanswered_port",
]

DONE = b"data: [DONE]\n\n"
FINGERPRINT = "vllm-0.32.0-5e93fe0f"


def json_reply(body: object, status: int = 200, headers: HeaderList = ()) -> Script:
    """Answer with a JSON body: see `Exchange.json`."""

    async def script(exchange: Exchange) -> None:
        await exchange.json(body, status, headers)

    return script


def sse_reply(
    events: Sequence[bytes | dict[str, Any]],
    *,
    gap_seconds: float = 0.0,
    done: bool = True,
    stepped: bool = False,
    then: Literal["end", "close", "reset", "half_close", "stall"] = "end",
) -> Script:
    """Answer with an event stream, each item one chunk of the body: bytes as they are, objects as a data event.

    `done` adds [DONE]. `stepped` waits for `engine.step()` before each item, `gap_seconds` pauses after each. `then` is
    what comes instead of a proper end.
    """
    pieces = [item if isinstance(item, bytes) else _event(item) for item in events]
    if done:
        pieces.append(DONE)

    async def script(exchange: Exchange) -> None:
        await exchange.stream_headers()
        for piece in pieces:
            if stepped:
                await exchange.gate()
            await exchange.send(piece)
            if gap_seconds:
                await exchange.pause(gap_seconds)
        match then:
            case "close":
                exchange.close()
            case "reset":
                exchange.reset()
            case "half_close":
                exchange.half_close()
            case "stall":
                await exchange.stall()

    return script


def chat(*turns: Turn, gap_seconds: float = 0.0, stepped: bool = False) -> Script:
    """Answer a chat request with `turns`, one for each of its `n` choices, buffered or streamed as it asks."""

    async def script(exchange: Exchange) -> None:
        streamed = exchange.request.json.get("stream")
        script = chat_stream(*turns, gap_seconds=gap_seconds, stepped=stepped) if streamed else chat_reply(*turns)
        await script(exchange)

    return script


def chat_reply(*turns: Turn) -> Script:
    """Answer with a buffered chat completion."""

    async def script(exchange: Exchange) -> None:
        await exchange.json(chat_body(exchange.request, *turns))

    return script


def chat_stream(
    *turns: Turn,
    gap_seconds: float = 0.0,
    stepped: bool = False,
    events: int | None = None,
    then: Literal["end", "close", "reset", "half_close", "stall"] = "end",
) -> Script:
    """Answer with a chat stream: all, or the first `events` of it ([DONE] is the last); `then` is as in sse_reply."""

    async def script(exchange: Exchange) -> None:
        pieces = [*chat_events(exchange.request, *turns), DONE][:events]
        await sse_reply(pieces, gap_seconds=gap_seconds, done=False, stepped=stepped, then=then)(exchange)

    return script


def chat_body(request: Request, *turns: Turn) -> dict[str, Any]:
    """Build the buffered chat completion vLLM would send for this request."""
    wish = _Wish(request)
    chosen = wish.choices(turns)
    choices = [
        {
            "index": index,
            "message": {**turn.message, "reasoning": None} if wish.no_reasoning else turn.message,
            "logprobs": wish.logprobs(turn.tokens),
            "finish_reason": turn.finish,
            "stop_reason": turn.stop_reason,
            "token_ids": wish.token_ids(turn.tokens),
            "routed_experts": None,
        }
        for index, turn in enumerate(chosen)
    ]
    usage = _usage(chosen)
    details = {"prompt_tokens_details": None, "completion_tokens_details": usage.pop("completion_tokens_details")}
    return {
        "id": wish.id,
        "object": "chat.completion",
        "created": wish.created,
        "model": wish.model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": {**usage, **details},
        "prompt_logprobs": None,
        "prompt_token_ids": list(chosen[0].prompt_token_ids) if wish.ids else None,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def chat_events(request: Request, *turns: Turn) -> list[bytes]:
    """Build the events of the stream vLLM would send for this request, without [DONE]."""
    wish = _Wish(request)
    chosen = wish.choices(turns)
    chunks: list[dict[str, Any]] = []
    for index, turn in enumerate(chosen):
        role = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": role, "logprobs": None, "finish_reason": None}
        prompt_token_ids = list(turn.prompt_token_ids) if wish.ids else None
        chunk = wish.with_usage(wish.chunk(choice), turn, 0)
        chunks.append({**chunk, "prompt_token_ids": prompt_token_ids, "prompt_text": None})
    # Choices are decoded together, a token of each in turn.
    for step in zip_longest(*(wish.stream_chunks(index, turn) for index, turn in enumerate(chosen))):
        chunks.extend(chunk for chunk in step if chunk is not None)
    if wish.usage:
        chunks.append({**wish.chunk(), "usage": _usage(chosen)})
    # Without a usage chunk it stands on every chunk with a finish reason.
    for chunk in chunks[-1:] if wish.usage else [each for each in chunks if each["choices"][0]["finish_reason"]]:
        chunk["system_fingerprint"] = FINGERPRINT
    return [_event(chunk) for chunk in chunks]


class _Wish:
    """What a chat request asks for, as vLLM reads it."""

    def __init__(self, request: Request) -> None:
        body = request.json
        self.created = int(time.time())
        self.model = body.get("model", "served-model")
        self.id = f"chatcmpl-{request.header('x-request-id') or body.get('request_id') or uuid.uuid4().hex[:16]}"
        self.n = body.get("n") or 1
        self.ids = bool(body.get("return_token_ids"))
        options = body.get("stream_options") or {}
        self.usage = bool(options.get("include_usage"))
        self._running_usage = self.usage and bool(options.get("continuous_usage_stats"))
        # vLLM then drops ids and log-probs of every choice, whatever else was asked.
        self.no_reasoning = body.get("include_reasoning") is False
        self._with_logprobs = bool(body.get("logprobs"))
        self._top_logprobs = body.get("top_logprobs") or 0

    def choices(self, turns: Sequence[Turn]) -> list[Turn]:
        given = turns or (Turn(text="hello"),)
        return [given[min(index, len(given) - 1)] for index in range(self.n)]

    def logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if not self._with_logprobs or self.no_reasoning:
            return None
        return {"content": [token.logprob_entry(self._top_logprobs) for token in tokens]}

    def token_ids(self, tokens: Sequence[Token]) -> list[int] | None:
        return [token.id for token in tokens] if self.ids and not self.no_reasoning else None

    def chunk(self, *choices: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": list(choices),
        }

    def with_usage(self, chunk: dict[str, Any], turn: Turn, completion: int) -> dict[str, Any]:
        """The chunk with the counts so far, where they were asked for on every chunk."""
        if not self._running_usage:
            return chunk
        reasoning = sum("reasoning" in token.delta for token in turn.tokens[:completion])
        return {**chunk, "usage": _counts(len(turn.prompt_token_ids), completion, reasoning)}

    def stream_chunks(self, index: int, turn: Turn) -> Iterator[dict[str, Any]]:
        steps = [[token] for token in turn.tokens]
        if turn.finish == "abort" or not steps:
            steps.append([])
        for position, tokens in enumerate(steps, start=1):
            last = position == len(steps)
            delta = {k: v for token in tokens for k, v in token.delta.items()}
            if self.no_reasoning and delta.pop("reasoning", None) is None and delta:
                # Seen on a running engine: the key stays where something else is said.
                content = {"content": delta.pop("content")} if "content" in delta else {}
                delta = {**content, "reasoning": None, **delta}
            logprobs = self.logprobs(tokens)
            # A token without text is dropped unless its id or log-prob was asked for.
            if not delta and not last and logprobs is None and (not self.ids or self.no_reasoning):
                continue
            choice = {
                "index": index,
                "delta": delta,
                "logprobs": logprobs,
                "finish_reason": turn.finish if last else None,
                **({"stop_reason": turn.stop_reason} if last else {}),
                "token_ids": self.token_ids(tokens),
            }
            yield self.with_usage(self.chunk(choice), turn, min(position, len(turn.tokens)))


def _usage(turns: Sequence[Turn]) -> dict[str, Any]:
    completion = sum(len(turn.tokens) for turn in turns)
    return _counts(len(turns[0].prompt_token_ids), completion, sum(turn.reasoning_tokens for turn in turns))


def _counts(prompt: int, completion: int, reasoning: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"
