"""From the forest to what is trained on: attempts at one step are told apart, chains found, the main one named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from switchyard_py.rollouts.call import Call
from switchyard_py.rollouts.diagnosis import Cause
from switchyard_py.rollouts.forest import Forest
from switchyard_py.rollouts.roles import Role


@dataclass(frozen=True, slots=True)
class Attempts:
    """Calls of one agent with the same prompt: retries, duplicates, or samples.

    `kept` are those that a later prompt contains, the others are `superseded`. Without any they are `undecided`: the
    session does not say which answer the agent used. Of equal answers, one is as good as the other: the latest stands
    for all.
    """

    calls: tuple[int, ...]
    kept: tuple[int, ...]
    superseded: tuple[int, ...]
    undecided: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """A path from a root to a call that its agent did not continue, by the indices of the calls.

    `predecessor` is the number of the chain that the same agent ended by compacting its history into this one.
    """

    calls: tuple[int, ...]
    role: Role
    agent: str
    predecessor: int | None = None

    @property
    def leaf(self) -> int:
        return self.calls[-1]


class MainReason(StrEnum):
    """Why a chain is the main one, or why none is."""

    def __new__(cls, code: str, explanation: str) -> MainReason:
        reason = str.__new__(cls, code)
        reason._value_ = code
        reason.explanation = explanation
        return reason

    explanation: str

    ONLY_CHAIN = "only_chain", "the session is one chain"
    LAST_TURN = "last_turn", "it ends with the last turn of the agent: no sub-agent, no side call, no superseded retry"
    NO_TURN = "no_turn", "none of the agent's own turns was recorded with its tokens"
    OVERLAPPING = "overlapping", "turns that were not continued ran at the same time: any of them may be the last"
    UNDECIDED_RETRY = "undecided_retry", "the last step has several answers, and nothing says which one the agent used"


@dataclass(frozen=True, slots=True)
class Main:
    """The number of the main chain and why, or None and why not; `candidates` are then the calls it may end with."""

    chain: int | None
    reason: MainReason
    candidates: tuple[int, ...] = ()


def attempts(forest: Forest, roles: Sequence[Role]) -> list[Attempts]:
    """The steps of a session that have several calls."""
    groups = defaultdict(list)
    for call, placement in zip(forest.calls, forest.placements, strict=True):
        if placement.attempt_of is not None:
            groups[placement.attempt_of, call.agent, roles[call.index]].append(call.index)
    repeated = {call.retry_of for call in forest.calls if call.retry_of}
    continued = _continued(forest)
    found = []
    for group in groups.values():
        if len(group) < 2:
            continue
        candidates = [index for index in group if forest.calls[index].uuid not in repeated] or group
        open_ones = list({bytes(forest.generation_token_ids(index)): index for index in candidates}.values())
        kept = [index for index in group if index in continued] or (open_ones if len(open_ones) == 1 else [])
        current = set(kept or open_ones)
        superseded = [index for index in group if index not in current]
        found.append(Attempts(tuple(group), tuple(kept), tuple(superseded), undecided=not kept))
    return found


def chains(forest: Forest, roles: Sequence[Role], steps: Sequence[Attempts]) -> list[Chain]:
    """The chains of a session in the order of their last calls; superseded calls end none."""
    superseded = {index for step in steps for index in step.superseded}
    placed = [call for call in forest.calls if call.flaw is None and call.index not in superseded]
    # A side call or a sub-agent may begin with the tokens of a turn, and does not continue the agent's chain.
    inner = {
        parent
        for call in placed
        if (parent := forest.parent(call.index)) is not None
        and (roles[parent], forest.calls[parent].agent) == (roles[call.index], call.agent)
    }
    compacted = {each.call: each.predecessor for each in forest.diagnoses if each.cause is Cause.HISTORY_COMPACTED}
    found: list[Chain] = []
    by_leaf: dict[int, int] = {}
    for call in placed:
        if call.index in inner:
            continue
        path = forest.path(call.index)
        before = next((compacted[index] for index in reversed(path) if index in compacted), None)
        by_leaf[call.index] = len(found)
        found.append(
            Chain(
                calls=path,
                role=roles[call.index],
                agent=call.agent,
                predecessor=None if before is None else by_leaf.get(before),
            )
        )
    return found


def main_chain(forest: Forest, found: Sequence[Chain], steps: Sequence[Attempts]) -> Main:
    """Name the chain of the agent itself that ends with its last turn."""
    turns = [number for number, chain in enumerate(found) if chain.role is Role.TURN]
    if not turns:
        return Main(None, MainReason.NO_TURN)
    last = turns[-1]
    leaf = found[last].leaf
    for step in steps:
        if step.undecided and leaf in step.calls:
            open_ones = tuple(index for index in step.calls if index not in step.superseded)
            return Main(None, MainReason.UNDECIDED_RETRY, open_ones)
    continued = _continued(forest)
    rivals = [
        found[number].leaf
        for number in turns[:-1]
        if found[number].leaf not in continued and _overlap(forest.calls[found[number].leaf], forest.calls[leaf])
    ]
    if rivals:
        return Main(None, MainReason.OVERLAPPING, (*rivals, leaf))
    return Main(last, MainReason.ONLY_CHAIN if len(found) == 1 else MainReason.LAST_TURN)


def _continued(forest: Forest) -> set[int]:
    """The calls that a later one continues, by its tokens or, beyond doubt, by its messages."""
    by_tokens = {placement.link.parent for placement in forest.placements if placement.link}
    by_messages = {placement.continues for placement in forest.placements if placement.certain}
    return {index for index in by_tokens | by_messages if index is not None}


def _overlap(one: Call, other: Call) -> bool:
    """Whether two calls ran at the same time, as far as their records tell."""
    if not (one.started_at and one.finished_at and other.started_at and other.finished_at):
        return False
    return one.started_at < other.finished_at and other.started_at < one.finished_at
