"""The chat template: messages and tools to the prompt text, as Qwen3 writes it.

Thinking of turns before the last user message is stripped, tool calls are written hermes style, tool results are
folded into one user turn. A message with another role than system, user, assistant or tool leaves no trace.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

_TOOLS_INTRODUCTION = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_END = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call><|im_end|>\n"
)


class _Turn(NamedTuple):
    role: str
    content: str
    reasoning: str
    tool_calls: Sequence[dict[str, Any]]


def render_prompt(
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None = None,
    *,
    enable_thinking: bool = True,
    keep_thinking: bool = False,
    add_generation_prompt: bool = True,
) -> str:
    """The prompt text. `keep_thinking` keeps the thinking of every earlier turn instead of the current one only."""
    turns = [_turn(message) for message in messages]
    parts = [_render_system(turns, tools)]
    last_query = _last_query(turns)
    for index, turn in enumerate(turns):
        if turn.role == "user" or (turn.role == "system" and index > 0):
            parts.append(f"<|im_start|>{turn.role}\n{turn.content}<|im_end|>\n")
        elif turn.role == "assistant":
            is_last = index == len(turns) - 1
            in_this_query = index > last_query and (is_last or bool(turn.reasoning))
            parts.append(_render_assistant(turn, in_this_query or (keep_thinking and bool(turn.reasoning))))
        elif turn.role == "tool":
            opens = index == 0 or turns[index - 1].role != "tool"
            closes = index == len(turns) - 1 or turns[index + 1].role != "tool"
            parts.append("<|im_start|>user" if opens else "")
            parts.append(f"\n<tool_response>\n{turn.content}\n</tool_response>")
            parts.append("<|im_end|>\n" if closes else "")
    if add_generation_prompt:
        parts.append("<|im_start|>assistant\n")
        parts.append("" if enable_thinking else "<think>\n\n</think>\n\n")
    return "".join(parts)


def render_tool_call(name: str, arguments: str) -> str:
    """One call as the model writes it and the template repeats it; `arguments` is JSON text."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def text_content(content: object) -> str:
    """The text of a message's content: a string as it is, the text parts of a list joined by newlines."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content)
    return ""


def _part_text(part: object) -> str:
    if isinstance(part, dict):
        text = part.get("text")
        return text if isinstance(text, str) else ""
    return part if isinstance(part, str) else ""


def _turn(message: dict[str, Any]) -> _Turn:
    role, content = str(message.get("role", "")), text_content(message.get("content"))
    given = message.get("reasoning") or message.get("reasoning_content")
    reasoning = given if isinstance(given, str) else ""
    if role == "assistant" and not reasoning and "</think>" in content:
        before, _, content = content.rpartition("</think>")
        reasoning = before.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
        content = content.lstrip("\n")
    calls = message.get("tool_calls")
    return _Turn(role, content, reasoning, [c for c in calls if isinstance(c, dict)] if isinstance(calls, list) else [])


def _last_query(turns: Sequence[_Turn]) -> int:
    for index in range(len(turns) - 1, -1, -1):
        turn = turns[index]
        folded = turn.content.startswith("<tool_response>") and turn.content.endswith("</tool_response>")
        if turn.role == "user" and not folded:
            return index
    return len(turns) - 1


def _render_system(turns: Sequence[_Turn], tools: Sequence[dict[str, Any]] | None) -> str:
    system = turns[0].content if turns and turns[0].role == "system" else None
    if not tools:
        return "" if system is None else f"<|im_start|>system\n{system}<|im_end|>\n"
    opening = "" if system is None else f"{system}\n\n"
    signatures = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools)
    return f"<|im_start|>system\n{opening}{_TOOLS_INTRODUCTION}{signatures}{_TOOLS_END}"


def _render_assistant(turn: _Turn, with_thinking: bool) -> str:
    content = turn.content
    if with_thinking:
        reasoning = turn.reasoning.strip("\n")
        head = f"<|im_start|>assistant\n<think>\n{reasoning}\n</think>\n\n{content.lstrip(chr(10))}"
    else:
        head = f"<|im_start|>assistant\n{content}"
    calls = [_render_call(call) for call in turn.tool_calls]
    between = "\n" if content and calls else ""
    return f"{head}{between}{chr(10).join(calls)}<|im_end|>\n"


def _render_call(call: dict[str, Any]) -> str:
    function = call.get("function")
    called = function if isinstance(function, dict) else call
    arguments = called.get("arguments", {})
    if isinstance(arguments, str):
        # The engine parses the arguments before it templates them, so the spacing the agent sent is lost.
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return render_tool_call(str(called.get("name", "")), str(arguments))
    return render_tool_call(str(called.get("name", "")), json.dumps(arguments, ensure_ascii=False))
