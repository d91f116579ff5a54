"""What must come of a recorded exchange, worked out from the engine's facts and not from the proxy's code.

A recording holds what the engine sent with capture switched on. Given what the agent itself asked for, the oracle says
what the agent must see, and what the record must hold. Where the rules come from:

- a field the agent did not ask for is null, as the engine sends it then (recorded: chat_plain, chat_nocapture);
- a chunk without delta, finish reason, ids and log-probs is not sent (recorded without capture: chat_stream_nocapture;
  vLLM's source: ids or log-probs alone are reason enough to send it);
- with `include_reasoning: false` the engine sends no reasoning, no ids, no log-probs (recorded: reasoning_excluded*);
- without `include_usage` there is no usage chunk, and no metrics, which ride on it; the fingerprint it carries ends
  each chunk with a finish reason instead (recorded for one choice: chat_stream, chat_stream_usage; vLLM's source);
- whitespace that is all the content before a tool call is left out, as the engine's buffered replies do
  (recorded: trained_tool_auto, trained_tool_auto_stream). This is the proxy's one deliberate difference.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

JSON = dict[str, Any]


@dataclass(frozen=True)
class Facts:
    """What the record of a call must hold, of its first choice; `outcome` is the state the call must end in."""

    outcome: Literal["valid", "invalid", "failed"]
    prompt_token_ids: list[int] | None
    token_ids: list[int]
    logprobs: list[float]
    content: str | None
    reasoning: str | None
    tool_calls: list[JSON]
    finish_reason: str | None
    stop_reason: str | int | None
    usage: JSON | None
    choices: int


def chunks_of(stream: bytes) -> list[JSON]:
    """Parse a stream's data events, [DONE] and comments left out."""
    lines = [block.removeprefix(b"data: ") for block in stream.split(b"\n\n") if block.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def with_usage(stream: bytes) -> bytes:
    """Give a stream that was recorded without `include_usage` the usage chunk it has with it.

    The proxy always asks for usage, so this is what it would have been sent.
    """
    chunks = chunks_of(stream)
    facts = _facts(chunks, ended=True)
    if facts.usage is not None or facts.outcome == "failed":
        return stream
    last = chunks[-1]
    head = {key: last[key] for key in ("id", "object", "created", "model")}
    completion = sum(len(choice.get("token_ids") or []) for chunk in chunks for choice in chunk["choices"])
    prompt = len(facts.prompt_token_ids or [])
    usage = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    fingerprint = [chunk.pop("system_fingerprint") for chunk in _finishing(chunks)][-1]
    chunks.append(head | {"choices": [], "usage": usage, "system_fingerprint": fingerprint})
    events = [json.dumps(chunk, separators=(",", ":"), ensure_ascii=False).encode() for chunk in chunks]
    return b"".join(b"data: " + event + b"\n\n" for event in [*events, b"[DONE]"])


def expected_chunks(stream: bytes, asked: Mapping[str, Any], *, whitespace: bool = False) -> list[JSON]:
    """Work out the chunks the agent must see of a captured stream, up to an error event if there is one.

    `asked`: the agent's own request. `whitespace`: leave the whitespace before tool calls in.
    """
    wish = _Wish(asked)
    chunks = [chunk for chunk in chunks_of(stream) if "error" not in chunk]
    dropped = set() if whitespace else _whitespace_before_calls(chunks)
    expected: list[JSON] = []
    for position, chunk in enumerate(chunks):
        if chunk["choices"]:
            seen = wish.chunk(chunk, without_content=position in dropped)
            if seen["choices"]:
                expected.append(seen)
        elif wish.usage:
            expected.append(chunk)
        else:
            for ended in _finishing(expected):
                ended["system_fingerprint"] = chunk["system_fingerprint"]
    return expected


def expected_body(body: JSON, asked: Mapping[str, Any]) -> JSON:
    """Work out the buffered reply the agent must see of a captured one."""
    wish = _Wish(asked)
    seen = wish.without_capture(body)
    seen["choices"] = [wish.without_capture(choice) for choice in body["choices"]]
    if not wish.reasoning:
        for choice in seen["choices"]:
            choice["message"] = choice["message"] | {"reasoning": None}
    return seen


def stream_facts(stream: bytes) -> Facts:
    """Work out what the record of a captured stream must hold. The stream may be cut anywhere between two events."""
    return _facts(chunks_of(stream), ended=stream.endswith(b"data: [DONE]\n\n"))


def body_facts(body: JSON) -> Facts:
    """Work out what the record of a captured buffered reply must hold."""
    choice = body["choices"][0]
    message = choice["message"]
    return _judged(
        prompt_token_ids=body["prompt_token_ids"],
        token_ids=choice["token_ids"] or [],
        logprobs=_logprobs(choice),
        content=message["content"],
        reasoning=message["reasoning"],
        tool_calls=message.get("tool_calls", []),
        finish_reason=choice["finish_reason"],
        stop_reason=choice["stop_reason"],
        usage=body["usage"],
        choices=len(body["choices"]),
        told_of_error=False,
    )


class _Wish:
    """What the agent asked to see."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.reasoning = asked.get("include_reasoning") is not False
        self.usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        self.prompt_ids = bool(asked.get("return_token_ids"))
        self.ids = self.prompt_ids and self.reasoning
        self.logprobs = bool(asked.get("logprobs")) and self.reasoning

    def without_capture(self, part: JSON) -> JSON:
        wanted = {"prompt_token_ids": self.prompt_ids, "token_ids": self.ids, "logprobs": self.logprobs}
        return {key: value if wanted.get(key, True) else None for key, value in part.items()}

    def chunk(self, chunk: JSON, *, without_content: bool) -> JSON:
        seen = self.without_capture(chunk)
        if not self.usage:
            seen.pop("usage", None)
        choices = [self._choice(choice, without_content) for choice in chunk["choices"]]
        telling = ("delta", "finish_reason", "token_ids", "logprobs")
        seen["choices"] = [choice for choice in choices if any(choice.get(key) for key in telling)]
        return seen

    def _choice(self, choice: JSON, without_content: bool) -> JSON:
        unseen = {"content"} if without_content else set()
        if not self.reasoning:
            unseen.add("reasoning")
        delta = {key: value for key, value in choice["delta"].items() if key not in unseen}
        if not self.reasoning and delta and "role" not in delta:
            # Hidden reasoning leaves its key where something else is said.
            content = {"content": delta.pop("content")} if "content" in delta else {}
            delta = content | {"reasoning": None} | delta
        return self.without_capture(choice) | {"delta": delta}


def _finishing(chunks: list[JSON]) -> list[JSON]:
    return [chunk for chunk in chunks if any(choice["finish_reason"] for choice in chunk["choices"])]


def _whitespace_before_calls(chunks: list[JSON]) -> set[int]:
    """Find the chunks of whitespace that is all the content a choice has before it calls a tool."""
    waiting: dict[int, list[int]] = {}
    decided: set[int] = set()
    dropped: set[int] = set()
    for position, chunk in enumerate(chunks):
        for choice in chunk["choices"]:
            index, delta = choice["index"], choice["delta"]
            if index in decided:
                continue
            if delta.get("tool_calls"):
                decided.add(index)
                dropped.update(waiting.get(index, []))
            elif delta.get("content"):
                if delta["content"].isspace():
                    waiting.setdefault(index, []).append(position)
                else:
                    decided.add(index)
    return dropped


def _facts(chunks: list[JSON], *, ended: bool) -> Facts:
    replies = [chunk for chunk in chunks if "error" not in chunk]
    choices = [choice for chunk in replies for choice in chunk["choices"]]
    first = [choice for choice in choices if choice["index"] == 0]
    calls = _merged(call for choice in first for call in choice["delta"].get("tool_calls") or [])
    content = "".join(choice["delta"].get("content") or "" for choice in first)
    usage = [chunk["usage"] for chunk in replies if not chunk["choices"] and chunk.get("usage")]
    return _judged(
        prompt_token_ids=next((c["prompt_token_ids"] for c in replies if c.get("prompt_token_ids")), None),
        token_ids=[token for choice in first for token in choice.get("token_ids") or []],
        logprobs=[logprob for choice in first for logprob in _logprobs(choice)],
        content=None if not content or (calls and content.isspace()) else content,
        reasoning="".join(choice["delta"].get("reasoning") or "" for choice in first) or None,
        tool_calls=calls,
        finish_reason=next((choice["finish_reason"] for choice in first if choice["finish_reason"]), None),
        stop_reason=next((choice["stop_reason"] for choice in first if choice.get("stop_reason") is not None), None),
        usage=usage[-1] if usage else None,
        choices=len({choice["index"] for choice in choices}),
        told_of_error=not ended or len(replies) < len(chunks),
    )


def _judged(*, told_of_error: bool, **facts: Any) -> Facts:
    outcome: Literal["valid", "invalid", "failed"] = "failed"
    if not told_of_error and facts["finish_reason"] is not None:
        usage, ids, logprobs = facts["usage"] or {}, facts["token_ids"], facts["logprobs"]
        complete = (
            facts["choices"] == 1
            and facts["finish_reason"] != "abort"
            and len(ids) == len(logprobs) == usage.get("completion_tokens")
            and len(facts["prompt_token_ids"] or []) == usage.get("prompt_tokens")
            and all(math.isfinite(logprob) for logprob in logprobs)
        )
        outcome = "valid" if complete else "invalid"
    return Facts(outcome=outcome, **facts)


def _logprobs(choice: JSON) -> list[float]:
    return [entry["logprob"] for entry in (choice["logprobs"] or {}).get("content") or []]


def _merged(fragments: Iterable[JSON]) -> list[JSON]:
    calls: dict[int, JSON] = {}
    for fragment in fragments:
        call = calls.setdefault(
            fragment["index"], {"id": None, "type": None, "function": {"name": "", "arguments": ""}}
        )
        call["id"] = fragment.get("id") or call["id"]
        call["type"] = fragment.get("type") or call["type"]
        for key, text in fragment["function"].items():
            call["function"][key] += text or ""
    return [calls[index] for index in sorted(calls)]
