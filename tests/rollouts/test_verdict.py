"""The verdict on calls and chains, and what is said of calls nobody has."""

from typing import Any

import pytest
from session_records import Record, assistant, conversation, lineage_of, record, user

from switchyard_py.rollouts import BLOCKING, Criteria, Lineage, Reason, Verdict

VERSIONS = [{"version": "v1", "start": 0, "end": 1}, {"version": "v2", "start": 1, "end": 2}]


def changed(number: int, call: dict[str, Any] | None = None, **fields: Any) -> list[Record]:
    records = conversation(3)
    records[number] |= fields
    records[number]["call"] |= call or {}
    return records


def lost(number: int) -> Record:
    """The placeholder of a lost call."""
    fields = {"request_id": "", "model": "", "is_valid": False, "call": {"invalid_reasons": ["lost"]}}
    placeholder = record(number, [], [], [], **fields)
    return placeholder | dict.fromkeys(("prompt_token_ids", "generation_token_ids", "generation_log_probs"))


def of_the_chain(lineage: Lineage) -> tuple[Reason, ...]:
    (verdict,) = lineage.chain_verdicts
    return verdict.reasons


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (changed(1, is_valid=False), Reason.INVALID),
        (changed(1, finish_reason="abort"), Reason.ABORTED),
        (changed(1, {"invalid_reasons": ["aborted"]}, is_valid=True), Reason.ABORTED),
        (changed(1, finish_reason="length"), Reason.TRUNCATED),
        (changed(1, {"truncated": True}), Reason.TRUNCATED),
        (changed(1, {"constrained": True}), Reason.CONSTRAINED),
        (changed(1, {"engine": {"logprobs_mode": "processed_logprobs"}}), Reason.PROCESSED_LOG_PROBS),
        (changed(1, {"engine": {"weight_versions": VERSIONS}}), Reason.WEIGHT_VERSION_CHANGE),
    ],
)
def test_a_call_and_its_chain_have_the_reason(records: list[Record], reason: Reason) -> None:
    lineage = lineage_of(records)
    fine = Verdict(trainable=True, reasons=())
    bad = Verdict(trainable=reason not in BLOCKING, reasons=(reason,))
    assert lineage.call_verdicts == (fine, bad, fine)
    assert lineage.chain_verdicts == (bad,)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (changed(1, model="other"), Reason.MIXED_MODELS),
        (changed(1, {"sampling": {"temperature": 0.5}}), Reason.MIXED_SAMPLING),
        (changed(2, {"engine": {"weight_versions": [{"version": "v2"}]}}), Reason.WEIGHT_VERSION_CHANGE),
    ],
)
def test_calls_of_a_chain_that_differ(records: list[Record], reason: Reason) -> None:
    records[0]["call"]["engine"] = {"weight_versions": [{"version": "v1"}]}
    lineage = lineage_of(records)
    assert of_the_chain(lineage) == (reason,)
    assert all(verdict.trainable and not verdict.reasons for verdict in lineage.call_verdicts)


@pytest.mark.parametrize("sampling", [{"max_tokens": 5}, {"stop": ["x"]}, {"temperature": None}])
def test_what_does_not_shape_the_distribution_may_differ(sampling: dict[str, Any]) -> None:
    assert of_the_chain(lineage_of(changed(1, {"sampling": sampling}))) == ()


def test_the_reader_says_what_blocks_and_what_the_log_probs_are() -> None:
    records = changed(1, finish_reason="length")
    strict = Criteria(blocking=BLOCKING | {Reason.TRUNCATED})
    assert [verdict.trainable for verdict in lineage_of(records, strict).call_verdicts] == [True, False, True]
    processed = Criteria(logprobs_mode="processed_logprobs")
    assert of_the_chain(lineage_of(conversation(1), processed)) == (Reason.PROCESSED_LOG_PROBS,)


def test_a_lost_call_between_two_of_a_chain_is_a_reason() -> None:
    first, second = conversation(2)
    unseen = [*first["messages"], user("p"), assistant("lost"), user("q"), assistant("b")]
    after = record(3, [0, 1, 2, 3, 60, 61, 62], [63], unseen)
    assert of_the_chain(lineage_of([first, lost(2), after])) == (Reason.LOST,)
    # The lost call may be of a sub-agent: what it answered is in no prompt of this chain.
    assert of_the_chain(lineage_of([first, lost(2), second])) == ()
    # The prompt of a root may hold its reply too.
    assert of_the_chain(lineage_of([lost(2), after])) == (Reason.LOST,)
    assert of_the_chain(lineage_of([lost(2), first, second])) == ()


def test_a_lost_call_after_the_last_turn_may_have_been_the_last() -> None:
    assert of_the_chain(lineage_of([*conversation(2), lost(5)])) == (Reason.LOST,)


def test_a_record_that_cannot_be_read_is_a_gap_as_well() -> None:
    assert of_the_chain(lineage_of([*conversation(2), {"uuid": "x"}])) == (Reason.INVALID,)


def test_a_delivered_call_of_the_account_that_is_not_there_is_lost() -> None:
    account = {"begun": 5, "valid": 3, "invalid": 0, "lost": 0, "failed": 2}
    lineage = lineage_of(conversation(2), accounting=account)
    assert (lineage.accounting, lineage.missing) == (account, 1)
    assert of_the_chain(lineage) == (Reason.LOST,)
    whole = lineage_of(conversation(3), accounting=account)
    assert (whole.missing, of_the_chain(whole)) == (0, ())
