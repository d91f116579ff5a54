"""Requests of the real Claude Code, long texts cut: all are accepted, and a history continues the one before."""

import json
from pathlib import Path
from typing import Any

import pytest
from messages_calls import translated

FILE = Path(__file__).parents[2] / "data" / "claude_code_requests.json"
RECORDED = json.loads(FILE.read_text())
REQUESTS = {
    each["name"]: each["body"] | {"tools": RECORDED["tools"][each["body"]["tools"]]} for each in RECORDED["requests"]
}


def texts(value: Any) -> list[str]:
    """Every text an agent wrote for the model to read."""
    if isinstance(value, str):
        return [value]
    return [
        block.get("text") or block.get("thinking") or "" for block in value if block["type"] in ("text", "thinking")
    ]


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_accepted(name: str) -> None:
    body = REQUESTS[name]
    sent = translated(body)
    expected = {"model", "max_tokens", "messages", "tools", "stream", "stream_options", "reasoning_effort"}
    assert sent.keys() - {"proxy_x_session_id"} == expected
    assert [tool["function"]["parameters"] for tool in sent["tools"]] == [
        tool["input_schema"] for tool in body["tools"]
    ]
    written = json.dumps(sent["messages"])
    for said in [*texts(body["system"]), *(text for turn in body["messages"] for text in texts(turn["content"]))]:
        assert json.dumps(said)[1:-1] in written


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("claude-code-2.1.332-1", "claude-code-2.1.332-2"),
        ("claude-code-2.1.332-2", "claude-code-2.1.332-3"),
        ("claude-code-2.1.332-subagent-1", "claude-code-2.1.332-subagent-2"),
        ("claude-code-2.1.332-subagent-3", "claude-code-2.1.332-subagent-4"),
        ("reason-claude-1", "reason-claude-2"),
        ("claude-code-2.1.197-1", "claude-code-2.1.197-2"),
    ],
)
def test_the_next_request_continues_the_last_one(earlier: str, later: str) -> None:
    # It marks other blocks for the cache each time, and writes system turns as lists or as strings.
    before, after = translated(REQUESTS[earlier]), translated(REQUESTS[later])
    assert after["messages"][: len(before["messages"])] == before["messages"]
    assert after["tools"] == before["tools"]


def test_thinking_that_is_sent_back_reaches_the_engine() -> None:
    turn = translated(REQUESTS["reason-claude-2"])["messages"][-2]
    assert (turn["role"], turn["reasoning"]) == ("assistant", "SECRETTHOUGHT")
    assert turn["content"] == "I will run a command."
    assert json.loads(turn["tool_calls"][0]["function"]["arguments"]) == {"command": "echo hello-1"}
