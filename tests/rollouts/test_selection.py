"""Which chains a trainer gets, and what it is told when there is none."""

from typing import Any

import pytest
from rollout_records import Record, call, envelope

from switchyard_py.rollouts import (
    Criteria,
    Lineage,
    NothingToTrain,
    Reason,
    build_lineage,
    read_session,
    trainable_chains,
)

USER: Record = {"role": "user", "content": "hi"}
REPLY: Record = {"role": "assistant", "content": "hello"}
LATER = {"started_at": "2026-01-01T00:00:05.000000+00:00", "finished_at": "2026-01-01T00:00:09.000000+00:00"}


def turn(prompt: list[int], generation: list[int], **fields: Any) -> Record:
    return call([USER, REPLY], prompt, generation, [-1.0] * len(generation), **fields)


def lineage(*records: Record, **criteria: Any) -> Lineage:
    return build_lineage(read_session(envelope(list(records))), Criteria(**criteria))


def test_the_main_chain_comes_first() -> None:
    forked = lineage(turn([1], [2]), turn([1, 2, 3], [4]), turn([1, 2, 5], [6]))
    assert [chain.calls for chain in forked.chains] == [(0, 1), (0, 2)]
    assert forked.main.chain == 1
    assert trainable_chains(forked, "main") == (1,)
    assert trainable_chains(forked, "all") == (1, 0)


def test_chains_that_are_not_trainable_are_left_out() -> None:
    forked = lineage(turn([1], [2]), turn([1, 2, 3], [4], call={"constrained": True}), turn([1, 2, 5], [6]))
    assert trainable_chains(forked, "all") == (1,)


def test_why_the_main_chain_is_not_trainable() -> None:
    constrained = lineage(turn([1], [2], call={"constrained": True}))
    with pytest.raises(NothingToTrain, match="the main chain is not trainable: constrained") as refused:
        trainable_chains(constrained, "main")
    assert refused.value.code == "not_trainable"
    with pytest.raises(NothingToTrain, match="no chain is trainable: chain 0: constrained"):
        trainable_chains(constrained, "all")
    lenient = lineage(turn([1], [2], call={"constrained": True}), blocking=frozenset({Reason.INVALID}))
    assert trainable_chains(lenient, "main") == (0,)


def test_why_there_is_no_main_chain() -> None:
    together = lineage(turn([1], [2], call=LATER), turn([3], [4], call=LATER))
    with pytest.raises(NothingToTrain, match="may end with the call u0 or u1") as refused:
        trainable_chains(together, "main")
    assert refused.value.to_json() == {"code": "overlapping", "message": str(refused.value)}
    assert trainable_chains(together, "all") == (0, 1)


@pytest.mark.parametrize(("reason", "chains"), [("context_overflow", (0,)), ("no_generation_token_ids", None)])
def test_only_an_answer_nobody_generated_leaves_no_gap(reason: str, chains: tuple[int, ...] | None) -> None:
    empty = turn([1, 2, 3], [], is_valid=False, call={"invalid_reasons": [reason]})
    session = lineage(turn([1], [2]), empty)
    if chains is None:
        with pytest.raises(NothingToTrain, match="not trainable: invalid"):
            trainable_chains(session, "main")
    else:
        assert trainable_chains(session, "main") == chains


def test_a_session_without_records() -> None:
    with pytest.raises(NothingToTrain, match="the session has none"):
        trainable_chains(lineage(), "all")
    with pytest.raises(NothingToTrain, match="there is no main chain") as refused:
        trainable_chains(lineage(), "main")
    assert refused.value.code == "no_turn"
