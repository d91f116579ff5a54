"""Comment lines in a stream that is silent: clients and load balancers give up on a connection after a minute or two.

Streams are silent while a prompt waits in the engine's queue, while a tool call is held back, while a record is
written. An agent is sent whole events only, so between two parts is between two events.
"""

import asyncio
from types import TracebackType

from switchyard_py.agent import Agent

# An agent that gets its headers at once still needs a distance between its beats.
DEFAULT_SECONDS = 15.0


class Heartbeats:
    """While the `with` block runs, a beat whenever the agent was sent nothing for `after` seconds; None: none.

    The first one begins the stream where it has not begun, so an engine's refusal keeps its status until then.
    """

    def __init__(self, agent: Agent, after: float | None) -> None:
        self._agent = agent
        self._after = after
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        if self._after is not None:
            self._loop = asyncio.get_running_loop()
            self._first_at = self._loop.time() + self._after
            self._interval = self._after or DEFAULT_SECONDS
            self._timer = self._loop.call_at(self._first_at, self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        due = self._agent.sent_at + self._interval if self._agent.begun else self._first_at
        if due <= now:
            self._beating = self._loop.create_task(self._agent.beat())
            due = now + self._interval
        self._timer = self._loop.call_at(due, self._look)
