"""The tools an agent offers, and how the engine is to choose among them."""

from collections.abc import Iterator
from dataclasses import dataclass

from switchyard_py.dialects.messages.blocks import Block, blocks_of
from switchyard_py.dialects.translation import (
    as_array,
    as_object,
    as_text,
    function_tool,
    is_text,
    named_choice,
    refusal,
)
from switchyard_py.rawjson import TRUE, Slice, decode, join_array

TOOL_CHANGES = ("tool_addition", "tool_removal")
"""Blocks of a system turn that change the tools from there on; a chat template sees one list of tools only."""

_CHOICES = {"auto": b'"auto"', "any": b'"required"', "none": b'"none"'}


def chat_tools(tools: Slice | None, messages: Slice | None) -> bytes | None:
    """The `tools` of the chat request, those in force at the end of the conversation; None where there are none.

    Raises:
        RequestRefused: a tool is one that Anthropic's servers run or define: the engine cannot.
    """
    offered = [_function(tool, f"tools[{index}]") for index, tool in enumerate(_items(tools, "tools"))]
    for kind, name, definition in _changes(messages):
        if definition is not None:
            offered = [tool for tool in offered if tool.name != name] + [definition]
        for tool in offered:
            if tool.name == name:
                tool.in_force = kind == "tool_addition"
    in_force = [tool.json for tool in offered if tool.in_force]
    # vLLM refuses an empty list, Anthropic does not.
    return join_array(in_force) if in_force else None


def tool_choice(choice: Slice, *, has_tools: bool) -> dict[str, Slice]:
    """The fields of the chat request that say what `tool_choice` says.

    Without tools, vLLM refuses a choice that Anthropic accepts.

    Raises:
        RequestRefused: it is none of the four choices.
    """
    fields = as_object(choice, "tool_choice")
    kind = decode(fields.get("type"))
    written: dict[str, Slice] = {}
    if kind == "tool":
        written["tool_choice"] = named_choice(as_text(fields.get("name"), "tool_choice.name"))
    elif isinstance(kind, str) and kind in _CHOICES:
        if not has_tools and kind != "any":
            return {}
        written["tool_choice"] = _CHOICES[kind]
    else:
        raise refusal("tool_choice.type", "must be auto, any, tool or none.")
    if bytes(fields.get("disable_parallel_tool_use", b"")) == TRUE:
        written["parallel_tool_calls"] = b"false"
    return written


@dataclass(slots=True)
class _Tool:
    name: str
    json: bytes
    in_force: bool = True


def _items(value: Slice | None, where: str) -> list[Slice]:
    return [] if value is None else as_array(value, where)


def _function(tool: Slice, where: str) -> _Tool:
    fields = as_object(tool, where)
    kind = decode(fields.get("type"))
    if kind not in (None, "custom"):
        raise refusal(where, f"is a tool of Anthropic's own ({kind}), which the engine has not. Offer others only.")
    name = as_text(fields.get("name"), f"{where}.name")
    as_object(fields.get("input_schema"), f"{where}.input_schema")
    named = (("name", "name"), ("description", "description"), ("parameters", "input_schema"), ("strict", "strict"))
    return _Tool(decode(name), function_tool((chat_key, fields.get(key)) for chat_key, key in named))


def _changes(messages: Slice | None) -> Iterator[tuple[str, str, _Tool | None]]:
    """What the turns change: the kind of each change, the tool's name, and the tool where it is defined there."""
    text = b"" if messages is None else bytes(messages)
    if not any(kind.encode() in text for kind in TOOL_CHANGES):
        return
    for index, item in enumerate(as_array(text, "messages")):
        message = as_object(item, f"messages[{index}]")
        content = message.get("content")
        if decode(message.get("role")) != "system" or content is None or is_text(content):
            continue
        for block, kind, place in blocks_of(content, f"messages[{index}].content"):
            if kind in TOOL_CHANGES:
                yield _change(block, kind, f"{place}.tool")


def _change(block: Block, kind: str, where: str) -> tuple[str, str, _Tool | None]:
    change = as_object(block.get("tool"), where)
    if kind == "tool_addition" and "definition" in change:
        tool = _function(change["definition"], f"{where}.definition")
        return kind, tool.name, tool
    return kind, decode(as_text(change.get("name"), f"{where}.name")), None
