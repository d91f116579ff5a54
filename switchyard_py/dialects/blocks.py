"""Cut a streamed answer into blocks, one open at a time, and keep back what may not be told before it is durable.

Harnesses run a tool as soon as its call has ended: from the end of the first call on everything is kept for the tail,
and so is the end of the reply.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from switchyard_py.dialects.answer import Key, Piece, pieces
from switchyard_py.dialects.translation import EMPTY_TEXT, joined_text
from switchyard_py.engines.vllm import Chunk, EngineFault
from switchyard_py.rawjson import InvalidJSON, Slice, decode


class Move(Enum):
    """What happens to a block."""

    START = auto()
    ADD = auto()
    END = auto()


@dataclass(slots=True)
class Block:
    """Thinking, text, a refusal or a tool call with the fields of its first delta; `texts` are JSON strings."""

    index: int
    key: Key
    call: dict[str, Slice] = field(default_factory=dict)
    texts: list[bytes] = field(default_factory=list)
    kept: list[bytes] = field(default_factory=list)

    @property
    def calls_tool(self) -> bool:
        return isinstance(self.key, int)

    @property
    def text(self) -> bytes:
        """All it says so far, as one JSON string."""
        return joined_text(self.texts)


class Step(NamedTuple):
    """One event of the answer; `text` is what is added, a JSON string."""

    move: Move
    block: Block
    text: Slice = EMPTY_TEXT


class BlockHold:
    """Feed it the chunks of one stream, white space already held back. Only the first choice counts."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.finish_reason: object = None
        self.stop_reason: object = None
        self._live = 0
        self._closed = False

    def feed(self, chunk: Chunk) -> list[Step]:
        """What may be told now.

        Raises:
            EngineFault: a delta has not the form of one; nothing of the chunk has been taken.
        """
        parts = [part for part in chunk.parts if part.index == 0]
        try:
            said = [pieces(part.delta) for part in parts]
        except InvalidJSON as error:
            raise EngineFault(f"a delta of the engine's stream cannot be read: {error}") from None
        steps: list[Step] = []
        for part, found in zip(parts, said, strict=True):
            if part.finished:
                self._closed = True
                self.finish_reason = decode(part.fields.get("finish_reason"))
                self.stop_reason = decode(part.fields.get("stop_reason"))
            for piece in found:
                steps += self._add(piece)
        return steps

    def tail(self) -> list[Step]:
        """What was kept back; call it once the stream has ended."""
        # Of the blocks told live, all but the last were ended live.
        return [step for block in self.blocks[max(0, self._live - 1) :] for step in self._rest(block)]

    def _rest(self, block: Block) -> Iterator[Step]:
        if block.index >= self._live:
            yield Step(Move.START, block)
        for text in block.kept:
            yield Step(Move.ADD, block, text)
        yield Step(Move.END, block)

    def _add(self, piece: Piece) -> Iterator[Step]:
        """Add a piece to its block, a new one where it has none; what of that may be told now."""
        block = self._block(piece.key)
        if block is None:
            before = self.blocks[-1] if self.blocks else None
            self._closed = self._closed or (before is not None and before.calls_tool)
            block = Block(len(self.blocks), piece.key, piece.call)
            self.blocks.append(block)
            if not self._closed:
                self._live += 1
                if before is not None:
                    yield Step(Move.END, before)
                yield Step(Move.START, block)
        text = bytes(piece.text)
        if text == EMPTY_TEXT:
            return
        block.texts.append(text)
        if self._closed:
            block.kept.append(text)
        else:
            yield Step(Move.ADD, block, text)

    def _block(self, key: Key) -> Block | None:
        """The block a piece goes on with. A tool call is gone on with even when another began after it."""
        candidates = self.blocks if isinstance(key, int) else self.blocks[-1:]
        return next((block for block in candidates if block.key == key), None)
