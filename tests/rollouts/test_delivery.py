"""What of a session is delivered in which mode, and what of a capture directory cannot be."""

from pathlib import Path
from typing import Any

import pytest
from rollout_records import SESSION, Record, call, envelope
from stored_calls import commit, put

from switchyard_py.rollouts import (
    Delivery,
    Mode,
    NothingToTrain,
    Refusal,
    SessionIncomplete,
    SourceError,
    build_lineage,
    deliver,
    read_session,
)
from switchyard_py.store import SessionReader, Writer

USER: Record = {"role": "user", "content": "q"}
REPLY: Record = {"role": "assistant", "content": "a"}
ONE = call([USER, REPLY], [1], [2], [-1.0])
TWO = call([USER, REPLY, USER, REPLY], [1, 2, 3], [4], [-2.0])
BESIDE = call([USER, REPLY], [1, 2, 5], [6], [-3.0])
MODES: list[Mode] = ["strict", "lineage"]


def delivered(records: list[Record], mode: Mode, which: Any = "main", **more: Any) -> Delivery:
    return deliver(read_session(envelope(records) | more), mode, which)


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation_is_one_chain_in_both_modes(mode: Mode) -> None:
    delivery = delivered([ONE, TWO], mode, "all")
    assert [delivery.lineage.chains[number].calls for number in delivery.chains] == [(0, 1)]


def test_lineage_mode_delivers_the_main_chain_or_all() -> None:
    with pytest.raises(Refusal):
        delivered([ONE, TWO, BESIDE], "strict")
    main = delivered([ONE, TWO, BESIDE], "lineage")
    assert [main.lineage.chains[number].calls for number in main.chains] == [(0, 2)]
    every = delivered([ONE, TWO, BESIDE], "lineage", "all")
    assert [every.lineage.chains[number].calls for number in every.chains] == [(0, 2), (0, 1)]
    # What chains share has its tokens once.
    tokens = [["prompt_token_ids" in item for item in rollout.output] for rollout in every.gym_rollouts()]
    assert [sum(each) for each in tokens] == [2, 1]


def test_strict_mode_leaves_verdicts_to_the_trainer_and_lineage_mode_does_not() -> None:
    constrained = ONE | {"call": {"constrained": True}}
    assert delivered([constrained], "strict").chains == (0,)
    with pytest.raises(NothingToTrain) as refusal:
        delivered([constrained], "lineage")
    assert refusal.value.to_json()["code"] == "not_trainable"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("account", "says"),
    [
        ({"valid": 1, "open": 2}, "calls that have not ended: 2"),
        ({"valid": 2, "lost": 1}, "delivered calls without a record that can be read: 2"),
    ],
)
def test_a_session_that_is_not_whole_is_delivered_in_no_mode(mode: Mode, account: dict[str, int], says: str) -> None:
    with pytest.raises(SessionIncomplete) as refusal:
        delivered([ONE], mode, accounting=account)
    assert refusal.value.to_json() == {"code": "incomplete", "message": says}


def test_a_session_is_read_through_a_reader_with_the_files_that_cannot_be(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    good, bad = commit(writer, SESSION), commit(writer, SESSION)
    writer.close()
    put(tmp_path, f"{bad.uuid}.json", b"{", SESSION)
    reader = SessionReader(tmp_path, None)
    lineage = build_lineage(read_session(reader, SESSION))
    assert [each.uuid for each in lineage.forest.calls] == [good.uuid]
    assert lineage.missing == 1
    (fault,) = lineage.faults
    assert fault.name == f"{bad.uuid}.json"
    assert lineage.to_json()["faults"] == [{"name": fault.name, "reason": fault.reason}]
    with pytest.raises(SourceError, match=f"there is no session 'nope' in {tmp_path}"):
        build_lineage(read_session(reader, "nope"))
