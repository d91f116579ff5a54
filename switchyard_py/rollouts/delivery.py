"""What of a session is handed to a trainer.

Strict mode takes a session that is one linear conversation, as NeMo Gym's own reader does, and nothing else. Lineage
mode takes any session and delivers its main chain, or every chain, where the verdict lets it be trained on. Neither
delivers a session whose own account says that something of it is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from switchyard_py.rollouts.gym_items import GymRollout, gym_rollout
from switchyard_py.rollouts.lineage import Lineage, accept, build_lineage
from switchyard_py.rollouts.refusal import Refusal, SessionIncomplete
from switchyard_py.rollouts.selection import Which, trainable_chains
from switchyard_py.rollouts.source import Session
from switchyard_py.store import Fault, State

Mode = Literal["strict", "lineage"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A session and the numbers of the chains that are delivered, at least one, the main one first."""

    lineage: Lineage
    chains: tuple[int, ...]

    def gym_rollouts(self, *, seed: int | None = None, as_original: bool = False) -> Iterator[GymRollout]:
        """A rollout for each chain, see `gym_rollout`. Chains that fork share calls; only the first rollout that has
        a call has its tokens.

        Raises:
            Refusal: a message or tool cannot be converted.
        """
        forest = self.lineage.forest
        delivered: set[int] = set()
        for number in self.chains:
            path = self.lineage.chains[number].calls
            yield gym_rollout(forest, path, untrained=delivered, seed=seed, as_original=as_original)
            delivered.update(path)


def deliver(session: Session, mode: Mode, which: Which = "main") -> Delivery:
    """Read a session and choose its chains; `which` of the trainable ones is a matter of lineage mode.

    Raises:
        SourceError: the session cannot be had.
        Refusal: strict mode refuses it, or it is not the envelope of this session.
        SessionIncomplete: calls are open, or records are missing.
        NothingToTrain: there is no chain of those asked for.
    """
    if mode == "strict":
        try:
            lineage = accept(session)
        except Refusal as refusal:
            # A record that does not continue what cannot be read is not to blame.
            if unreadable := _unreadable(session.faults):
                raise _missing(len(unreadable), unreadable) from refusal
            raise
        check_account(lineage)
        return Delivery(lineage, (0,))
    lineage = build_lineage(session)
    check_account(lineage)
    return Delivery(lineage, trainable_chains(lineage, which))


def check_account(lineage: Lineage) -> None:
    """Ask the proxy's account whether the session is whole; an envelope of another proxy has none.

    Raises:
        SessionIncomplete: it is not.
    """
    open_calls = (lineage.accounting or {}).get("open", 0)
    if open_calls:
        raise SessionIncomplete(f"calls that have not ended: {open_calls}")
    if lineage.missing:
        raise _missing(lineage.missing, _unreadable(lineage.faults))


def _unreadable(faults: Iterable[Fault]) -> list[Fault]:
    """Those of committed records: calls in other states are not delivered, or have a placeholder."""
    return [fault for fault in faults if fault.name.endswith(State.COMMITTED.suffix)]


def _missing(count: int, faults: Iterable[Fault]) -> SessionIncomplete:
    named = "".join(f"; {fault.name}: {fault.reason}" for fault in faults)
    return SessionIncomplete(f"delivered calls without a record that can be read: {count}{named}")
