"""Requests of the real Codex and OpenHands, long texts cut: all are accepted, each continues the last."""

import json
from typing import Any

import pytest
from recorded_responses import REQUESTS
from responses_calls import translated

CODEX = {"model", "stream", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream_options"}
OPENHANDS = {"model", "messages", "tools", "tool_choice", "reasoning_effort"}


def written(body: dict[str, Any]) -> list[str]:
    """Every text an agent wrote for the model to read."""
    texts = [body["instructions"]] if "instructions" in body else []
    for item in body["input"]:
        texts += [part["text"] for part in item.get("content", [])]
        texts += [item[key] for key in ("arguments", "output") if key in item]
    return texts


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_accepted(name: str) -> None:
    body = REQUESTS[name]
    sent = translated(body)
    expected = CODEX if "codex" in name else OPENHANDS
    assert sent.keys() == (expected if body["tools"] else expected - {"tools", "tool_choice"})
    messages = json.dumps(sent["messages"])
    for text in written(body):
        assert json.dumps(text)[1:-1] in messages
    nested = [tool for offered in body["tools"] for tool in offered.get("tools", [offered])]
    offered = [tool["function"] for tool in sent.get("tools", [])]
    assert [tool["parameters"] for tool in offered] == [tool["parameters"] for tool in nested]
    assert [tool["name"].removeprefix("multi_agent_v1__") for tool in offered] == [tool["name"] for tool in nested]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("codex-1", "codex-2"),
        ("codex-2", "codex-3"),
        ("reason-codex-1", "reason-codex-2"),
        ("reason-codex-noenc-1", "reason-codex-noenc-2"),
        ("codex-subagent-1", "codex-subagent-2"),
        ("codex-subagent-2", "codex-subagent-5"),
        ("codex-subagent-3", "codex-subagent-4"),
        ("codex-compact-1", "codex-compact-2"),
        ("openhands-1", "openhands-2"),
        ("reason-openhands-1", "reason-openhands-2"),
    ],
)
def test_the_next_request_continues_the_last_one(earlier: str, later: str) -> None:
    before, after = translated(REQUESTS[earlier]), translated(REQUESTS[later])
    assert after["messages"][: len(before["messages"])] == before["messages"]
    assert [message["role"] for message in after["messages"][len(before["messages"]) :]][:2] == ["assistant", "tool"]


@pytest.mark.parametrize("name", ["reason-codex-2", "reason-codex-noenc-2", "reason-openhands-2"])
def test_reasoning_that_is_sent_back_reaches_the_engine(name: str) -> None:
    turn = translated(REQUESTS[name])["messages"][-2]
    assert (turn["role"], turn["reasoning"], turn["content"]) == ("assistant", "SECRETTHOUGHT", "I will run a command.")
    assert len(turn["tool_calls"]) == 1


def test_a_call_in_a_namespace_keeps_it() -> None:
    turn = translated(REQUESTS["codex-subagent-2"])["messages"][-2]
    assert turn["tool_calls"][0]["function"]["name"] == "multi_agent_v1__spawn_agent"
