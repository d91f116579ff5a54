"""The agent: asks over HTTP, reads the stream, and notes whether the record lay on disk when it mattered."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import httpx

from switchyard_py.demo.script import MODEL, TOOL
from switchyard_py.upstream import SSEReader

DONE = b"[DONE]"
# Of what an engine adds to a chunk for capture, nothing may reach an agent that did not ask for it.
CAPTURED_KEYS = frozenset(("prompt_token_ids", "token_ids", "logprobs"))

Part = Literal["reasoning", "answer", "tool call"]


class Fragment(NamedTuple):
    """A piece of a reply, as the agent reads it. `released`: it came with the tail, behind the record."""

    part: Part
    text: str
    released: bool


class Unanswered(Exception):
    """A call that brought no complete reply; the text says what came instead."""


@dataclass
class Reply:
    """One streamed reply, as far as it has come."""

    uuid: str
    """Name of the call's record."""
    content: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    captured_keys: set[str] = field(default_factory=set)
    """Names of capture fields that the agent was shown."""
    recorded_at_first_token: bool | None = None
    """Whether the record was on disk when the first token came; None: none came before the tail."""
    recorded_at_tail: bool = False
    """Whether the record was on disk when the reply became something to act on."""

    @property
    def actionable(self) -> bool:
        """Whether the agent could act: the reply has ended, or a tool call is complete."""
        return self.finish_reason is not None or any(
            _is_json(call["function"]["arguments"]) for call in self.tool_calls
        )

    @property
    def message(self) -> dict[str, Any]:
        """The assistant message, as it goes into the history of the next call."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content, "reasoning": self.reasoning}
        return {**message, "tool_calls": self.tool_calls} if self.tool_calls else message

    def add(self, chunk: dict[str, Any]) -> list[tuple[Part, str]]:
        """Take in one chunk of the stream; gives what it says."""
        self.usage = chunk.get("usage") or self.usage
        said: list[tuple[Part, str]] = []
        for part_of_chunk in (chunk, *chunk["choices"]):
            # Null says that there is none, with and without capture.
            self.captured_keys |= {key for key in CAPTURED_KEYS if part_of_chunk.get(key) is not None}
        for choice in chunk["choices"]:
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            said += self._add_delta(choice["delta"])
        return [(part, text) for part, text in said if text]

    def _add_delta(self, delta: dict[str, Any]) -> list[tuple[Part, str]]:
        reasoning, content = delta.get("reasoning") or "", delta.get("content") or ""
        self.reasoning += reasoning
        self.content += content
        said: list[tuple[Part, str]] = [("reasoning", reasoning), ("answer", content)]
        for piece in delta.get("tool_calls") or ():
            function = piece["function"]
            if piece["index"] == len(self.tool_calls):
                named = {"name": function["name"], "arguments": ""}
                self.tool_calls.append({"id": piece["id"], "type": "function", "function": named})
                said.append(("tool call", f"{named['name']}("))
            arguments = function.get("arguments") or ""
            self.tool_calls[piece["index"]]["function"]["arguments"] += arguments
            said.append(("tool call", arguments))
        return said


async def ask(
    client: httpx.AsyncClient,
    session: str,
    messages: Sequence[dict[str, Any]],
    is_recorded: Callable[[str], bool],
    show: Callable[[Fragment], None],
) -> Reply:
    """One streamed call. `is_recorded` looks for the record of a call on disk, `show` gets the reply piece by piece.

    Raises:
        Unanswered: an error came instead of a complete reply, or nothing.
    """
    request = client.stream(
        "POST",
        "/v1/chat/completions",
        headers={"proxy_x_session_id": session},
        json={
            "model": MODEL,
            "messages": messages,
            "tools": [TOOL],
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    )
    try:
        async with request as response:
            if response.status_code != 200:
                problem = _error_text(await response.aread())
                raise Unanswered(f"the proxy answered {response.status_code}: {problem}")
            reply = Reply(response.headers["x-request-id"])
            await _read(response, reply, is_recorded, show)
    except httpx.HTTPError as error:
        raise Unanswered(f"{type(error).__name__} {error}".rstrip()) from error
    if reply.finish_reason is None:
        raise Unanswered("the stream ended without a finish reason")
    return reply


async def _read(
    response: httpx.Response, reply: Reply, is_recorded: Callable[[str], bool], show: Callable[[Fragment], None]
) -> None:
    reader, actionable = SSEReader(), False
    # What the proxy sends together arrives together: the tail is one piece.
    async for data in response.aiter_bytes():
        said: list[tuple[Part, str]] = []
        for event in reader.feed(data):
            if event.data is None or event.data == DONE:
                continue
            chunk = json.loads(event.data)
            if "error" in chunk:
                raise Unanswered(f"the stream ended with an error: {_error_text(event.data)}")
            said += reply.add(chunk)
        if said and reply.recorded_at_first_token is None and not reply.actionable:
            reply.recorded_at_first_token = is_recorded(reply.uuid)
        if not actionable and reply.actionable:
            actionable, reply.recorded_at_tail = True, is_recorded(reply.uuid)
        for part, text in said:
            show(Fragment(part, text, released=actionable))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _error_text(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, TypeError, LookupError):
        return body.decode(errors="replace")
