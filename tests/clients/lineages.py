"""What a trainer has of the sessions that an agent left in a capture directory: of each its main chain, or why not."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clients.client import ERRAND_MARK

from switchyard_py.rollouts import Cause, Lineage, MainReason, Role, Session, build_lineage, read_session
from switchyard_py.store import SessionReader

_OTHERS = {Role.SUBAGENT: "of sub-agents", Role.SIDE: "beside the turns"}


@dataclass
class Expected:
    """What a test expects of every session that its agent leaves; a main chain of all turns, if it says nothing."""

    agent: str | None = None
    """Which one worked; without one there need be no session."""
    no_main: MainReason | None = None
    """Why there is no main chain."""
    breaks: list[Cause] = field(default_factory=list)
    """Why prompts of the main agent do not begin with the tokens of the one before, in call order."""


@dataclass(frozen=True)
class LeftSession:
    """A session that was read with its lineage; `turns` are the calls that a main chain has to have.

    These are told without the lineage's help: they have tools, and nobody gave them an errand, unless all of the
    session's have one.
    """

    lineage: Lineage
    turns: tuple[int, ...]

    def parts(self) -> list[tuple[int, ...]]:
        """The calls of the main chain, after those of the chains that it goes on from without their tokens."""
        lineage, parts = self.lineage, list[tuple[int, ...]]()
        assert lineage.main.chain is not None
        calls = lineage.chains[lineage.main.chain].calls
        while calls:
            before = next((each.predecessor for each in lineage.forest.diagnoses if each.call == calls[0]), None)
            parts.append(calls)
            calls = () if before is None else lineage.forest.path(before)
        return parts[::-1]

    def breaks(self) -> list[Cause]:
        """Why the parts are not one."""
        begins = [part[0] for part in self.parts()[1:]]
        return [each.cause for each in self.lineage.forest.diagnoses if each.call in begins]

    def line(self) -> str:
        """The session in a line of the lane's report."""
        lineage = self.lineage
        others = Counter(_OTHERS[role] for role in lineage.roles if role in _OTHERS)
        counts = {"begun": 0, **(lineage.accounting or {}), **others}
        shown = ", ".join(f"{count} {what}" for what, count in counts.items() if count and what != "begun")
        said = f"session {lineage.session_id} of {_counted(counts['begun'])} ({shown}): "
        if lineage.main.chain is None:
            return f"{said}no main chain: {lineage.main.reason.explanation}"
        *earlier, last = self.parts()
        said += f"main chain of {_counted(len(last))}"
        for part, cause in zip(reversed(earlier), reversed(self.breaks()), strict=True):
            said += f", after one of {_counted(len(part))}: {cause.explanation}"
        return said

    def check(self, expected: Expected) -> None:
        """Fail where the lineage says anything else of the session than what is expected."""
        lineage = self.lineage
        assert (lineage.faults, lineage.missing) == ((), 0)
        assert tuple(call for call, role in enumerate(lineage.roles) if role is Role.TURN) == self.turns, self.line()
        if expected.no_main is not None:
            assert (lineage.main.chain, lineage.main.reason) == (None, expected.no_main), self.line()
            return
        assert lineage.main.chain is not None, self.line()
        assert tuple(call for part in self.parts() for call in part) == self.turns, self.line()
        assert self.breaks() == expected.breaks, self.line()
        assert lineage.chain_verdicts[lineage.main.chain].trainable, self.line()


def left_sessions(directory: Path) -> Iterator[LeftSession]:
    """Every session of a capture directory, by its first call."""
    if not directory.is_dir():
        return
    reader = SessionReader(directory, None)
    for summary in reader.sessions():
        turns = _turns(read_session(reader, summary.session_id))
        yield LeftSession(build_lineage(read_session(reader, summary.session_id)), turns)


def _turns(session: Session) -> tuple[int, ...]:
    with_tools = [(index, record) for index, record in enumerate(session.records()) if record["tools"]]
    main = [index for index, record in with_tools if not is_errand(record)]
    return tuple(main or [index for index, _ in with_tools])


def is_errand(record: dict[str, Any]) -> bool:
    """Whether a call is that of a sub-agent: of what it was asked to do."""
    asked = [message["content"] for message in record["messages"] if message["role"] == "user"]
    return any(ERRAND_MARK in str(text) for text in asked)


def _counted(calls: int) -> str:
    return f"{calls} call{'' if calls == 1 else 's'}"
