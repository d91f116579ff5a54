"""Which calls are an agent's own turns, by what each harness sends."""

from typing import Any

import pytest
from session_records import TOOLS, assistant, lineage_of, record, user

SIDE, SUBAGENT, TURN = "side", "subagent", "turn"


def roles(*calls: dict[str, Any], session_id: str = "s") -> list[str]:
    """The roles of calls of which `call` and further fields are given."""
    records = [
        record(number, [number], [9], [user(str(number)), assistant("a")], **{"tools": TOOLS, **fields})
        for number, fields in enumerate(calls)
    ]
    return [role.value for role in lineage_of(records).roles]


def agent(**ids: str) -> dict[str, Any]:
    """A call with ids of its harness: headers, and `prompt_cache_key` of the body."""
    names = {name: name if name == "prompt_cache_key" else name.replace("_", "-") for name in ids}
    return {"call": {"agent": {names[name]: value for name, value in ids.items()}}}


CODEX_CHILD = {"x_codex_parent_thread_id": "t0", "x_openai_subagent": "collab_spawn", "prompt_cache_key": "t0"}


@pytest.mark.parametrize(
    ("main", "child"),
    [
        (agent(), agent(x_claude_code_agent_id="a1")),
        (agent(), agent(x_claude_code_agent_id="a2", x_claude_code_parent_agent_id="a1")),
        (agent(thread_id="t0", prompt_cache_key="t0"), agent(thread_id="t1", **CODEX_CHILD)),
        # OpenHands gives each conversation an id of its own and names the first one's for the cache.
        (
            agent(x_litellm_session_id="c0", prompt_cache_key="c0"),
            agent(x_litellm_session_id="c1", prompt_cache_key="c0"),
        ),
        # OpenCode gives each an id of its own and names the parent's.
        (agent(x_session_id="ses_0"), agent(x_session_id="ses_1") | {"parent_session_id": "ses_0"}),
    ],
    ids=["Claude Code", "Claude Code, nested", "Codex", "OpenHands", "OpenCode"],
)
def test_sub_agents_of_one_session(main: dict[str, Any], child: dict[str, Any]) -> None:
    assert roles(main, child, main) == [TURN, SUBAGENT, TURN]


def test_a_session_that_is_a_sub_agents_own_is_its_turns() -> None:
    child = {"parent_session_id": "ses_0", "call": {"agent": {"prompt_cache_key": "ses_0"}}}
    assert roles(child, child) == [TURN, TURN]


def test_without_tools_where_the_session_has_tools_is_beside_the_turns() -> None:
    assert roles({"tools": []}, {}, {}) == [SIDE, TURN, TURN]


def test_what_the_harness_names_so_is_beside_the_turns() -> None:
    assert roles({}, {"call": {"kind": "side"}}) == [TURN, SIDE]


def test_a_session_without_tools_has_turns_whatever_the_records_guess() -> None:
    assert roles({"tools": [], "call": {"kind": "side"}}, {"tools": [], "call": {"kind": "side"}}) == [TURN, TURN]


@pytest.mark.parametrize("fields", [{"tools": None}, {"uuid": ""}, {"session_id": "other", "tools": []}])
def test_a_record_that_does_not_tell_its_tools_may_be_of_a_turn(fields: dict[str, Any]) -> None:
    assert roles({}, fields) == [TURN, TURN]


def test_a_lost_call_may_have_been_a_turn() -> None:
    lost = {"tools": [], "is_valid": False, "call": {"invalid_reasons": ["lost"]}}
    assert roles({}, lost) == [TURN, TURN]
