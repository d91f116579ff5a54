"""Decide which chunk of a chat stream an agent may not see before the record is committed.

Harnesses run a tool the moment its call is complete, seconds before the stream ends. So the newest fragment of a call's
arguments is kept back by one, and everything waits from the fragment on that would complete them, or behind which
something else follows. The end of the reply waits as well: the first finish chunk and what comes after it.

The other dialects keep back blocks instead (`dialects.blocks`); the proxy lets either go once the record is committed.
"""

from switchyard_py.engines.vllm import Chunk
from switchyard_py.rawjson import decode, encode

_Call = tuple[int, int]
"""A tool call in a stream: index of its choice, index of the call."""

_LEGACY_CALL = -1
"""Stands for the index of the one call of the older `function_call` delta."""


class TailHold:
    """Feed it the chunks of one stream: it gives those that may pass and keeps the tail, in the engine's order."""

    def __init__(self) -> None:
        self._tail: list[Chunk] = []
        self._closed = False
        self._kept: list[Chunk] = []
        self._call: _Call | None = None
        self._arguments = CompleteJSON()

    def feed(self, chunk: Chunk) -> list[Chunk]:
        """The chunks that may pass now that `chunk` has arrived."""
        if self._closed:
            self._tail.append(chunk)
            return []
        calls = _calls(chunk)
        if self._call is None and not calls and not chunk.finishes:
            return [chunk]
        if chunk.finishes or self._ends_call(chunk, calls):
            return self._close(chunk)
        fragment = "".join(calls.values())
        if not fragment:
            if not self._kept:
                self._call = next(iter(calls), self._call)
                return [chunk]
            self._kept.append(chunk)
            return []
        passed, self._kept = self._kept, [chunk]
        self._call = next(iter(calls))
        if self._arguments.feed(fragment):
            self._close()
        return passed

    def tail(self) -> list[Chunk]:
        """Everything that was kept back; call it once the stream has ended."""
        return [*self._kept, *self._tail]

    def _ends_call(self, chunk: Chunk, calls: dict[_Call, str]) -> bool:
        """Whether the chunk says that the call before it is complete: another call, text, or more than one call."""
        if len(calls) > 1:
            return True
        if self._call is None:
            return False
        return any(call != self._call for call in calls) or any(_speaks(chunk))

    def _close(self, *chunks: Chunk) -> list[Chunk]:
        self._closed = True
        self._tail, self._kept = [*self._kept, *chunks], []
        return []


class CompleteJSON:
    """Tells when text that arrives in pieces holds a complete JSON value.

    Brackets and strings are followed; a bare number, literal or anything else counts as complete from its first
    character on, because its end cannot be known.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.complete = False

    def feed(self, text: str) -> bool:
        """Add a piece; whether the value is complete by now."""
        for character in text:
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
                    self.complete |= self._depth == 0
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                self.complete |= self._depth <= 0
            elif self._depth == 0 and not character.isspace():
                self.complete = True
        return self.complete


def _calls(chunk: Chunk) -> dict[_Call, str]:
    """The tool calls a chunk adds to, each with the text it adds to the arguments."""
    calls: dict[_Call, str] = {}
    for part in chunk.parts:
        if not part.calls_tool:
            continue
        entries = decode(part.delta.get("tool_calls"))
        legacy = decode(part.delta.get("function_call"))
        for entry in entries if isinstance(entries, list) else []:
            call = entry if isinstance(entry, dict) else {}
            index = call.get("index", 0)
            key = (part.index, index if isinstance(index, int) else _LEGACY_CALL)
            calls[key] = calls.get(key, "") + _arguments(call.get("function"))
        if legacy is not None:
            calls[part.index, _LEGACY_CALL] = _arguments(legacy)
    return calls


def _arguments(function: object) -> str:
    """The text added to the arguments; of arguments that are no text, as no vLLM sends them, their JSON."""
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else encode(arguments).decode()


def _speaks(chunk: Chunk) -> list[bool]:
    """For each part of the chunk, whether it says something beside its tool calls."""
    return [
        any(decode(value) for key, value in part.delta.items() if key not in ("role", "tool_calls", "function_call"))
        for part in chunk.parts
    ]
