"""Which chains of a session are handed to a trainer."""

from __future__ import annotations

from typing import Literal

from switchyard_py.rollouts.lineage import Lineage
from switchyard_py.rollouts.refusal import NothingToTrain

Which = Literal["main", "all"]


def trainable_chains(lineage: Lineage, which: Which) -> tuple[int, ...]:
    """The numbers of the trainable chains, the main one first: that one only, or all of them.

    Raises:
        NothingToTrain: there is none.
    """
    if which == "main":
        main = named_main(lineage)
        if not lineage.chain_verdicts[main].trainable:
            raise NothingToTrain("not_trainable", f"the main chain is not trainable: {_reasons(lineage, main)}")
        return (main,)
    numbers = sorted(range(len(lineage.chains)), key=lambda number: number != lineage.main.chain)
    found = tuple(number for number in numbers if lineage.chain_verdicts[number].trainable)
    if not found:
        each = "; ".join(f"chain {number}: {_reasons(lineage, number)}" for number in range(len(lineage.chains)))
        raise NothingToTrain("not_trainable", f"no chain is trainable: {each or 'the session has none'}")
    return found


def named_main(lineage: Lineage) -> int:
    """The number of the main chain, trainable or not.

    Raises:
        NothingToTrain: none is named.
    """
    if lineage.main.chain is None:
        raise NothingToTrain(lineage.main.reason, _no_main(lineage))
    return lineage.main.chain


def _no_main(lineage: Lineage) -> str:
    uuids = ", ".join(str(lineage.forest.calls[index].uuid) for index in lineage.main.candidates)
    ends = f"; it may end with the call {uuids.replace(', ', ' or ')}" if uuids else ""
    return f"there is no main chain: {lineage.main.reason.explanation}{ends}"


def _reasons(lineage: Lineage, number: int) -> str:
    return ", ".join(lineage.chain_verdicts[number].reasons)
