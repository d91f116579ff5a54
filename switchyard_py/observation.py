"""What an operator may know of one call: gathered on its way, told once when its answer is complete. Never content.

Times are seconds of a clock that only goes forward. What the proxy itself takes, its *overhead*, is the time since the
call arrived less the time in which it waited: for the rest of the request, for the engine (from handing it the request
to the head of its reply, and for each next part of the body), and for an agent that is slow to take what it was sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from switchyard_py.capture.call import Course
from switchyard_py.capture.ledger import OpenCall
from switchyard_py.errors import EngineRefused, Kind, SwitchyardError
from switchyard_py.rawjson import InvalidJSON, Slice, decode
from switchyard_py.store import State

log = logging.getLogger(__name__)

ANSWERED = "answered"
AGENT_GONE = "agent_gone"
CUT_SHORT = Kind.SHUTTING_DOWN.value.code

# Counts an engine may report, by the name they have here, and where they are in its `usage`.
_COUNTS = {
    "prompt": ("prompt_tokens",),
    "completion": ("completion_tokens",),
    "cached": ("prompt_tokens_details", "cached_tokens"),
    "reasoning": ("completion_tokens_details", "reasoning_tokens"),
}


class Waiting:
    """A stopwatch that runs inside `with`, in one place or in several at a time."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._since = 0.0
        self._places = 0

    def __enter__(self) -> None:
        if not self._places:
            self._since = time.perf_counter()
        self._places += 1

    def __exit__(self, *_: object) -> None:
        self._places -= 1
        if not self._places:
            self._seconds += time.perf_counter() - self._since

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return self._seconds + (time.perf_counter() - self._since if self._places else 0.0)


@dataclass(slots=True, eq=False)
class Observation:
    """One call. `listeners` are told when it is over."""

    dialect: str
    listeners: Sequence[Callable[[Observation], None]] = ()
    waiting: Waiting = field(default_factory=Waiting)
    session_id: str | None = None
    course: Course | None = None
    """None for a call that was refused before it was known where it goes."""
    call: OpenCall | None = None
    """None for a call that is in no account of its own."""
    unidentified: bool = False
    """On a captured route, without a session."""
    lost: bool = False
    """Sent although the store could not begin it."""
    replayed: bool = False
    """Answered from a record that an earlier agent did not get."""
    status: int | None = None
    """The HTTP status sent; None: the agent had gone."""
    outcome: str = ""
    """`answered`, `agent_gone`, `engine_<status>` for an engine's refusal, or the code of the error that was told."""
    invalid_reasons: Sequence[str] = ()
    usage: Slice | None = None
    """What the engine reported of a call that was recorded."""
    record_bytes: int = 0
    commit_seconds: float | None = None
    request_id: str = ""
    first_byte_seconds: float | None = None
    """Until the first byte of the answer's body was handed to the agent's connection."""
    first_byte_overhead: float = 0.0
    seconds: float = 0.0
    """Until the last byte was, or the agent was found gone."""
    overhead: float = 0.0
    tokens: Mapping[str, int] = field(default_factory=dict)
    """What the engine reported: `prompt`, `completion`, `cached` (of the prompt), `reasoning` (of the completion)."""
    _started: float = field(default_factory=time.perf_counter)
    _over: bool = False

    @property
    def overhead_so_far(self) -> float:
        return time.perf_counter() - self._started - self.waiting.seconds

    @property
    def fate(self) -> str:
        """The call's state in the account of its session, `replayed`, or "" for a call that is in no account.

        A mark that the store still refuses counts as made.
        """
        if self.replayed:
            return "replayed"
        if self.lost:
            return "lost"
        state = None if self.call is None else self.call.state
        if state is None:
            return ""
        answered = self.outcome == ANSWERED
        if state is State.COMMITTED and answered:
            return "invalid" if self.invalid_reasons else "valid"
        if state is State.LOST and answered:
            return "lost"
        return "undelivered" if state in (State.COMMITTED, State.UNDELIVERED) else "failed"

    def refused(self, error: SwitchyardError) -> None:
        """The agent is told of an error, or would be if it were there."""
        self.outcome = f"engine_{error.status}" if isinstance(error, EngineRefused) else error.code

    def committed(self, record: bytes, seconds: float) -> None:
        """A record was put in its place, or marked as lost, within so many seconds."""
        self.record_bytes = len(record)
        self.commit_seconds = seconds

    def first_byte(self) -> None:
        """The first part of the answer's body is about to be sent; later ones do not count."""
        if self.first_byte_seconds is None:
            self.first_byte_seconds = time.perf_counter() - self._started
            self.first_byte_overhead = self.overhead_so_far

    def end(self, request_id: str, outcome: str) -> None:
        """The call is over, with this outcome unless another is known. Only the first end counts."""
        if self._over:
            return
        self._over = True
        self.request_id = request_id
        self.outcome = self.outcome or outcome
        self.seconds = time.perf_counter() - self._started
        self.overhead = max(0.0, self.seconds - self.waiting.seconds)
        self.tokens = _token_counts(self.usage)
        for listener in self.listeners:
            try:
                listener(self)
            except Exception:
                # The end of an answer is waiting, and it is worth more.
                log.exception("call %s is not told of by a mistake in this program", request_id)


def _token_counts(usage: Slice | None) -> dict[str, int]:
    try:
        reported = decode(usage)
    except InvalidJSON:
        return {}
    counts = {}
    for name, path in _COUNTS.items():
        value = reported
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if type(value) is int and 0 <= value < 2**53:
            counts[name] = value
    return counts
