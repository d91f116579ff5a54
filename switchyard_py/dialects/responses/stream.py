"""Write one Responses stream: live what the agent may see at once, and the tail when the record is committed.

A stream is a sequence of items, one open at a time. From the end of the first function call on everything waits for
the tail, and so does the end of the reply.
"""

from switchyard_py.dialects.answer import REFUSAL, TEXT, THINKING, Key
from switchyard_py.dialects.blocks import Block, BlockHold, Move, Step
from switchyard_py.dialects.responses.errors import error_fields, failure
from switchyard_py.dialects.responses.output import COMPLETED, IN_PROGRESS, part
from switchyard_py.dialects.responses.reply import ResponseWriter, outcome, usage
from switchyard_py.dialects.translation import EMPTY_TEXT
from switchyard_py.engines.vllm import Chunk
from switchyard_py.engines.vllm.message import is_null
from switchyard_py.errors import SwitchyardError
from switchyard_py.rawjson import Slice, encode, join_object

_CONTENT_INDEX: dict[str, Slice] = {"content_index": b"0"}
_NAMES: dict[Key, str] = {THINKING: "reasoning_text", TEXT: "output_text", REFUSAL: "refusal"}
_CALL = "function_call_arguments"
_DONE_KEYS = {THINKING: "text", TEXT: "text", REFUSAL: "refusal"}
_DELTA = b'event: %b\ndata: {"type":"%b","sequence_number":%%d,%b,"delta":%%b}\n\n'


class ResponsesStream:
    """Feed it the chunks of the engine's stream, whitespace already held back.

    Only the first choice is written: a response has no others.
    """

    def __init__(self, writer: ResponseWriter) -> None:
        self._writer = writer
        self._hold = BlockHold()
        self._sequence = 0
        self._delta = b""
        self._items: list[bytes] = []
        self._model: Slice | None = None
        self._usage: Slice | None = None

    def live(self, chunk: Chunk) -> bytes:
        """The events to send now, b"" for none.

        Raises:
            EngineFault: a delta has not the form of one.
        """
        steps = self._hold.feed(chunk)
        if not is_null(chunk.fields.get("usage")):
            self._usage = chunk.fields["usage"]
        events = [] if self._sequence else [self._begin(chunk)]
        return b"".join([*events, *(self._write(step, COMPLETED) for step in steps)])

    def tail(self) -> bytes:
        """Everything that was kept back, and the end of the response."""
        steps, blocks = self._hold.tail(), self._hold.blocks
        if not blocks:
            # An empty answer is an empty message, which goes into the next prompt as the assistant's turn that it was.
            blocks = [Block(0, TEXT)]
            steps = [Step(Move.START, blocks[0]), Step(Move.END, blocks[0])]
        status, why = outcome(self._hold.finish_reason)
        events = [self._write(step, status if step.block is blocks[-1] else COMPLETED) for step in steps]
        response = self._writer.response(
            status, model=self._model, items=self._items, why_incomplete=why, usage=usage(self._usage)
        )
        return b"".join([*events, self._event(f"response.{status}", {"response": response})])

    def error_event(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as the end of the stream, in place of the tail."""
        response = self._writer.response("failed", model=self._model, error=failure(error))
        told: dict[str, Slice] = {key: encode(value) for key, value in error_fields(error).items()}
        return self._event("error", told) + self._event("response.failed", {"response": response})

    def _begin(self, chunk: Chunk) -> bytes:
        self._model = chunk.fields.get("model")
        response = self._writer.response(IN_PROGRESS, model=self._model)
        names = ("response.created", "response.in_progress")
        return b"".join(self._event(name, {"response": response}) for name in names)

    def _write(self, step: Step, status: str) -> bytes:
        """The events of one step; `status` is what becomes of an item that ends."""
        match step.move:
            case Move.START:
                return self._start(step.block)
            case Move.ADD:
                return self._add(step.text)
        return self._end(step.block, status)

    def _start(self, block: Block) -> bytes:
        fields = self._place(block)
        item = self._item(block, None, IN_PROGRESS)
        added = self._event("response.output_item.added", {"output_index": fields["output_index"], "item": item})
        name = f"response.{_NAMES.get(block.key, _CALL)}.delta".encode()
        self._delta = _DELTA % (name, name, join_object({**fields, **_log_probs(block)})[1:-1])
        if not isinstance(block.key, str):
            return added
        return added + self._event("response.content_part.added", {**fields, "part": part(block.key, EMPTY_TEXT)})

    def _add(self, text: Slice) -> bytes:
        """Add to the item that was started last: nothing is added to an earlier one."""
        self._sequence += 1
        return self._delta % (self._sequence - 1, text)

    def _end(self, block: Block, status: str) -> bytes:
        fields, text = self._place(block), block.text
        if isinstance(block.key, str):
            done = {**fields, _DONE_KEYS[block.key]: text, **_log_probs(block)}
            events = [
                self._event(f"response.{_NAMES[block.key]}.done", done),
                self._event("response.content_part.done", {**fields, "part": part(block.key, text)}),
            ]
        else:
            events = [self._event(f"response.{_CALL}.done", {**fields, "arguments": text})]
        item = self._item(block, text, status)
        self._items.append(item)
        ended = self._event("response.output_item.done", {"output_index": fields["output_index"], "item": item})
        return b"".join([*events, ended])

    def _place(self, block: Block) -> dict[str, Slice]:
        """The fields that say what an event is about."""
        item_id = self._writer.output.item_id(block.index, block.key)
        content_index = {} if block.calls_tool else _CONTENT_INDEX
        return {"item_id": item_id, "output_index": b"%d" % block.index, **content_index}

    def _item(self, block: Block, text: Slice | None, status: str) -> bytes:
        return self._writer.output.item(block.index, block.key, block.call, text, status)

    def _event(self, name: str, fields: dict[str, Slice]) -> bytes:
        kind = name.encode()
        head: dict[str, Slice] = {"type": b'"%b"' % kind, "sequence_number": b"%d" % self._sequence}
        self._sequence += 1
        return b"event: %b\ndata: %b\n\n" % (kind, join_object({**head, **fields}))


def _log_probs(block: Block) -> dict[str, Slice]:
    """The log-probs of text, of which events have to tell; the agent gets none."""
    return {"logprobs": b"[]"} if block.key == TEXT else {}
