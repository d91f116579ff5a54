"""What a scripted engine generates, token by token. Use it through `scripted_engine`."""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from re import findall
from typing import Any

Delta = dict[str, Any]


@dataclass(frozen=True)
class Token:
    """One sampled token: its id, its text, its log-probability and what it adds to the stream ({}: nothing)."""

    id: int
    text: str
    logprob: float
    delta: Delta = field(default_factory=dict)

    def logprob_entry(self, top_logprobs: int) -> dict[str, Any]:
        entry = {"token": self.text, "logprob": self.logprob, "bytes": list(self.text.encode())}
        return {**entry, "top_logprobs": [dict(entry)] * min(1, top_logprobs)}


@dataclass(frozen=True)
class Turn:
    """One generated choice. `tool_calls` are pairs of name and arguments: an object, or a string taken as it is.

    `whitespace` is the content the model writes between thinking and a tool call; vLLM streams it and leaves it out of
    buffered replies. `finish_reason` is derived unless given; after "stop" and "tool_calls" the last token is EOS.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: Sequence[tuple[str, Mapping[str, Any] | str]] = ()
    whitespace: str = "\n\n"
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_token_ids: Sequence[int] = (2040, 84, 495, 198, 1026, 901, 2041, 198, 2040, 64, 331, 72, 1629, 198)

    @property
    def finish(self) -> str:
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    @cached_property
    def tokens(self) -> list[Token]:
        return list(self._tokens())

    @cached_property
    def calls(self) -> list[dict[str, Any]]:
        """The tool calls as a buffered reply holds them."""
        return [
            {
                "id": f"chatcmpl-tool-{zlib.crc32(f'{index}{name}'.encode()):016x}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                },
            }
            for index, (name, arguments) in enumerate(self.tool_calls)
        ]

    @property
    def token_ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def logprobs(self) -> list[float]:
        return [token.logprob for token in self.tokens]

    @property
    def message(self) -> dict[str, Any]:
        return {
            "role": "assistant",
            "content": self.text or (None if self.reasoning or self.tool_calls else ""),
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            **({"tool_calls": self.calls} if self.tool_calls else {}),
            "reasoning": self.reasoning or None,
        }

    @property
    def reasoning_tokens(self) -> int:
        return len(_pieces(self.reasoning))

    def _tokens(self) -> Iterator[Token]:
        if self.reasoning:
            yield _control(2046, "<think>")
            for piece in _pieces(self.reasoning):
                yield _token(piece, {"reasoning": piece})
            if self.text or self.calls or self.finish != "length":
                yield _control(2047, "</think>")
        for piece in _pieces(self.text):
            yield _token(piece, {"content": piece})
        for index, call in enumerate(self.calls):
            if index == 0 and not self.text:
                for piece in _pieces(self.whitespace):
                    yield _token(piece, {"content": piece})
            yield _control(2042, "<tool_call>")
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            head = {"id": call["id"], "type": "function", "index": index, "function": {"name": name}}
            yield _token(name, {"content": None, "tool_calls": [head]})
            for piece in _pieces(arguments):
                fragment = {"index": index, "function": {"arguments": piece}}
                yield _token(piece, {"content": None, "tool_calls": [fragment]})
            if self.finish != "length" or index + 1 < len(self.calls):
                yield _control(2043, "</tool_call>")
        if self.finish in ("stop", "tool_calls"):
            yield _control(2041, "<|im_end|>")


def _pieces(text: str) -> list[str]:
    return findall(r"\s|[^\W_]+|[\W_]", text)


def _token(text: str, delta: Delta) -> Token:
    # Any fixed function of the text does; no two neighbours share a log-probability.
    seed = zlib.crc32(text.encode())
    return Token(seed % 2000, text, -(1 + seed % 4093) / 1024, delta)


def _control(token_id: int, text: str) -> Token:
    return Token(token_id, text, -token_id / 2**21)
