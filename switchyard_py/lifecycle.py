"""The model calls of a process: whether new ones are taken, and the end of those that run."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from switchyard_py.agent import Agent
from switchyard_py.errors import ShuttingDown


class RunningCalls:
    """Calls are taken until `drain`, and those that run are left alone until `end`."""

    def __init__(self) -> None:
        self.draining = False
        self.ended = False
        self._agents: set[Agent] = set()

    @property
    def count(self) -> int:
        """How many run."""
        return len(self._agents)

    @property
    def streams(self) -> int:
        """How many of them have begun to be answered."""
        return sum(agent.begun for agent in self._agents)

    @contextmanager
    def running(self, agent: Agent) -> Iterator[None]:
        """Count the agent's call as running during the block.

        Raises:
            ShuttingDown: no calls are taken any more.
        """
        if self.draining:
            raise ShuttingDown("The proxy is shutting down and takes no new calls. Nothing was sent: call again.")
        self._agents.add(agent)
        try:
            yield
        finally:
            self._agents.discard(agent)

    def drain(self) -> None:
        """Take no more calls."""
        self.draining = True

    def end(self, why: str) -> None:
        """Tell every agent that still waits for its engine `why` its call ends now.

        A call whose answer is complete is not interrupted: it is being recorded and gets its tail.
        """
        self.ended = True
        for agent in self._agents:
            agent.interrupt(partial(ShuttingDown, why))
