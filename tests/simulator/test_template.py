"""The chat template against prompts of the recorded engine, and the continuity of prompts from call to call.

`prompt_texts.json` holds the recorded prompt ids of one recording for each distinct prompt, decoded with the tokenizer
that the recorded model had.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from wire_recordings import recording

from switchyard_py.simulator.template import render_prompt, text_content

PROMPTS: dict[str, str] = json.loads((Path(__file__).parent / "prompt_texts.json").read_text())
USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("name", PROMPTS)
def test_renders_the_recorded_prompt(name: str) -> None:
    body = recording(name).request_body
    thinking = body.get("chat_template_kwargs", {}).get("enable_thinking", True)
    assert render_prompt(body["messages"], body.get("tools"), enable_thinking=thinking) == PROMPTS[name]


def test_thinking_of_earlier_turns_is_stripped_unless_kept() -> None:
    messages: list[dict[str, Any]] = [USER, {"role": "assistant", "content": "yes", "reasoning": "so"}, USER]
    assert "so" not in render_prompt(messages)
    assert "<think>\nso\n</think>\n\nyes<|im_end|>" in render_prompt(messages, keep_thinking=True)


def test_thinking_in_the_content_is_taken_for_reasoning() -> None:
    messages = [USER, {"role": "assistant", "content": "<think>\nso\n</think>\n\nyes"}, USER]
    assert render_prompt(messages, keep_thinking=True) == render_prompt(
        [USER, {"role": "assistant", "content": "yes", "reasoning": "so"}, USER], keep_thinking=True
    )


def test_arguments_that_are_not_json_are_repeated_as_they_are() -> None:
    call = {"function": {"name": "f", "arguments": "{oops"}}
    assert '"arguments": {oops}' in render_prompt([USER, {"role": "assistant", "tool_calls": [call]}])


def test_text_parts_are_joined() -> None:
    assert text_content([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, "b"]) == "a\n\nb"
