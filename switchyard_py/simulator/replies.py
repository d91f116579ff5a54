"""What the simulated model says: scripted replies first, else one rule.

The rule: a constrained format gets a value that fits it; with tools and no tool result since the last user message,
the first tool is called with arguments that satisfy its schema; otherwise the answer is a sentence. Where thinking is
on, a thought goes before. Everything is written the way the chat template repeats it, so that a call built on the
full reply has a prompt that begins with this call's prompt and generation.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from switchyard_py.simulator.pattern_sample import UnsupportedPatternError, sample_pattern
from switchyard_py.simulator.requests import ChatBody, SamplingBody
from switchyard_py.simulator.schema_sample import UnsatisfiableSchemaError, sample_value
from switchyard_py.simulator.settings import ScriptedReply
from switchyard_py.simulator.template import render_tool_call, text_content
from switchyard_py.simulator.tokenizer import strip_special

_OPENINGS = ("Here is what I found", "This is my answer", "In short")
_EXCERPT = 160


@dataclass(frozen=True)
class Question:
    """What a reply is chosen by."""

    body: SamplingBody
    tail: str
    """The prompt's text after the last assistant turn."""
    said: str
    """The last user message."""
    tools: Sequence[dict[str, Any]] = ()
    """The functions that may be called."""
    must_call: bool = False
    """The tool choice is required or a named function."""
    thinking: bool = False
    results: Sequence[str] = ()
    """Tool results since the last user message."""

    @classmethod
    def of_chat(cls, body: ChatBody, *, thinking: bool) -> "Question":
        """The question a chat request puts."""
        roles = [message.get("role") for message in body.messages]
        answered = _after_last(roles, "assistant")
        asked = _after_last(roles, "user")
        tools = body.usable_tools
        if body.named_tool is not None:
            tools = [tool for tool in tools if tool.get("name") == body.named_tool]
        texts = [text_content(message.get("content")) for message in body.messages]
        return cls(
            body,
            tail="\n".join(texts[answered:]),
            said=texts[asked - 1] if asked else "",
            tools=tools,
            must_call=body.named_tool is not None or body.tool_choice == "required",
            thinking=thinking,
            results=[text for text, role in zip(texts[asked:], roles[asked:], strict=True) if role == "tool"],
        )


class Replies:
    """Chooses replies; scripted ones without a condition are used up in order."""

    def __init__(self, scripted: Sequence[ScriptedReply]) -> None:
        self._conditional = [reply for reply in scripted if not reply.when.is_empty]
        self._queue = [reply for reply in scripted if reply.when.is_empty]

    def choose(self, call: int, request_id: str | None, questions: Sequence[Question]) -> list[list[str]]:
        """The texts the model emits in one call: for each question one for each choice.

        Special tokens are spelled out, the end token is left out. A call has one question, except a text completion
        with several prompts; a script is consulted once a call.
        """
        asked = questions[0]
        tools = [tool.get("name") for tool in asked.tools]
        scripted = next((r for r in self._conditional if r.when.holds(call, request_id, asked.tail, tools)), None)
        if scripted is None and self._queue:
            scripted = self._queue.pop(0)
        return [
            [
                _rule_text(question, choice) if scripted is None else _scripted_text(scripted, question)
                for choice in range(question.body.choice_count)
            ]
            for question in questions
        ]


def _scripted_text(reply: ScriptedReply, question: Question) -> str:
    if reply.raw is not None:
        return reply.raw
    calls = [
        render_tool_call(
            call.name,
            call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False),
        )
        for call in reply.tool_calls
    ]
    return _compose(question, reply.thinking or "The script says what to do.", reply.content or "", calls)


def _rule_text(question: Question, choice: int) -> str:
    constrained = _constrained_text(question.body)
    if constrained is not None:
        return _compose(question, "The answer has a fixed form.", constrained, [])
    if question.tools and (question.must_call or not question.results):
        name = str(question.tools[0].get("name", ""))
        call = render_tool_call(name, _arguments(question.tools[0].get("parameters")))
        return _compose(question, f"The tool {strip_special(name)} can answer this.", "", [call])
    opening = _OPENINGS[_variation(question.body, choice) % len(_OPENINGS)]
    if question.results:
        content = f"{opening}: {_excerpt(question.results[-1])}"
        return _compose(question, "The tool has answered.", content, [])
    return _compose(question, "No tool is needed.", f"{opening}: you said {_excerpt(question.said)!r}.", [])


def _compose(question: Question, thought: str, content: str, calls: Sequence[str]) -> str:
    # A forced call follows the thinking without a break: the engine's grammar starts right behind the closing tag.
    after_thinking = "" if question.must_call and calls and not content else "\n\n"
    thinking = f"<think>\n{thought}\n</think>{after_thinking}" if question.thinking else ""
    return thinking + content + ("\n" if content and calls else "") + "\n".join(calls)


def _constrained_text(body: SamplingBody) -> str | None:
    outputs, wanted = body.structured_outputs, body.response_format
    try:
        if outputs is not None and outputs.choice:
            return outputs.choice[0]
        if outputs is not None and outputs.regex is not None:
            return sample_pattern(outputs.regex)
        if outputs is not None and outputs.json_schema is not None:
            schema = outputs.json_schema
            return json.dumps(sample_value(json.loads(schema) if isinstance(schema, str) else schema))
        if wanted is not None and wanted.type == "json_schema":
            return json.dumps(sample_value((wanted.json_schema or {}).get("schema", {})))
    except (UnsupportedPatternError, UnsatisfiableSchemaError, ValueError):
        return "{}"
    return "{}" if wanted is not None and wanted.type == "json_object" else None


def _arguments(parameters: object) -> str:
    try:
        value = sample_value({"type": "object"} if parameters is None else parameters)
    except UnsatisfiableSchemaError:
        value = {}
    return json.dumps(value if isinstance(value, dict) else {}, ensure_ascii=False)


def _variation(body: SamplingBody, choice: int) -> int:
    return 0 if body.temperature == 0 else abs(body.seed or 0) + choice


def _excerpt(text: str) -> str:
    return strip_special(" ".join(text.split()))[:_EXCERPT]


def _after_last(roles: Sequence[object], role: str) -> int:
    return next((index + 1 for index in range(len(roles) - 1, -1, -1) if roles[index] == role), 0)
