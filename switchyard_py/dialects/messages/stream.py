"""Write one Messages stream: live what the agent may see at once, and the tail when the record is committed.

A stream is a sequence of content blocks, one open at a time. From the end of the first `tool_use` block on everything
waits for the tail, and so does the end of the reply.
"""

from switchyard_py.dialects.answer import REFUSAL, TEXT, THINKING
from switchyard_py.dialects.blocks import Block, BlockHold, Move, Step
from switchyard_py.dialects.messages.errors import error_event
from switchyard_py.dialects.messages.reply import SIGNATURE, message_head, stop_fields, stop_reason, tool_use, usage
from switchyard_py.dialects.translation import EMPTY_TEXT
from switchyard_py.engines.vllm import Chunk
from switchyard_py.engines.vllm.message import is_null
from switchyard_py.errors import SwitchyardError
from switchyard_py.rawjson import Slice, join_object

PING = b'event: ping\ndata: {"type":"ping"}\n\n'

_START = b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'
_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":%b}\n\n'

_EMPTY_BLOCK = b'{"type":"text","text":""}'
_TEXT_DELTA = b'{"type":"text_delta","text":%b}'
_EMPTY = {THINKING: b'{"type":"thinking","thinking":"","signature":""}', TEXT: _EMPTY_BLOCK, REFUSAL: _EMPTY_BLOCK}
_DELTAS = {THINKING: b'{"type":"thinking_delta","thinking":%b}', TEXT: _TEXT_DELTA, REFUSAL: _TEXT_DELTA}
_INPUT_DELTA = b'{"type":"input_json_delta","partial_json":%b}'
_SIGNATURE_DELTA = b'{"type":"signature_delta","signature":%b}' % SIGNATURE


class MessagesStream:
    """Feed it the chunks of the engine's stream, whitespace already held back. `message_id` is the reply's `id`.

    Only the first choice is written: a Messages reply has no others.
    """

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._hold = BlockHold()
        self._begun = False
        self._usage: Slice | None = None

    def live(self, chunk: Chunk) -> bytes:
        """The events to send now, b"" for none.

        Raises:
            EngineFault: a delta has not the form of one.
        """
        if not is_null(chunk.fields.get("usage")):
            self._usage = chunk.fields["usage"]
        events = [] if self._begun else [self._begin(chunk)]
        return b"".join([*events, *map(_event, self._hold.feed(chunk))])

    def tail(self) -> bytes:
        """Everything that was kept back, and the end of the message."""
        hold = self._hold
        arguments = [block.text for block in hold.blocks if block.calls_tool]
        why = stop_reason(hold.finish_reason, hold.stop_reason, arguments)
        delta = join_object(stop_fields(*why))
        message_delta = join_object({"type": b'"message_delta"', "delta": delta, "usage": usage(self._usage)})
        return (
            b"".join(map(_event, hold.tail()))
            + b"event: message_delta\ndata: %b\n\n" % message_delta
            + b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
        )

    def error_event(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as the last event, in place of the tail."""
        return error_event(error, request_id)

    def _begin(self, chunk: Chunk) -> bytes:
        self._begun = True
        head = message_head(self._message_id, chunk.fields.get("model", EMPTY_TEXT), b"[]")
        message = join_object({**head, **stop_fields(None, None), "usage": usage(self._usage)})
        start = join_object({"type": b'"message_start"', "message": message})
        return b"event: message_start\ndata: %b\n\n" % start + PING


def _event(step: Step) -> bytes:
    block = step.block
    match step.move:
        case Move.START:
            return _START % (block.index, _content_block(block))
        case Move.ADD:
            return _delta(block, step.text)
    signature = _DELTA % (block.index, _SIGNATURE_DELTA) if block.key == THINKING else b""
    return signature + _STOP % block.index


def _content_block(block: Block) -> bytes:
    return _EMPTY[block.key] if isinstance(block.key, str) else tool_use(block.call, b"{}")


def _delta(block: Block, text: Slice) -> bytes:
    template = _DELTAS[block.key] if isinstance(block.key, str) else _INPUT_DELTA
    return _DELTA % (block.index, template % text)
