"""Each claim is found untrue when it is, and no other with it."""

from collections.abc import Callable
from typing import Any

import pytest

from switchyard_py.demo.claims import Evidence, claims
from switchyard_py.demo.conversation import Reply

SENT: list[dict[str, Any]] = [
    {"role": "user", "content": "?"},
    {"role": "assistant", "content": "", "reasoning": "r"},
    {"role": "tool", "content": "t"},
]


def evidence() -> Evidence:
    """All that a demonstration without a fault leaves behind."""
    replies = [
        Reply("u1", reasoning="r", usage={"prompt_tokens": 2, "completion_tokens": 1}, finish_reason="tool_calls"),
        Reply("u2", content="!", usage={"prompt_tokens": 4, "completion_tokens": 2}, finish_reason="stop"),
    ]
    for reply in replies:
        reply.recorded_at_first_token, reply.recorded_at_tail = False, True
    messages = [SENT[0], {"role": "assistant", "reasoning": "r"}, SENT[2], {"role": "assistant", "content": "!"}]
    records = [
        record("u1", messages[:2], [1, 2], [3]),
        record("u2", messages, [1, 2, 3, 4], [5, 6]),
    ]
    return Evidence(replies, SENT, records, {"begun": 2, "valid": 2, "invalid": 0, "open": 0})


def record(uuid: str, messages: list[dict[str, Any]], prompt: list[int], generated: list[int]) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "messages": messages,
        "is_valid": True,
        "call": {"invalid_reasons": []},
        "prompt_token_ids": prompt,
        "generation_token_ids": generated,
        "generation_log_probs": [-0.5] * len(generated),
    }


def faults(given: Evidence) -> dict[str, str]:
    return {claim.text.split(",")[0]: claim.fault for claim in claims(given) if claim.fault}


def test_all_is_true() -> None:
    assert faults(evidence()) == {}


LIVE = "tokens reached the agent live"
DURABLE = "each record was on disk before the agent could act on the reply"
VALID = "both calls are recorded and valid"
COUNTED = "ids"
CONTINUED = "call 2's prompt ids begin with call 1's prompt + generation"
FAITHFUL = "the records hold what the agent sent and received"
UNSEEN = "the agent was shown no ids and no log-probs: it asked for none"
BALANCED = "the account balances: begun 2 = valid 2"

Change = Callable[[Evidence], object]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda e: setattr(e.replies[0], "recorded_at_first_token", True), {LIVE: "call 1 came all at once"}),
        (lambda e: setattr(e.replies[1], "recorded_at_first_token", None), {LIVE: "call 2 came all at once"}),
        (
            lambda e: setattr(e.replies[1], "recorded_at_tail", False),
            {DURABLE: "the agent could act on call 2 before its record was there"},
        ),
        (
            lambda e: e.records[1].update(is_valid=False, call={"invalid_reasons": ["a", "b"]}),
            {VALID: "call 2 is invalid: a, b"},
        ),
        (
            lambda e: e.records.append(record("u3", e.records[1]["messages"], [1], [2])),
            {VALID: "2 calls were made, the session has 3 records"},
        ),
        (
            lambda e: e.records[0]["generation_log_probs"].clear(),
            {COUNTED: "call 1 has 0 generation_log_probs, the usage says 1"},
        ),
        (
            lambda e: e.replies[1].usage.clear(),
            {COUNTED: "call 2 has 4 prompt_token_ids, the usage says None"},
        ),
        (
            lambda e: e.records[1].update(prompt_token_ids=[1, 2, 9, 4]),
            {CONTINUED: "of the 3 ids only the first 2 are the same"},
        ),
        (lambda e: e.records[1]["messages"].pop(), {FAITHFUL: "the last record holds another conversation"}),
        (
            lambda e: e.replies[0].captured_keys.update({"token_ids", "logprobs"}),
            {UNSEEN: "call 1 showed logprobs, token_ids"},
        ),
        (lambda e: e.accounting.update(open=1), {BALANCED: "begun 2, valid 2, open 1"}),
        (lambda e: e.accounting.update(begun=3, open=1), {BALANCED: "begun 3, valid 2, open 1"}),
    ],
)
def test_one_is_untrue(change: Change, expected: dict[str, str]) -> None:
    given = evidence()
    change(given)
    assert faults(given) == expected


def test_a_prompt_that_ends_too_early_does_not_continue() -> None:
    given = evidence()
    given.records[1].update(prompt_token_ids=[1, 2])
    assert faults(given)[CONTINUED] == "of the 3 ids only the first 2 are the same"


@pytest.mark.parametrize("key", ["prompt_token_ids", "generation_token_ids"])
def test_ids_that_are_missing(key: str) -> None:
    given = evidence()
    given.records[0].update({key: None})
    assert faults(given) == dict.fromkeys((COUNTED, CONTINUED), f"the record of call 1 has no {key}")


def test_a_record_that_is_missing() -> None:
    given = evidence()
    given.records.clear()  # type: ignore[attr-defined]
    assert faults(given) == {
        VALID: "2 calls were made, the session has 0 records",
        COUNTED: "call 1 has no record",
        CONTINUED: "call 1 has no record",
        FAITHFUL: "the last record holds another conversation",
    }
