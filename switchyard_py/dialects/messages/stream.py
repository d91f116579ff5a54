"""Write one Messages stream: live what the agent may see at once, and the tail when the record is committed.

A stream is a sequence of content blocks, one open at a time. From the end of the first `tool_use` block on everything
is kept for the tail, because harnesses run a tool as soon as its block has ended; so is the end of the reply.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from switchyard_py.dialects.messages.reply import (
    SIGNATURE,
    calls,
    message_head,
    stop_fields,
    stop_reason,
    texts,
    thinking,
    tool_use,
    usage,
)
from switchyard_py.dialects.translation import EMPTY_TEXT
from switchyard_py.engines.vllm import Chunk, EngineFault
from switchyard_py.engines.vllm.message import is_null
from switchyard_py.rawjson import NULL, InvalidJSON, Slice, decode, join_object

PING = b'event: ping\ndata: {"type":"ping"}\n\n'

_Key = str | int
"""What a block holds: `thinking`, `text`, or the index of a tool call."""

_START = b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'
_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":%b}\n\n'

_EMPTY = {
    "thinking": b'{"type":"thinking","thinking":"","signature":""}',
    "text": b'{"type":"text","text":""}',
}
_DELTAS = {
    "thinking": b'{"type":"thinking_delta","thinking":%b}',
    "text": b'{"type":"text_delta","text":%b}',
}
_INPUT_DELTA = b'{"type":"input_json_delta","partial_json":%b}'
_SIGNATURE_DELTA = b'{"type":"signature_delta","signature":%b}' % SIGNATURE


@dataclass(slots=True)
class _Block:
    index: int
    key: _Key
    content_block: bytes
    kept: list[bytes] = field(default_factory=list)

    @property
    def calls_tool(self) -> bool:
        return isinstance(self.key, int)

    def start(self) -> bytes:
        return _START % (self.index, self.content_block)

    def delta(self, text: Slice) -> bytes:
        template = _DELTAS[self.key] if isinstance(self.key, str) else _INPUT_DELTA
        return _DELTA % (self.index, template % text)

    def end(self) -> bytes:
        """What was kept of the block, and its end."""
        signature = _DELTA % (self.index, _SIGNATURE_DELTA) if self.key == "thinking" else b""
        return b"".join(self.kept) + signature + _STOP % self.index


class MessagesStream:
    """Feed it the chunks of the engine's stream, whitespace already held back. `message_id` is the reply's `id`.

    Only the first choice is written: a Messages reply has no others.
    """

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._blocks: list[_Block] = []
        self._live = 0
        self._closed = False
        self._begun = False
        self._usage: Slice | None = None
        self._stop: tuple[object, object] = (None, None)

    def live(self, chunk: Chunk) -> bytes:
        """The events to send now, b"" for none.

        Raises:
            EngineFault: a delta has not the form of one.
        """
        if not is_null(chunk.fields.get("usage")):
            self._usage = chunk.fields["usage"]
        events = [] if self._begun else [self._begin(chunk)]
        for part in chunk.parts:
            if part.index != 0:
                continue
            if part.finished:
                self._closed = True
                self._stop = decode(part.fields.get("finish_reason")), decode(part.fields.get("stop_reason"))
            try:
                events += [self._write(*piece) for piece in _pieces(part.delta)]
            except InvalidJSON as error:
                raise EngineFault(f"a delta of the engine's stream cannot be read: {error}") from None
        return b"".join(events)

    def tail(self) -> bytes:
        """Everything that was kept back, and the end of the message."""
        # Of the blocks sent live, all but the last were ended live.
        unfinished = self._blocks[max(0, self._live - 1) :]
        blocks = [(b"" if block.index < self._live else block.start()) + block.end() for block in unfinished]
        calls_tool = any(block.calls_tool for block in self._blocks)
        delta = join_object(stop_fields(*stop_reason(*self._stop, calls_tool=calls_tool)))
        message_delta = join_object({"type": b'"message_delta"', "delta": delta, "usage": usage(self._usage)})
        return (
            b"".join(blocks)
            + b"event: message_delta\ndata: %b\n\n" % message_delta
            + b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
        )

    def _begin(self, chunk: Chunk) -> bytes:
        self._begun = True
        head = message_head(self._message_id, chunk.fields.get("model", EMPTY_TEXT), b"[]")
        message = join_object({**head, **stop_fields(None, None), "usage": usage(self._usage)})
        start = join_object({"type": b'"message_start"', "message": message})
        return b"event: message_start\ndata: %b\n\n" % start + PING

    def _write(self, key: _Key, text: Slice, call: dict[str, Slice]) -> bytes:
        """Add a piece to its block, a new one where it has none; what of that may be sent now."""
        block = self._block(key)
        events = b""
        if block is None:
            before = self._blocks[-1] if self._blocks else None
            self._closed = self._closed or (before is not None and before.calls_tool)
            block = _Block(len(self._blocks), key, tool_use(call, b"{}") if isinstance(key, int) else _EMPTY[key])
            self._blocks.append(block)
            if not self._closed:
                self._live += 1
                events = (b"" if before is None else before.end()) + block.start()
        if bytes(text) == EMPTY_TEXT:
            return events
        if self._closed:
            block.kept.append(block.delta(text))
            return b""
        return events + block.delta(text)

    def _block(self, key: _Key) -> _Block | None:
        """The block a piece goes on with. A tool call is gone on with even when another began after it."""
        candidates = self._blocks if isinstance(key, int) else self._blocks[-1:]
        return next((block for block in candidates if block.key == key), None)


def _pieces(delta: dict[str, Slice]) -> Iterator[tuple[_Key, Slice, dict[str, Slice]]]:
    """What a delta adds: to which block, the text, and for a tool call its fields, the name among them."""
    for text in thinking(delta):
        yield "thinking", text, {}
    for text in texts(delta):
        yield "text", text, {}
    for call in calls(delta):
        index = decode(call.get("index"))
        arguments = call.get("arguments", NULL)
        yield index if isinstance(index, int) else 0, EMPTY_TEXT if is_null(arguments) else arguments, call
