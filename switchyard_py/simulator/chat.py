"""Chat completions: the reply and the chunks of vLLM, from the steps of a generation."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from switchyard_py.simulator.envelope import (
    SYSTEM_FINGERPRINT,
    chat_logprobs,
    chat_usage,
    now,
    prompt_logprobs_report,
    random_id,
    without_nulls,
)
from switchyard_py.simulator.generation import Step, Steps, Token, group_steps
from switchyard_py.simulator.journal import Entry
from switchyard_py.simulator.parsing import CallDelta, Delta, StreamParser, ToolCall, parse_reply
from switchyard_py.simulator.prompts import Prompt
from switchyard_py.simulator.requests import ChatBody
from switchyard_py.simulator.settings import SimulatorSettings
from switchyard_py.simulator.streaming import Chunk
from switchyard_py.simulator.tokenizer import SPECIAL_TOKENS, THINK_END


@dataclass
class _Choice:
    parser: StreamParser
    tokens: list[Token] = field(default_factory=list)
    text: str = ""
    waiting: list[Step] = field(default_factory=list)
    """Steps not yet sent, where the request groups them."""
    last: Step | None = None
    is_thinking: bool = False
    reasoning_tokens: int = 0
    """Tokens before the closing tag of the thinking, special tokens left out."""

    def take(self, step: Step) -> None:
        self.tokens += step.tokens
        self.text += step.text
        self.last = step
        for token in step.tokens:
            self.is_thinking = self.is_thinking and token.token != THINK_END
            self.reasoning_tokens += self.is_thinking and token.token not in SPECIAL_TOKENS


class ChatReply:
    """The wire form of one chat call."""

    def __init__(
        self, body: ChatBody, prompt: Prompt, entry: Entry, settings: SimulatorSettings, *, thinking: bool
    ) -> None:
        self._body = body
        self._prompt = prompt
        self._entry = entry
        self._model = settings.model
        self._details = settings.prompt_tokens_details
        self._metrics = settings.per_request_metrics
        self._thinking = thinking
        self._created = now()
        self._tools = bool(body.usable_tools)
        self._forced = body.named_tool is not None or body.tool_choice == "required"
        # Leaving the reasoning out makes the engine drop ids and log-probabilities too, even where they are asked for.
        self._ids = bool(body.return_token_ids) and body.include_reasoning
        self._logprobs = bool(body.logprobs) and body.include_reasoning
        self._choices = [
            _Choice(StreamParser(thinking=thinking, tools=self._tools), is_thinking=thinking)
            for _ in range(body.choice_count)
        ]

    async def collect(self, steps: Steps) -> Chunk:
        """Run the generation to its end; the whole reply."""
        async with aclosing(steps):
            async for tick in steps:
                for step in tick:
                    self._choices[step.choice].take(step)
        return {
            "id": self._entry.request_id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._model,
            "choices": [self._whole_choice(index, choice) for index, choice in enumerate(self._choices)],
            "service_tier": None,
            "system_fingerprint": SYSTEM_FINGERPRINT,
            "usage": self._usage(details=self._details),
            "prompt_logprobs": prompt_logprobs_report(self._prompt.ids, self._body.prompt_logprobs),
            "prompt_token_ids": self._prompt.ids if self._body.return_token_ids else None,
            "prompt_text": self._prompt.text if self._body.return_prompt_text else None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": self._entry.metrics() if self._metrics else None,
        }

    async def chunks(self, steps: Steps) -> AsyncGenerator[Chunk, None]:
        """The reply as chunks: one role chunk for each choice, then the deltas, then the usage where asked for."""
        options = self._body.stream_options
        with_usage = bool(options and options.include_usage)
        continuous = with_usage and bool(options and options.continuous_usage_stats)
        begun = False
        async with aclosing(steps):
            async for tick in steps:
                if not begun:
                    # vLLM says nothing before the first token is there, unless to keep the connection alive.
                    begun = True
                    for index in range(len(self._choices)):
                        yield self._role_chunk(index, continuous=continuous)
                for step in tick:
                    choice = self._choices[step.choice]
                    choice.take(step)
                    chunk = self._delta_chunk(choice, step, fingerprint=not with_usage)
                    if chunk is not None:
                        yield {**chunk, "usage": self._running_usage()} if continuous else chunk
        if with_usage:
            usage = without_nulls(self._usage(details=self._details))
            chunk = {**self._head(), "choices": [], "usage": usage, "system_fingerprint": SYSTEM_FINGERPRINT}
            yield {**chunk, "metrics": without_nulls(self._entry.metrics())} if self._metrics else chunk

    def _whole_choice(self, index: int, choice: _Choice) -> dict[str, Any]:
        parsed = parse_reply(choice.text, thinking=self._thinking, tools=self._tools, forced=self._forced)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": parsed.content,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
        }
        calls = self._allowed(parsed.calls)
        if calls:
            message["tool_calls"] = [_whole_call(call) for call in calls]
        message["reasoning"] = parsed.reasoning if self._body.include_reasoning else None
        reason = choice.last.finish_reason if choice.last else None
        # A complete call counts even where the length then ended the reply.
        if calls and self._body.named_tool is None and reason in ("stop", "length"):
            reason = "tool_calls"
        return {
            "index": index,
            "message": message,
            "logprobs": self._token_logprobs(choice.tokens),
            "finish_reason": reason,
            "stop_reason": choice.last.stop_reason if choice.last else None,
            "token_ids": [token.token for token in choice.tokens] if self._ids else None,
            "routed_experts": None,
        }

    def _role_chunk(self, index: int, *, continuous: bool) -> Chunk:
        delta = {"role": "assistant", "content": ""}
        usage = {"usage": self._running_usage()} if continuous else {}
        return {
            **self._head(),
            "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}],
            **usage,
            "prompt_token_ids": self._prompt.ids if self._body.return_token_ids else None,
            "prompt_text": self._prompt.text if self._body.return_prompt_text else None,
        }

    def _delta_chunk(self, choice: _Choice, step: Step, *, fingerprint: bool) -> Chunk | None:
        """The chunk that is due after a step, or None."""
        choice.waiting.append(step)
        done = step.finish_reason is not None
        # Grouping leaves the first token alone.
        if not done and len(choice.waiting) < (self._body.stream_interval or 1) and len(choice.tokens) > 1:
            return None
        group, choice.waiting = group_steps(choice.waiting), []
        parsed = choice.parser.finish(group.text) if done else choice.parser.push(group.text)
        delta = self._wire_delta(parsed)
        if not delta and not done and not self._ids and not self._logprobs:
            return None
        entry: dict[str, Any] = {
            "index": step.choice,
            "delta": delta,
            "logprobs": self._token_logprobs(group.tokens),
            "finish_reason": self._stream_reason(choice, group) if done else None,
        }
        if done:
            entry["stop_reason"] = group.stop_reason
        entry["token_ids"] = [token.token for token in group.tokens] if self._ids else None
        chunk = {**self._head(), "choices": [entry]}
        return {**chunk, "system_fingerprint": SYSTEM_FINGERPRINT} if fingerprint and done else chunk

    def _stream_reason(self, choice: _Choice, step: Step) -> str | None:
        called = choice.parser.has_calls and self._body.named_tool is None
        return "tool_calls" if called and step.finish_reason == "stop" else step.finish_reason

    def _wire_delta(self, delta: Delta) -> dict[str, Any]:
        wire: dict[str, Any] = {}
        if delta.reasoning and self._body.include_reasoning:
            wire["reasoning"] = delta.reasoning
        if delta.content or delta.calls:
            wire["content"] = delta.content or None
            if not self._body.include_reasoning:
                wire["reasoning"] = None
        calls = [_wire_call(call) for call in delta.calls if self._is_allowed(call.index)]
        if calls:
            wire["tool_calls"] = calls
        return wire

    def _allowed(self, calls: list[ToolCall]) -> list[ToolCall]:
        return [call for index, call in enumerate(calls) if self._is_allowed(index)]

    def _is_allowed(self, call_index: int) -> bool:
        return call_index == 0 or self._body.parallel_tool_calls is not False

    def _token_logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if not self._logprobs:
            return None
        as_ids = bool(self._body.return_tokens_as_token_ids)
        return chat_logprobs(tokens, self._body.top_logprobs or 0, as_ids=as_ids)

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._entry.request_id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
        }

    def _running_usage(self) -> dict[str, Any]:
        return without_nulls(self._usage(details=False))

    def _usage(self, *, details: bool) -> dict[str, Any]:
        generated = sum(len(choice.tokens) for choice in self._choices)
        reasoning = sum(choice.reasoning_tokens for choice in self._choices)
        return chat_usage(len(self._prompt.ids), generated, reasoning, details=details)


def _call_id() -> str:
    return f"chatcmpl-tool-{random_id()}"


def _whole_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": _call_id(),
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _wire_call(call: CallDelta) -> dict[str, Any]:
    function: dict[str, Any] = {} if call.name is None else {"name": call.name}
    if call.arguments:
        function["arguments"] = call.arguments
    head: dict[str, Any] = {} if call.name is None else {"id": _call_id(), "type": "function"}
    return {**head, "index": call.index, "function": function}
