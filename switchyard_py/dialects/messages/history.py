"""System prompt and turns of a conversation as chat messages, in the agent's order.

One turn of the user that holds tool results becomes a tool message for each and user messages for what stands between.
Thinking goes back to the engine as the turn's reasoning, whoever signed it; redacted thinking cannot be read by anyone
but its maker and is left out.
"""

from switchyard_py.dialects.arguments import ArgumentsMemory
from switchyard_py.dialects.messages.blocks import Block, block_parts, blocks_of, content
from switchyard_py.dialects.messages.tools import TOOL_CHANGES
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
    tool_call,
    tool_message,
)
from switchyard_py.rawjson import TRUE, Slice, decode, join_array


def chat_messages(system: Slice | None, messages: Slice | None, memory: ArgumentsMemory) -> bytes:
    """The `messages` of the chat request.

    Raises:
        RequestRefused: something is not as the Messages API has it, or cannot be given to the engine.
    """
    written: list[bytes] = []
    prompt = content(system, "system")
    if bytes(prompt) != EMPTY_TEXT:
        written.append(plain_message("system", prompt))
    for index, item in enumerate(as_array(messages, "messages")):
        where = f"messages[{index}]"
        message = as_object(item, where)
        written += _turn(message, where, memory)
    return join_array(written)


def _turn(message: dict[str, Slice], where: str, memory: ArgumentsMemory) -> list[bytes]:
    role = decode(message.get("role"))
    if role not in ("user", "assistant", "system"):
        raise refusal(f"{where}.role", "must be user, assistant or system.")
    body, place = message.get("content"), f"{where}.content"
    if body is None:
        raise refusal(place, "must be a string or an array of content blocks.")
    if is_text(body):
        return [plain_message(role, body)]
    if role == "assistant":
        return [_assistant_turn(body, place, memory)]
    return _other_turn(role, body, place)


def _assistant_turn(body: Slice, where: str, memory: ArgumentsMemory) -> bytes:
    texts: list[Slice] = []
    reasoning: list[Slice] = []
    calls: list[bytes] = []
    for block, kind, place in blocks_of(body, where):
        match kind:
            case "text":
                texts.append(as_text(block.get("text"), f"{place}.text"))
            case "thinking":
                reasoning.append(as_text(block.get("thinking"), f"{place}.thinking"))
            case "tool_use":
                calls.append(_call(block, place, memory))
            case "redacted_thinking":
                pass
            case _:
                raise refusal(place, f"has the type {kind}, which no turn of the engine has. Write it as a text block.")
    return assistant_message(texts, reasoning, calls)


def _call(block: Block, where: str, memory: ArgumentsMemory) -> bytes:
    given = bytes(block.get("input", b"{}")).decode()
    return tool_call(
        as_text(block.get("id"), f"{where}.id"), as_text(block.get("name"), f"{where}.name"), given, memory
    )


def _other_turn(role: str, body: Slice, where: str) -> list[bytes]:
    written: list[bytes] = []
    parts: list[Part] = []
    for block, kind, place in blocks_of(body, where):
        if kind == "tool_result":
            if parts:
                written.append(plain_message(role, content_of(parts)))
                parts = []
            written.append(_result(block, place))
        elif kind not in TOOL_CHANGES:
            parts += block_parts(block, kind, place)
    # A system turn without text changes tools at most.
    if parts or (role == "user" and not written):
        written.append(plain_message(role, content_of(parts)))
    return written


def _result(block: Block, where: str) -> bytes:
    call_id = as_text(block.get("tool_use_id"), f"{where}.tool_use_id")
    is_error = bytes(block.get("is_error", b"")) == TRUE
    return tool_message(call_id, content(block.get("content"), f"{where}.content"), is_error=is_error)
