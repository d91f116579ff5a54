"""What makes real sessions fail: the verdict of strict mode, and what lineage mode makes of the same session."""

from dataclasses import dataclass
from typing import Any

import pytest
from session_records import (
    TOOLS,
    Record,
    assistant,
    calls_tool,
    causes,
    conversation,
    envelope,
    lineage_of,
    main_path,
    paths,
    record,
    recorded,
    refusal_of,
    result,
    user,
)

from switchyard_py.rollouts import Rule


@dataclass(frozen=True)
class Row:
    """A session, the rule strict mode refuses it by (None: accepted), and its chains, main chain and causes."""

    records: list[Record]
    strict: Rule | None
    chains: list[tuple[int, ...]]
    main: tuple[int, ...] | None
    causes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    """Of the main chain's verdict."""


def two(first: list[Any], second: list[Any], **fields: Any) -> list[Record]:
    """Two calls whose tokens continue each other whatever the messages say; `fields` are the second one's."""
    return [record(0, [1, 2], [3, 4], first), record(1, [1, 2, 3, 4, 5], [6], second, **fields)]


def resent(reply: Any, as_sent_back: Any) -> list[Record]:
    """A reply, and what the agent sends back of it before the next question."""
    return two([user("q"), reply], [user("q"), as_sent_back, user("more"), assistant("done")])


def with_duplicate() -> list[Record]:
    """A call in the middle that was made twice with different answers; the agent went on with the first one."""
    first, second, third = conversation(3)
    again = record(3, second["prompt_token_ids"], [98, 99], [*second["messages"][:-1], assistant("another answer")])
    return [first, second, again, third]


def with_side_calls() -> list[Record]:
    """A title call first, a sub-agent in the middle, and a condensed history in the end."""
    main = [each | {"tools": TOOLS} for each in conversation(2)]
    title = record(4, [80, 81], [82], [user("Title for: question 0"), assistant("A title")])
    child = record(5, [70, 71], [72], [user("sub task"), assistant("sub answer")], tools=TOOLS)
    child["call"]["agent"] = {"x-claude-code-agent-id": "a1"}
    condensed = record(6, [0, 90], [91], [user("question 0"), user("summary"), assistant("end")], tools=TOOLS)
    return [title, main[0], child, main[1], condensed]


def invalid_in_the_middle() -> list[Record]:
    records = conversation(3)
    records[1] |= {"is_valid": False}
    records[1]["call"] |= {"invalid_reasons": ["no_usage"]}
    return records


def tools_changed() -> list[Record]:
    records = conversation(2, tools=TOOLS)
    records[1] |= {"tools": [{**TOOLS[0], "description": "Run it now"}]}
    return records


QUESTION = [user("q"), assistant("a")]
ROWS = {
    "reasoning parsed out and not sent back": Row(
        recorded("mt_turn1", "mt_turn2_drop_reasoning"), Rule.R10, [(0,), (1,)], (1,), ("reasoning_not_resent",)
    ),
    "inline thinking stripped by the client": Row(
        resent(assistant("<think>t</think>a"), assistant("a")), Rule.R11, [(0, 1)], (0, 1)
    ),
    "trimmed assistant text": Row(resent(assistant("\n\na "), assistant("a")), Rule.R11, [(0, 1)], (0, 1)),
    "whitespace-only text dropped beside a tool call": Row(
        two(
            [user("q"), {**calls_tool("{}"), "content": "\n"}],
            [user("q"), calls_tool("{}"), result("ok"), assistant("a")],
        ),
        Rule.R11,
        [(0, 1)],
        (0, 1),
    ),
    "arguments written anew": Row(
        recorded("mt_turn1", "mt_turn2_args_reserialized"), Rule.R11, [(0, 1)], (0, 1)
    ),
    "a retry or duplicate": Row(with_duplicate(), Rule.R10, [(0, 1, 3)], (0, 1, 3)),
    "condensation, sub-agent and title call": Row(
        with_side_calls(), Rule.R9, [(0,), (2,), (1, 3), (4,)], (4,), ("history_compacted",)
    ),
    "a developer note between calls": Row(
        two(QUESTION, [*QUESTION, {"role": "developer", "content": "n"}, user("r"), assistant("b")]),
        Rule.R11,
        [(0, 1)],
        (0, 1),
    ),
    "an image": Row(
        two(QUESTION, [*QUESTION, {"role": "user", "content": [{"type": "image_url"}]}, assistant("b")]),
        Rule.N2,
        [(0, 1)],
        (0, 1),
    ),
    "the tools change in a key": Row(tools_changed(), Rule.R9, [(0, 1)], (0, 1)),
    "tool_choice auto, then absent": Row(
        two(QUESTION, [*QUESTION, user("r"), assistant("b")], tool_choice=None), Rule.R9, [(0, 1)], (0, 1)
    ),
    "a fallback model": Row(
        two(QUESTION, [*QUESTION, user("r"), assistant("b")], model="other"),
        Rule.R9,
        [(0, 1)],
        (0, 1),
        reasons=("mixed_models",),
    ),
    "one record that is not valid": Row(
        invalid_in_the_middle(), Rule.R3, [(0, 1, 2)], (0, 1, 2), reasons=("invalid",)
    ),
    "one id of another tokenisation": Row(
        recorded("mt_noncanon_tool1", "mt_noncanon_tool2"), Rule.R10, [(0,), (1,)], (1,), ("other_tokenisation",)
    ),
    "two concurrent calls in reversed order": Row(conversation(2)[::-1], Rule.R10, [(0,), (1,)], (1,)),
    "routed experts": Row(conversation(2, routed_experts="UklG"), None, [(0, 1)], (0, 1)),
    "reasoning in the captured reply": Row(
        resent(assistant("a", reasoning_content="r"), assistant("a")), None, [(0, 1)], (0, 1)
    ),
    "literal thinking in an answer": Row(
        resent(assistant("<think>t</think>a"), assistant("<think>t</think>a")), None, [(0, 1)], (0, 1)
    ),
    "finish reason length": Row(
        conversation(2, finish_reason="length"), None, [(0, 1)], (0, 1), reasons=("truncated",)
    ),
    "a few-shot assistant turn in the first prompt": Row(
        two([user("x"), assistant("y"), *QUESTION], [user("x"), assistant("y"), *QUESTION, user("r"), assistant("b")]),
        None,
        [(0, 1)],
        (0, 1),
    ),
    "one result of parallel tool calls missing": Row(
        resent(calls_tool("{}"), calls_tool("{}")), None, [(0, 1)], (0, 1)
    ),
    "a refusal or legacy function call": Row(
        resent(
            assistant(None, refusal="no", function_call={"name": "run"}), assistant("")
        ), None, [(0, 1)], (0, 1)
    ),
    "two text parts instead of a string": Row(
        resent(assistant("ab"), assistant([{"text": "a"}, {"text": "b"}])),  # type: ignore[arg-type]
        None,
        [(0, 1)],
        (0, 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_strict_mode(row: Row) -> None:
    refusal = refusal_of(envelope(row.records))
    assert (refusal and refusal.rule) == row.strict


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_lineage_mode(row: Row) -> None:
    lineage = lineage_of(row.records)
    assert paths(lineage) == row.chains
    assert main_path(lineage) == row.main
    assert tuple(cause for *_, cause in causes(lineage)) == row.causes
    assert lineage.main.chain is not None
    assert tuple(lineage.chain_verdicts[lineage.main.chain].reasons) == row.reasons
