"""Text completions: the reply and the chunks of vLLM, from the steps of a generation.

Token ids and prompt ids are inside the choice here, unlike in a chat completion.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from switchyard_py.simulator.envelope import (
    SYSTEM_FINGERPRINT,
    completion_logprobs,
    completion_usage,
    now,
    prompt_logprobs_report,
    without_nulls,
)
from switchyard_py.simulator.generation import Step, Steps, Token
from switchyard_py.simulator.journal import Entry
from switchyard_py.simulator.logprobs import prompt_logprobs
from switchyard_py.simulator.prompts import Prompt
from switchyard_py.simulator.requests import CompletionBody
from switchyard_py.simulator.settings import SimulatorSettings
from switchyard_py.simulator.streaming import Chunk
from switchyard_py.simulator.tokenizer import TextDecoder


class CompletionReply:
    """The wire form of one text completion call."""

    def __init__(self, body: CompletionBody, prompts: list[Prompt], entry: Entry, settings: SimulatorSettings) -> None:
        self._body = body
        self._prompts = [prompt for prompt in prompts for _ in range(body.choice_count)]
        self._head = {"id": entry.request_id, "object": "text_completion", "created": now(), "model": settings.model}
        self._entry = entry
        self._details = settings.prompt_tokens_details
        self._metrics = settings.per_request_metrics
        self._prompt_tokens = sum(len(prompt.ids) for prompt in prompts)
        self._tokens: list[list[Token]] = [[] for _ in self._prompts]
        self._texts = ["" for _ in self._prompts]
        self._offsets = [0 for _ in self._prompts]
        self._last: list[Step | None] = [None for _ in self._prompts]

    async def collect(self, steps: Steps) -> Chunk:
        """Run the generation to its end; the whole reply."""
        async with aclosing(steps):
            async for tick in steps:
                for step in tick:
                    self._take(step)
        return {
            **self._head,
            "choices": [self._whole_choice(index) for index in range(len(self._prompts))],
            "service_tier": None,
            "system_fingerprint": SYSTEM_FINGERPRINT,
            "usage": self._usage(),
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": self._entry.metrics() if self._metrics else None,
        }

    async def chunks(self, steps: Steps) -> AsyncGenerator[Chunk, None]:
        """The reply as chunks, then the usage where asked for."""
        options = self._body.stream_options
        with_usage = bool(options and options.include_usage)
        async with aclosing(steps):
            async for tick in steps:
                for step in tick:
                    choice = self._delta_choice(step)
                    # Where no usage chunk follows, the last chunk of each choice has it.
                    ends = choice["finish_reason"] is not None and not with_usage
                    fingerprint = {"system_fingerprint": SYSTEM_FINGERPRINT} if ends else {}
                    yield {**self._head, "choices": [choice], **fingerprint}
        if with_usage:
            usage = without_nulls(self._usage())
            yield {**self._head, "choices": [], "usage": usage, "system_fingerprint": SYSTEM_FINGERPRINT}

    def _take(self, step: Step) -> None:
        self._tokens[step.choice] += step.tokens
        self._texts[step.choice] += step.text
        self._last[step.choice] = step

    def _whole_choice(self, index: int) -> dict[str, Any]:
        prompt, tokens, last = self._prompts[index], self._tokens[index], self._last[index]
        echoed = self._echoed(prompt)
        # The engine has no text to echo where the prompt came as ids; log-probabilities cover the prompt all the same.
        text = (prompt.text or "") if self._body.echo else ""
        return {
            "index": index,
            "text": text + self._texts[index],
            "logprobs": self._logprobs([*echoed, *tokens], 0),
            "finish_reason": last.finish_reason if last else None,
            "stop_reason": last.stop_reason if last else None,
            "token_ids": [token.token for token in tokens] if self._body.return_token_ids else None,
            "prompt_logprobs": prompt_logprobs_report(prompt.ids, self._prompt_top()),
            "prompt_token_ids": prompt.ids if self._body.return_token_ids else None,
            "routed_experts": None,
        }

    def _delta_choice(self, step: Step) -> dict[str, Any]:
        index = step.choice
        prompt, first = self._prompts[index], self._last[index] is None
        tokens = [*(self._echoed(prompt) if first else []), *step.tokens]
        text = (prompt.text or "") if first and self._body.echo else ""
        offset = self._offsets[index]
        self._offsets[index] += sum(len(token.text) for token in tokens)
        self._take(step)
        wants_ids = bool(self._body.return_token_ids)
        return {
            "index": index,
            "text": text + step.text,
            "logprobs": self._logprobs(tokens, offset),
            "finish_reason": step.finish_reason,
            "stop_reason": step.stop_reason,
            "prompt_token_ids": prompt.ids if wants_ids and first else None,
            "token_ids": [token.token for token in step.tokens] if wants_ids else None,
        }

    def _logprobs(self, tokens: list[Token], offset: int) -> dict[str, Any] | None:
        if self._body.logprobs is None:
            return None
        return completion_logprobs(tokens, offset, as_ids=bool(self._body.return_tokens_as_token_ids))

    def _prompt_top(self) -> int | None:
        if self._body.prompt_logprobs is not None:
            return self._body.prompt_logprobs
        return self._body.logprobs if self._body.echo else None

    def _echoed(self, prompt: Prompt) -> list[Token]:
        """The prompt as tokens with their log-probabilities, where it is to be repeated."""
        if not self._body.echo or self._body.logprobs is None:
            return []
        decoder = TextDecoder()
        positions = prompt_logprobs(prompt.ids, self._body.logprobs)
        return [
            Token(token, decoder.push(token), candidates or [])
            for token, candidates in zip(prompt.ids, positions, strict=True)
        ]

    def _usage(self) -> dict[str, Any]:
        generated = sum(len(tokens) for tokens in self._tokens)
        return completion_usage(self._prompt_tokens, generated, details=self._details)
