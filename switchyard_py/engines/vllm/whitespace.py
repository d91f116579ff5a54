"""Hold white space that may only lead up to a tool call, and drop it when it does.

vLLM's buffered replies have no content where the text before a tool call is nothing but white space; its streams have
it. An agent that resends it gets another prompt than the one its tokens were sampled after (seen with Qwen3's template
on vLLM 0.32: 274 common tokens instead of 310).
"""

from switchyard_py.engines.vllm.harvest import Chunk, Part
from switchyard_py.engines.vllm.message import is_null
from switchyard_py.engines.vllm.prepare import Wants
from switchyard_py.rawjson import Slice


class WhitespaceHold:
    """Pass chunks on in order, except those whose content may still turn out to be dropped."""

    def __init__(self, wants: Wants, *, on: bool = True) -> None:
        self._on = on
        # Whoever asked for ids or log-probs gets every chunk, in the engine's order.
        self._every_chunk = wants.token_ids or wants.log_probs
        self._choices: dict[int, _Lead] = {}
        self.dropped = False

    def feed(self, chunk: Chunk) -> list[Chunk]:
        """The chunks that may pass now that `chunk` has arrived."""
        if not self._on:
            return [chunk]
        if len(chunk.parts) != 1:
            return [*self.end(), chunk]
        part = chunk.parts[0]
        lead = self._choices.setdefault(part.index, _Lead())
        if lead.over:
            return [chunk]
        if part.content and part.content.strip():
            lead.over = True
            return [*lead.release(), chunk]
        if part.calls_tool:
            lead.tools = True
            shown = self._drop(lead)
            self._strip(part)
            return [*shown, chunk]
        if part.finished:
            lead.over = True
            if lead.tools:
                shown = self._drop(lead)
                self._strip(part)
                return [*shown, chunk]
            return [*lead.release(), chunk]
        if part.content or (lead.held and self._every_chunk):
            lead.held.append(chunk)
            return []
        return [chunk]

    def end(self) -> list[Chunk]:
        """Everything that is still held."""
        return [chunk for lead in self._choices.values() for chunk in lead.release()]

    def _drop(self, lead: "_Lead") -> list[Chunk]:
        held = lead.release()
        for chunk in held:
            self._strip(chunk.parts[0])
        return [chunk for chunk in held if chunk.parts[0].delta or self._every_chunk]

    def _strip(self, part: Part) -> None:
        if part.content:
            part.delta = _without_content(part.delta)
            self.dropped = True


class _Lead:
    """The beginning of one choice, while its content is nothing but white space."""

    def __init__(self) -> None:
        self.held: list[Chunk] = []
        self.tools = False
        self.over = False

    def release(self) -> list[Chunk]:
        held, self.held = self.held, []
        return held


def _without_content(delta: dict[str, Slice]) -> dict[str, Slice]:
    rest = {key: value for key, value in delta.items() if key != "content"}
    # Beside content, `reasoning: null` says that reasoning is hidden; alone it says nothing.
    return {} if all(map(is_null, rest.values())) else rest
