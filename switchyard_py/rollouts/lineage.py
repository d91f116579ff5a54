"""A session's calls, chains and main chain with a verdict on each: what trainer formats are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from switchyard_py.rollouts.chains import Attempts, Chain, Main, MainReason, attempts, chains, main_chain
from switchyard_py.rollouts.diagnosis import Decoder
from switchyard_py.rollouts.forest import Forest
from switchyard_py.rollouts.roles import Role, roles
from switchyard_py.rollouts.source import Session
from switchyard_py.rollouts.strict import StrictRules
from switchyard_py.rollouts.verdict import Criteria, Reason, Verdict, judge_call, judge_chain
from switchyard_py.store import Fault


@dataclass(frozen=True, slots=True)
class Lineage:
    """What is known of a session. Calls are named by their index in `forest.calls`, chains by theirs in `chains`.

    `accounting` is the session's own account of its calls, null where its source gives none; `missing` counts the
    delivered calls that are in the account and not among the records; `failures` (reasons of failed calls by uuid) and
    `faults` (files that cannot be read) are there where the source tells.
    """

    forest: Forest
    roles: tuple[Role, ...]
    attempts: tuple[Attempts, ...]
    chains: tuple[Chain, ...]
    main: Main
    call_verdicts: tuple[Verdict, ...]
    chain_verdicts: tuple[Verdict, ...]
    accounting: Mapping[str, int] | None
    missing: int
    failures: Mapping[str, str]
    faults: tuple[Fault, ...]

    @property
    def session_id(self) -> str:
        return self.forest.session_id

    @property
    def parent_session_id(self) -> str | None:
        """The session that a call names as its parent, the first one that names another than this.

        In a session that was given to several agents of one harness, their parents are among them.
        """
        calls = self.forest.calls
        here = {self.session_id, *(call.own_session for call in calls), None}
        return next((call.parent_session_id for call in calls if call.parent_session_id not in here), None)

    def to_json(self) -> dict[str, Any]:
        """All of it but the ids, log-probs and messages, of types that JSON has."""
        return {
            "session_id": self.session_id,
            "parent_session_id": self.parent_session_id,
            "accounting": None if self.accounting is None else dict(self.accounting),
            "missing": self.missing,
            "calls": [self._call_to_json(index) for index in range(len(self.forest.calls))],
            "attempts": [asdict(each) for each in self.attempts],
            "diagnoses": [asdict(each) | {"explanation": each.cause.explanation} for each in self.forest.diagnoses],
            "chains": [
                asdict(chain) | {"verdict": asdict(verdict)}
                for chain, verdict in zip(self.chains, self.chain_verdicts, strict=True)
            ],
            "main": asdict(self.main) | {"explanation": self.main.reason.explanation},
            "failures": dict(self.failures),
            "faults": [asdict(fault) for fault in self.faults],
        }

    def _call_to_json(self, index: int) -> dict[str, Any]:
        call, placement = self.forest.calls[index], self.forest.placements[index]
        link = placement.link
        return {
            "index": index,
            "uuid": call.uuid,
            "role": self.roles[index],
            "agent": call.agent,
            "model": call.model,
            "route": call.route,
            "started_at": call.started_at and call.started_at.isoformat(),
            "finished_at": call.finished_at and call.finished_at.isoformat(),
            "finish_reason": call.finish_reason,
            "is_valid": call.is_valid,
            "invalid_reasons": list(call.invalid_reasons),
            "flaw": call.flaw and call.flaw.to_json(),
            "prompt_tokens": call.prompt_tokens,
            "generation_tokens": call.generation_tokens,
            "parent": link and link.parent,
            "added_tokens": link and link.added_tokens,
            "unseen_replies": link and link.unseen_replies,
            "route_changed": link and link.route_changed,
            "tools_changed": link and link.tools_changed,
            "continues": placement.continues,
            "verdict": asdict(self.call_verdicts[index]),
        }


@dataclass(frozen=True, slots=True)
class SessionLink:
    """A session and the one that its calls name as its parent; `known` if that one is among those looked at."""

    session_id: str
    parent_session_id: str | None
    known: bool


def build_lineage(session: Session, criteria: Criteria | None = None, decode: Decoder | None = None) -> Lineage:
    """Read a session and place every call, whatever it holds.

    `decode`, the tokenizer's, gives diagnoses their texts and makes them surer.

    Raises:
        SourceError: the session cannot be had.
        Refusal: it is not the envelope of this session (E1 to E3, or completions is no list).
    """
    forest: Forest | None = None
    with closing(session.records()) as records:
        for record in records:
            forest = forest or Forest(session.session_id, decode)
            forest.add(record)
            del record  # so that it and the next one are not in memory together
    forest = forest or Forest(session.session_id, decode)
    who = roles(forest.calls, forest.session_id)
    steps = attempts(forest, who)
    found = chains(forest, who, steps)
    return _judged(session, forest, who, steps, found, main_chain(forest, found, steps), criteria)


def accept(session: Session, criteria: Criteria | None = None) -> Lineage:
    """Read a session that is one linear conversation by the rules of strict mode: one chain, which is the main one.

    Raises:
        SourceError: the session cannot be had.
        Refusal: a rule is broken: the first one, in call order.
    """
    forest: Forest | None = None
    rules = StrictRules()
    with closing(session.records()) as records:
        for record in records:
            forest = forest or Forest(session.session_id)
            rules.check(record, forest.add(record))
            del record
    rules.end()
    assert forest is not None
    chain = Chain(tuple(range(len(forest.calls))), Role.TURN, forest.calls[0].agent)
    who = roles(forest.calls, forest.session_id)
    return _judged(session, forest, who, [], [chain], Main(0, MainReason.ONLY_CHAIN), criteria)


def link_sessions(lineages: Iterable[Lineage]) -> list[SessionLink]:
    """The parents of some sessions, each by the ids its calls were sent with."""
    parents = {lineage.session_id: lineage.parent_session_id for lineage in lineages}
    return [SessionLink(session_id, parent, parent in parents) for session_id, parent in parents.items()]


def _judged(
    session: Session,
    forest: Forest,
    who: list[Role],
    steps: list[Attempts],
    found: list[Chain],
    main: Main,
    criteria: Criteria | None,
) -> Lineage:
    criteria = criteria or Criteria()
    missing = session.missing(len(forest.calls))
    gaps = _Gaps(forest, who, missing)
    last_turn = max((number for number, chain in enumerate(found) if chain.role is Role.TURN), default=None)
    verdicts = [
        judge_chain(
            [forest.calls[index] for index in chain.calls],
            [*gaps.within(chain), *(gaps.after(chain.leaf) if number == last_turn else ())],
            criteria,
        )
        for number, chain in enumerate(found)
    ]
    return Lineage(
        forest=forest,
        roles=tuple(who),
        attempts=tuple(steps),
        chains=tuple(found),
        main=main,
        call_verdicts=tuple(judge_call(call, criteria) for call in forest.calls),
        chain_verdicts=tuple(verdicts),
        accounting=session.accounting,
        missing=missing,
        failures=session.failures,
        faults=tuple(session.faults),
    )


# The agent was given an answer, and the engine generated nothing for it: no chain lacks its tokens.
_NOTHING_GENERATED = ("context_overflow",)


class _Gaps:
    """Delivered calls whose ids nobody has: lost, or of a record with a flaw."""

    def __init__(self, forest: Forest, who: list[Role], missing: int) -> None:
        self._forest = forest
        self._reasons = {
            call.index: Reason.LOST if call.lost else Reason.INVALID
            for call in forest.calls
            if call.flaw is not None and who[call.index] is Role.TURN and call.invalid_reasons != _NOTHING_GENERATED
        }
        self._anywhere = [Reason.LOST] if missing else []

    def within(self, chain: Chain) -> set[Reason]:
        """The reasons of calls whose reply stands in a prompt of the chain, generated by none of its calls."""
        found: set[Reason] = set()
        before = -1
        for index in chain.calls:
            link = self._forest.placements[index].link
            if link is not None and link.unseen_replies:
                found |= {reason for at, reason in self._reasons.items() if before < at < index}
                found |= set(self._anywhere)
            before = index
        return found

    def after(self, leaf: int) -> set[Reason]:
        """The reasons of calls that may have continued the last chain."""
        return {reason for at, reason in self._reasons.items() if at > leaf} | set(self._anywhere)
