"""What a row of the fault matrix is: one thing that goes wrong, and what it is to end in, for each kind of call."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scripted_engine import Turn

if TYPE_CHECKING:
    from fault_matrix.cell import Cell

PLAIN = Turn(text="one two three four")
TOOL = Turn(text="I look.", tool_calls=[("run", '{"command": "ls", "in": "src"}')])


@dataclass(frozen=True)
class Mode:
    """A kind of call: buffered or streamed, answered with text or with a tool call."""

    streamed: bool
    turn: Turn

    def __str__(self) -> str:
        return f"{'streamed' if self.streamed else 'buffered'} {'tool' if self.turn is TOOL else 'plain'}"


MODES = [Mode(streamed, turn) for streamed in (False, True) for turn in (PLAIN, TOOL)]


@dataclass(frozen=True)
class Outcome:
    """What one cell ends in, in the words of the page (see `cell.observe` for how they come about)."""

    agent: str
    """What the agent sees."""
    session: str
    """What became of the call, as its session tells."""
    operator: str
    """What moves in `/v1/stats`, `/readyz` and the log."""
    sent: str
    """How often the engine got the call, and whether it was stopped."""


Play = Callable[["Cell"], Awaitable[str]]
"""Arrange the fault, make the call, and return what the agent saw."""


@dataclass(frozen=True)
class Fault:
    """One row. Without an outcome for a kind of call the fault cannot happen to it."""

    name: str
    play: Play
    buffered: Outcome | None
    streamed: Outcome | None
    says: str = ""
    """What the error's text has to name, `{where}` being the engine's address."""
    port: Callable[[], AbstractContextManager[int]] | None = None
    """Opens the port that the target names instead of the engine's."""
    target: dict[str, Any] = field(default_factory=dict)
    capture: dict[str, Any] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)

    def outcome(self, mode: Mode) -> Outcome | None:
        return self.streamed if mode.streamed else self.buffered


def both(name: str, play: Play, outcome: Outcome, streamed: Outcome | None = None, **given: Any) -> Fault:
    """A row for every kind of call; `streamed` where a stream ends otherwise."""
    return Fault(name, play, outcome, streamed or outcome, **given)


def buffered(name: str, play: Play, outcome: Outcome, **given: Any) -> Fault:
    return Fault(name, play, outcome, None, **given)


def streamed(name: str, play: Play, outcome: Outcome, **given: Any) -> Fault:
    return Fault(name, play, None, outcome, **given)
