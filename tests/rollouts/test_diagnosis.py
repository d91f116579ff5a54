"""Each cause, told from exchanges recorded from a real vLLM where they show it, and what a diagnosis says."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from session_records import (
    TOOLS,
    Record,
    assistant,
    calls_tool,
    causes,
    lineage_of,
    record,
    recorded,
    result,
    user,
)

from switchyard_py.rollouts import Cause

TOKENIZER = Path(__file__).parents[1] / "vllm" / "tiny-qwen3" / "tokenizer.json"


@cache
def names() -> dict[int, str]:
    tokenizer = json.loads(TOKENIZER.read_text())
    vocabulary = {number: token for token, number in tokenizer["model"]["vocab"].items()}
    return vocabulary | {each["id"]: each["content"] for each in tokenizer["added_tokens"]}


def decode(ids: Sequence[int]) -> str:
    """The text of ids of the recorded model, but for bytes beyond ASCII."""
    return "".join(names()[each] for each in ids).replace("Ġ", " ").replace("Ċ", "\n")


RECORDED = [
    ("mt_turn1", "mt_turn2_drop_reasoning", 259, Cause.REASONING_NOT_RESENT),
    ("mt_turn2_keep_reasoning", "mt_turn3_new_user", 259, Cause.STRIPPED_BY_TEMPLATE),
    ("mt_hello1", "mt_hello2", 30, Cause.STRIPPED_BY_TEMPLATE),
    ("mt_noncanon1", "mt_noncanon2", 30, Cause.STRIPPED_BY_TEMPLATE),
    ("mt_truncated1", "mt_hello2", 30, Cause.STRIPPED_BY_TEMPLATE),
    ("mt_turn1", "mt_turn2_stream_content_nn", 274, Cause.WHITESPACE_CHANGED),
    ("mt_compact_tool1", "mt_compact_tool2", 280, Cause.ARGUMENTS_RESERIALISED),
    ("mt_parallel_false1", "mt_parallel_false2", 309, Cause.TOOL_CALL_HIDDEN),
    ("mt_noncanon_tool1", "mt_noncanon_tool2", 297, Cause.OTHER_TOKENISATION),
    ("mt_turn1", "mt_hello2", 13, Cause.TOOLS_CHANGED),
]


@pytest.mark.parametrize("decoder", [None, decode])
@pytest.mark.parametrize(("first", "second", "position", "cause"), RECORDED)
def test_a_recorded_break_has_its_place_and_cause(
    first: str, second: str, position: int, cause: Cause, decoder: Any
) -> None:
    if cause is Cause.TOOLS_CHANGED:
        # Nothing but the system message tells that they are one conversation: their tools differ.
        records = recorded(first, second)
        records[1]["tools"] = [{"id": "other"}]
    else:
        records = recorded(first, second)
    lineage = lineage_of(records, decode=decoder)
    assert causes(lineage) == [(1, 0, position, cause.value)]


@pytest.mark.parametrize(
    "second",
    ["mt_turn2_keep_reasoning", "mt_turn2_keep_reasoning_content", "mt_turn2_content_empty",
     "mt_turn2_args_reserialized", "mt_fix_kv_ids"],
)  # fmt: skip
def test_a_prompt_that_begins_with_all_before_it_has_no_diagnosis(second: str) -> None:
    lineage = lineage_of(recorded("mt_turn1", second))
    assert causes(lineage) == []
    link = lineage.forest.placements[1].link
    assert link is not None
    assert (link.parent, link.added_tokens) == (0, 25)


def test_a_diagnosis_shows_ids_and_their_texts() -> None:
    records = recorded("mt_noncanon_tool1", "mt_noncanon_tool2")
    (diagnosis,) = lineage_of(records, decode=decode).forest.diagnoses
    assert diagnosis.in_generation
    assert diagnosis.had[:2] == (47, 1756)
    assert diagnosis.got[:2] == (1488, 353)
    assert len(diagnosis.had) == len(diagnosis.got) == 8
    assert diagnosis.had_text == diagnosis.got_text == 'Paris", "days": 2'
    (without,) = lineage_of(records).forest.diagnoses
    assert (without.had_text, without.got_text) == (None, None)


def test_a_turn_cut_off_by_the_token_limit_is_closed_by_the_template() -> None:
    # Cut one id earlier than the engine did, so that the template closes the turn where text was generated.
    cut, hello = recorded("mt_truncated1", "mt_hello2")
    closed = [*cut["prompt_token_ids"], *cut["generation_token_ids"][:-1], 2041, 198]
    after = hello | {"prompt_token_ids": [*closed, *hello["prompt_token_ids"][-15:]]}
    (diagnosis,) = lineage_of([cut, after]).forest.diagnoses
    assert (diagnosis.cause, diagnosis.position) == (Cause.END_OF_TURN_MISSING, 49)
    assert (diagnosis.had, diagnosis.got[:2]) == ((13,), (2041, 198))
    # As the engine cut it, the prompt begins with all of it, and the end of the turn is not trained on.
    whole = [*cut["prompt_token_ids"], *cut["generation_token_ids"], 2041, 198]
    lineage = lineage_of([cut, hello | {"prompt_token_ids": whole}])
    assert lineage.forest.diagnoses == []
    assert lineage.chain_verdicts[0].reasons == ("truncated",)


def broken(reply: Any, as_sent_back: list[Any], position: int = 3, **second: Any) -> list[Record]:
    """A call of prompt [1, 2] and generation [3, 4, 5, 9], and one whose prompt differs from `position` on."""
    had = [1, 2, 3, 4, 5, 9]
    return [
        record(0, had[:2], had[2:], [user("q"), reply]),
        record(1, [*had[:position], 77, 78], [79], [*as_sent_back, assistant("end")], **second),
    ]


def two_calls() -> Any:
    return calls_tool("{}") | {"tool_calls": calls_tool("{}")["tool_calls"] + calls_tool("{}", "c2")["tool_calls"]}


@pytest.mark.parametrize(
    ("records", "cause"),
    [
        (broken(assistant("a b"), [user("q"), assistant("ab"), user("r")]), Cause.WHITESPACE_CHANGED),
        (broken(assistant("<think>t</think>a"), [user("q"), assistant("a"), user("r")]), Cause.REASONING_NOT_RESENT),
        (broken(assistant("a", reasoning="t"), [user("q"), assistant("a"), user("r")]), Cause.REASONING_NOT_RESENT),
        (
            broken(assistant("a", reasoning=" t"), [user("q"), assistant("a", reasoning="t"), user("r")]),
            Cause.WHITESPACE_CHANGED,
        ),
        (broken(calls_tool('{"a": 1}'), [user("q"), calls_tool('{"a":1}'), result("r")]), Cause.ARGUMENTS_RESERIALISED),
        (broken(calls_tool('{"a": 1}'), [user("q"), calls_tool('{"a":2}'), result("r")]), Cause.HISTORY_REWRITTEN),
        (broken(calls_tool("{}"), [user("q"), {**calls_tool("{}"), "tool_calls": []}]), Cause.TOOL_CALL_HIDDEN),
        (broken(two_calls(), [user("q"), calls_tool("{}"), result("r")]), Cause.TOOL_CALL_HIDDEN),
        (broken(assistant("a"), [user("Q"), assistant("a"), user("r")], 1), Cause.HISTORY_REWRITTEN),
        (broken(assistant("a"), [user(" q"), assistant("a"), user("r")], 1), Cause.WHITESPACE_CHANGED),
        (broken(assistant("a"), [user("q"), user("r")]), Cause.HISTORY_REWRITTEN),
        (broken(assistant("a"), [user("q")]), Cause.HISTORY_COMPACTED),
        (
            broken(
                assistant("a"),
                [user("q"), assistant("a"), user("r")],
                1,
                call={"sampling": {"chat_template_kwargs": {}}},
            ),
            Cause.TEMPLATE_SETTINGS_CHANGED,
        ),
        (broken(assistant("a"), [user("q"), assistant("a"), user("r")], 1, tools=TOOLS), Cause.TOOLS_CHANGED),
        (broken(assistant("a"), [user("q"), assistant("a"), user("r")]), Cause.OTHER_TOKENISATION),
    ],
)
def test_a_break_is_told_by_the_messages(records: list[Record], cause: Cause) -> None:
    (diagnosis,) = lineage_of(records).forest.diagnoses
    assert diagnosis.cause is cause


def test_texts_tell_what_ids_cannot() -> None:
    texts = {3: "x", 4: "a", 5: "b", 9: "<end>", 77: "ab", 78: "", 1: "", 2: "", 79: ""}

    def text(ids: Sequence[int]) -> str:
        return "".join(texts[each] for each in ids)

    def cause_of(got: list[int]) -> Cause:
        records = broken(assistant("xab"), [user("q"), assistant("xab"), user("r")])
        records[1]["prompt_token_ids"] = got
        (diagnosis,) = lineage_of(records, decode=text).forest.diagnoses
        return diagnosis.cause

    assert cause_of([1, 2, 3, 77, 9, 1]) is Cause.OTHER_TOKENISATION
    texts[78] = " "
    assert cause_of([1, 2, 3, 4, 78, 5, 9, 1]) is Cause.WHITESPACE_CHANGED
    texts[78] = "c"
    assert cause_of([1, 2, 3, 4, 78, 5, 9, 1]) is Cause.UNKNOWN
