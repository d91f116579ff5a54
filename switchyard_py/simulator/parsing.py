"""The engine's parsers: from the model's text to reasoning, content and tool calls.

Two of them, because the engine has two that do not agree: the whole-reply parser gives back the raw text when a call
is not valid JSON and re-spaces arguments, the streaming parser has already sent what it saw.
"""

import json
import re
from dataclasses import dataclass, field
from typing import NamedTuple

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"]*)"')
_ARGUMENTS = re.compile(r'"arguments"\s*:\s*(?=\S)')


class ToolCall(NamedTuple):
    """A complete tool call; `arguments` is JSON text."""

    name: str
    arguments: str


class ParsedReply(NamedTuple):
    """A whole reply, taken apart."""

    reasoning: str | None
    content: str | None
    calls: list[ToolCall]


@dataclass
class CallDelta:
    """What a stream adds to one tool call; `name` comes once."""

    index: int
    name: str | None = None
    arguments: str = ""


@dataclass
class Delta:
    """What a stream adds to a message."""

    reasoning: str = ""
    content: str = ""
    calls: list[CallDelta] = field(default_factory=list)


def parse_reply(text: str, *, thinking: bool, tools: bool, forced: bool) -> ParsedReply:
    """Take a whole reply apart. `forced`: the tool choice was required or a named function."""
    reasoning: str | None = None
    content: str | None = text
    if thinking:
        before, _, after = text.removeprefix("<think>").partition("</think>")
        reasoning = before or None
        # The engine drops further closing tags.
        content = after.replace("</think>", "") or None
        # A forced call leaves an empty text where there is none.
        if tools and forced and content is None:
            content = ""
    if not tools or content is None or "<tool_call>" not in content:
        return ParsedReply(reasoning, content, [])
    try:
        calls = [_parse_call(match[1] or match[2] or "") for match in _CALL.finditer(content)]
    except (ValueError, KeyError, TypeError):
        return ParsedReply(reasoning, content, [])
    before = content[: content.index("<tool_call>")]
    return ParsedReply(reasoning, before if before.strip() else ("" if forced else None), calls)


def _parse_call(text: str) -> ToolCall:
    call = json.loads(text)
    return ToolCall(str(call["name"]), json.dumps(call.get("arguments", {}), ensure_ascii=False))


class StreamParser:
    """Takes a reply apart while it arrives. Text that may be the beginning of a tag waits for the rest of it."""

    def __init__(self, *, thinking: bool, tools: bool) -> None:
        self._mode = "opening" if thinking else "content"
        self._content_tags = [*(["</think>"] if thinking else []), *(["<tool_call>"] if tools else [])]
        self._pending = ""
        self._call = _CallReader(0)
        self.has_calls = False
        """Whether a tool call was begun by name."""

    def push(self, text: str) -> Delta:
        """What `text` adds."""
        self._pending += text
        delta = Delta()
        while self._step(delta):
            pass
        return delta

    def finish(self, text: str) -> Delta:
        """What the last `text` adds, with whatever still waited for a tag."""
        delta = self.push(text)
        if self._mode in ("opening", "reasoning"):
            delta.reasoning += self._pending
        elif self._mode == "content":
            delta.content += self._pending
        self._pending = ""
        return delta

    def _step(self, delta: Delta) -> bool:
        """Consume up to and including the next tag; whether there was one."""
        if self._mode == "opening":
            if len(self._pending) < len("<think>") and "<think>".startswith(self._pending):
                return False
            self._pending = self._pending.removeprefix("<think>")
            self._mode = "reasoning"
            return True
        if self._mode == "reasoning":
            text, tag = self._until(["</think>"])
            delta.reasoning += text
            self._mode = "content" if tag else "reasoning"
        elif self._mode == "call":
            text, tag = self._until(["</tool_call>"])
            self._call.push(text, delta)
            self.has_calls = self.has_calls or self._call.is_named
            self._mode = "between" if tag else "call"
        else:
            text, tag = self._until(self._content_tags)
            # Once a call was made, text between and behind calls is not handed on.
            delta.content += text if self._mode == "content" else ""
            if tag == "<tool_call>":
                # A call that never had a name was never shown, so it has no number.
                self._mode, self._call = "call", _CallReader(self._call.index + self._call.is_named)
        return tag is not None

    def _until(self, tags: list[str]) -> tuple[str, str | None]:
        """The text before the first of `tags`, which is consumed; without a tag, the text that cannot begin one."""
        text = self._pending
        tag = min((tag for tag in tags if tag in text), key=text.index, default=None)
        if tag is not None:
            before, _, self._pending = text.partition(tag)
            return before, tag
        begun = (size for tag in tags for size in range(1, len(tag)) if text.endswith(tag[:size]))
        kept = len(text) - max(begun, default=0)
        self._pending = text[kept:]
        return text[:kept], None


class _CallReader:
    """The text inside one tool call: the name once it is complete, then the arguments as they come."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.is_named = False
        self._text = ""
        self._start: int | None = None
        self._scanned = 0
        self._sent = 0
        self._depth = 0
        self._in_string = False
        self._end: int | None = None

    def push(self, text: str, delta: Delta) -> None:
        self._text += text
        added = CallDelta(self.index)
        if not self.is_named and (name := _NAME.search(self._text)):
            self.is_named, added.name = True, name[1]
        if self._start is None and (found := _ARGUMENTS.search(self._text)):
            self._start = self._scanned = self._sent = found.end()
        if self.is_named and self._start is not None:
            added.arguments = self._new_arguments()
        if added.name is not None or added.arguments:
            delta.calls.append(added)

    def _new_arguments(self) -> str:
        self._scan()
        # Trailing blanks wait: they may lie behind the value instead of in it.
        until = len(self._text.rstrip()) if self._end is None else self._end
        fragment = self._text[self._sent : until]
        self._sent = max(self._sent, until)
        return fragment

    def _scan(self) -> None:
        """Find the end of the arguments: an object closed, or a scalar followed by the end of the call."""
        while self._end is None and self._scanned < len(self._text):
            char = self._text[self._scanned]
            self._scanned += 1
            if self._in_string:
                if char == "\\":
                    self._scanned += 1
                self._in_string = char != '"'
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    self._end = self._scanned if self._depth == 0 else self._scanned - 1
            elif char == "," and self._depth == 0:
                self._end = self._scanned - 1
