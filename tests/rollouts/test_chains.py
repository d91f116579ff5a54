"""Attempts, chains and the main chain of sessions as harnesses make them."""

from typing import Any

import pytest
from session_records import (
    MINUTE,
    TOOLS,
    Record,
    assistant,
    conversation,
    lineage_of,
    main_path,
    paths,
    record,
    user,
)

from switchyard_py.rollouts import Lineage, Role


def answers(prompt: list[int], *generations: list[int], messages: list[Any] | None = None) -> list[Record]:
    """Calls with the same prompt, one after the other."""
    asked = messages or [user("q")]
    return [
        record(number, prompt, generation, [*asked, assistant(f"a {number}")])
        for number, generation in enumerate(generations)
    ]


def attempts(lineage: Lineage) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]]:
    return [(step.calls, step.kept, step.superseded, step.undecided) for step in lineage.attempts]


def test_the_attempt_that_a_later_prompt_contains_is_kept() -> None:
    first, second, third = answers([1], [2], [3], [4])
    after = record(5, [1, 3, 9], [10], [user("q"), assistant("a 1"), user("r"), assistant("b")])
    lineage = lineage_of([first, second, third, after])
    assert attempts(lineage) == [((0, 1, 2), (1,), (0, 2), False)]
    assert paths(lineage) == [(1, 3)]
    assert main_path(lineage) == (1, 3)


def test_attempts_that_were_both_continued_are_both_kept() -> None:
    first, second = answers([1], [2], [3])
    after = [
        record(5 + number, [1, 2 + number, 9], [10], [user("q"), assistant(f"a {number}"), user("r"), assistant("b")])
        for number in range(2)
    ]
    lineage = lineage_of([first, second, *after])
    assert attempts(lineage) == [((0, 1), (0, 1), (), False)]
    assert paths(lineage) == [(0, 2), (1, 3)]


def test_an_attempt_is_kept_by_its_message_where_the_tokens_were_not_repeated() -> None:
    first, second = answers([1], [2, 3], [4, 5])
    after = record(5, [1, 3, 9], [10], [user("q"), assistant("a 0"), user("r"), assistant("b")])
    lineage = lineage_of([first, second, after])
    assert attempts(lineage) == [((0, 1), (0,), (1,), False)]
    assert paths(lineage) == [(0,), (2,)]


def test_a_message_that_fits_several_attempts_decides_nothing() -> None:
    first, second = answers([1], [2, 3], [4, 5])
    second["messages"] = first["messages"]
    after = record(5, [1, 3, 9], [10], [user("q"), assistant("a 0"), user("r"), assistant("b")])
    lineage = lineage_of([first, second, after])
    assert attempts(lineage) == [((0, 1), (), (), True)]
    assert main_path(lineage) == (2,)


def test_an_undecided_last_retry_is_reported_and_not_guessed() -> None:
    start, *_ = conversation(1)
    end = answers([0, 1, 2, 3, 4], [5], [6], messages=[*start["messages"], user("r")])
    end = [each | {"uuid": f"end-{number}"} for number, each in enumerate(end)]
    lineage = lineage_of([start, *end])
    assert attempts(lineage) == [((1, 2), (), (), True)]
    assert paths(lineage) == [(0, 1), (0, 2)]
    assert (lineage.main.chain, lineage.main.reason.value) == (None, "undecided_retry")
    assert lineage.main.candidates == (1, 2)
    assert "answers" in lineage.to_json()["main"]["explanation"]


def test_a_record_that_says_what_it_repeats_decides() -> None:
    first, second = answers([1], [2], [3])
    second["call"]["retry_of"] = first["uuid"]
    lineage = lineage_of([first, second])
    assert attempts(lineage) == [((0, 1), (1,), (0,), False)]
    assert main_path(lineage) == (1,)


def test_equal_answers_are_attempts_too() -> None:
    first, second = answers([1], [2], [2])
    after = record(5, [1, 2, 9], [10], [user("q"), assistant("a 1"), user("r"), assistant("b")])
    lineage = lineage_of([first, second, after])
    assert attempts(lineage) == [((0, 1), (1,), (0,), False)]
    assert main_path(lineage) == (1, 2)


