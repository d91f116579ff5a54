"""Instructions and input items as chat messages, in the agent's order.

Consecutive items of the assistant are one message, as the engine's reply was: reasoning, text and calls. What
instructs the model before the conversation begins is one system message, because some chat templates allow no other.
"""

from switchyard_py.dialects.arguments import ArgumentsMemory
from switchyard_py.dialects.responses.content import parts, texts
from switchyard_py.dialects.responses.ids import origin
from switchyard_py.dialects.responses.reasoning import reasoning_texts
from switchyard_py.dialects.responses.tools import engine_name
from switchyard_py.dialects.translation import (
    EMPTY_TEXT,
    Part,
    as_array,
    as_object,
    as_text,
    assistant_message,
    content_of,
    is_text,
    plain_message,
    refusal,
    text_part,
    tool_call,
    tool_message,
)
from switchyard_py.rawjson import Slice, decode, join_array

Item = dict[str, Slice]

_INSTRUCTING = ("system", "developer")


def chat_messages(instructions: Slice | None, given: Slice | None, memory: ArgumentsMemory) -> bytes:
    """The `messages` of the chat request.

    Raises:
        RequestRefused: something is not as the Responses API has it, or cannot be given to the engine.
    """
    conversation = _Conversation(memory)
    if instructions is not None:
        conversation.instruct(parts(instructions, "instructions"))
    if given is not None and is_text(given):
        conversation.say("user", [text_part(given)])
    elif given is None:
        raise refusal("input", "must be a string or an array of items.")
    else:
        for index, item in enumerate(as_array(given, "input")):
            where = f"input[{index}]"
            conversation.add(as_object(item, where), where)
    return conversation.messages()


class _Conversation:
    def __init__(self, memory: ArgumentsMemory) -> None:
        self._memory = memory
        self._instructions: list[Part] = []
        self._written: list[bytes] = []
        self._turn: _Turn | None = None

    def add(self, item: Item, where: str) -> None:
        kind = decode(item.get("type", b'"message"'))
        match kind:
            case "message":
                self._add_message(item, where)
            case "reasoning":
                self._turn_of(item, begins=True).reasoning += reasoning_texts(item, where)
            case "function_call":
                self._turn_of(item, begins=False).calls.append(self._call(item, where))
            case "function_call_output":
                call_id = as_text(item.get("call_id"), f"{where}.call_id")
                content = content_of(parts(item.get("output"), f"{where}.output"))
                self._write(tool_message(call_id, content))
            case "item_reference":
                raise refusal(where, "refers to an item, but this proxy stores none. Send the item itself.")
            case _:
                raise refusal(where, f"has the type {kind}, which cannot be given to the engine. Leave it out.")

    def instruct(self, said: list[Part]) -> None:
        """Add to what comes before the conversation. An empty text says nothing there."""
        self._instructions += [part for part in said if part.text is None or bytes(part.text) != EMPTY_TEXT]

    def say(self, role: str, said: list[Part]) -> None:
        self._write(plain_message(role, content_of(said)))

    def messages(self) -> bytes:
        self._end_turn()
        leading = [plain_message("system", content_of(self._instructions))] if self._instructions else []
        return join_array([*leading, *self._written])

    def _add_message(self, item: Item, where: str) -> None:
        role, body, place = decode(item.get("role")), item.get("content"), f"{where}.content"
        if role == "assistant":
            self._turn_of(item, begins=True).texts += texts(body, place)
        elif role == "user":
            self.say("user", parts(body, place))
        elif role not in _INSTRUCTING:
            raise refusal(f"{where}.role", "must be user, assistant, system or developer.")
        elif self._turn is None and not self._written:
            self.instruct(parts(body, place))
        else:
            # Chat templates know no developer: Qwen3's leaves its messages out.
            self.say("system", parts(body, place))

    def _call(self, item: Item, where: str) -> bytes:
        call_id = as_text(item.get("call_id"), f"{where}.call_id")
        name = engine_name(item, where)
        arguments = decode(as_text(item.get("arguments"), f"{where}.arguments"))
        return tool_call(call_id, name, arguments, self._memory)

    def _turn_of(self, item: Item, *, begins: bool) -> "_Turn":
        """The assistant's turn an item belongs to; `begins` for an item that no turn has after its text."""
        response = origin(decode(item.get("id")))
        if self._turn is not None and self._turn.is_over(response, begins=begins):
            self._end_turn()
        if self._turn is None:
            self._turn = _Turn()
        self._turn.response = self._turn.response or response
        return self._turn

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        # Reasoning that nobody can read is no turn.
        if turn is not None and (turn.texts or turn.reasoning or turn.calls):
            self._written.append(assistant_message(turn.texts, turn.reasoning, turn.calls))

    def _write(self, message: bytes) -> None:
        self._end_turn()
        self._written.append(message)


class _Turn:
    """One turn of the assistant; `response` is the one it was, where an item's id tells."""

    def __init__(self) -> None:
        self.response: str | None = None
        self.reasoning: list[Slice] = []
        self.texts: list[Slice] = []
        self.calls: list[bytes] = []

    def is_over(self, response: str | None, *, begins: bool) -> bool:
        """Whether an item of `response` belongs to the next turn. Agents may leave out ids."""
        if self.response is not None and response is not None:
            return self.response != response
        return begins and bool(self.texts) and not self.calls
