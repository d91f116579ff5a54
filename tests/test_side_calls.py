"""Which calls are guessed to be beside the agent's turns: as the harnesses' own requests show them."""

import json

import pytest

from switchyard_py.side_calls import SideCalls

AFFINITY = {"x-session-affinity": "ses_1", "x-session-id": "ses_1"}
LITELLM = {"x-litellm-session-id": "25536a47"}


def codex(kind: str) -> dict[str, str]:
    return {"x-codex-turn-metadata": json.dumps({"installation_id": "i", "request_kind": kind})}


@pytest.mark.parametrize(
    ("headers", "has_tools", "kind"),
    [
        ({}, False, "main"),
        ({}, True, "main"),
        (AFFINITY, False, "side"),  # OpenCode's title call opens the session
        (AFFINITY, True, "main"),
        (LITELLM, False, "side"),
        (codex("turn"), True, "main"),
        (codex("compaction"), True, "side"),
        (codex("compaction"), False, "side"),
        ({"x-codex-turn-metadata": "not json"}, True, "main"),
        ({"x-codex-turn-metadata": "[1]"}, True, "main"),
        ({"x-claude-code-auxiliary-type": "title"}, True, "side"),
        ({"x-claude-code-session-id": "c"}, True, "main"),
    ],
)
def test_the_first_call_of_a_session(headers: dict[str, str], has_tools: bool, kind: str) -> None:
    assert SideCalls().guess("s", headers, has_tools=has_tools) == kind


def test_without_tools_a_call_is_beside_the_turns_of_a_session_that_has_had_some() -> None:
    calls = SideCalls()
    assert calls.guess("plain", {}, has_tools=False) == "main"
    calls.saw_tools("s")
    assert calls.guess("s", {}, has_tools=False) == "side"
    assert calls.guess("plain", {}, has_tools=False) == "main"


def test_only_the_latest_sessions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchyard_py.side_calls._SESSIONS_KEPT", 2)
    calls = SideCalls()
    for session in ("a", "b", "a", "c"):
        calls.saw_tools(session)
    assert [calls.guess(session, {}, has_tools=False) for session in "abc"] == ["side", "main", "side"]