def test_equal_answers_to_the_last_prompt_leave_nothing_to_decide() -> None:
    lineage = lineage_of(answers([1], [2, 3], [2, 3]))
    assert attempts(lineage) == [((0, 1), (1,), (0,), False)]
    assert paths(lineage) == [(1,)]
    assert main_path(lineage) == (1,)


def test_of_an_undecided_last_retry_each_answer_is_told_once() -> None:
    lineage = lineage_of(answers([1], [2], [3], [2]))
    assert attempts(lineage) == [((0, 1, 2), (), (0,), True)]
    assert (lineage.main.reason.value, lineage.main.candidates) == ("undecided_retry", (1, 2))


def test_turns_that_ran_at_the_same_time_leave_no_main_chain() -> None:
    first = record(0, [1], [2], [user("q"), assistant("a")])
    second = record(1, [5], [6], [user("other"), assistant("b")])
    second["call"]["started_at"] = MINUTE.format(0)
    lineage = lineage_of([first, second])
    assert (lineage.main.chain, lineage.main.reason.value) == (None, "overlapping")
    assert lineage.main.candidates == (0, 1)


def test_a_turn_that_overlapped_and_was_continued_is_no_rival() -> None:
    first = record(0, [1], [2], [user("q"), assistant("a")])
    second = record(1, [1, 2, 3], [4], [user("q"), assistant("a"), user("r"), assistant("b")])
    third = record(2, [5], [6], [user("other"), assistant("c")])
    third["call"]["started_at"] = MINUTE.format(0)
    third["call"]["finished_at"] = MINUTE.format(1)
    assert main_path(lineage_of([first, second, third])) == (2,)


def test_records_without_times_are_not_taken_to_overlap() -> None:
    records = [
        {key: value for key, value in each.items() if key != "call"}
        for each in (record(0, [1], [2], [user("q"), assistant("a")]), record(1, [5], [6], [user("p"), assistant("b")]))
    ]
    assert main_path(lineage_of(records)) == (1,)


def test_a_side_call_that_extends_the_last_turn_does_not_end_the_main_chain() -> None:
    turns = [each | {"tools": TOOLS} for each in conversation(2)]
    messages = [*turns[1]["messages"], user("Summarise."), assistant("summary")]
    summary = record(5, [0, 1, 2, 3, 10, 11, 12, 13, 14], [15], messages)
    lineage = lineage_of([*turns, summary])
    assert lineage.roles == (Role.TURN, Role.TURN, Role.SIDE)
    assert paths(lineage) == [(0, 1), (0, 1, 2)]
    assert main_path(lineage) == (0, 1)
    assert lineage.main.reason.value == "last_turn"


def test_compaction_links_the_chain_before() -> None:
    turns = conversation(2)
    compacted = record(3, [0, 90], [91], [user("question 0"), user("summary"), assistant("end")])
    further = record(4, [0, 90, 91, 92], [93], [*compacted["messages"], user("go on"), assistant("done")])
    lineage = lineage_of([*turns, compacted, further])
    assert paths(lineage) == [(0, 1), (2, 3)]
    assert [chain.predecessor for chain in lineage.chains] == [None, 0]
    assert main_path(lineage) == (2, 3)


def test_a_fork_from_an_earlier_call_is_not_taken_for_compaction() -> None:
    turns = conversation(3)
    fork = record(4, [0, 1, 2, 3, 90], [91], [*turns[0]["messages"], user("another way"), assistant("end")])
    lineage = lineage_of([*turns, fork])
    assert paths(lineage) == [(0, 1, 2), (0, 3)]
    assert [chain.predecessor for chain in lineage.chains] == [None, None]
    assert main_path(lineage) == (0, 3)


@pytest.mark.parametrize("fields", [{"is_valid": False}, {"finish_reason": "abort"}])
def test_a_call_that_is_not_valid_keeps_its_place(fields: dict[str, Any]) -> None:
    records = conversation(3)
    records[1] |= fields
    assert paths(lineage_of(records)) == [(0, 1, 2)]
