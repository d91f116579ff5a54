"""Which calls the end of the grace interrupts, and which it leaves alone."""

import asyncio
from typing import Any

import pytest

from switchyard_py.agent import PEER, Agent, AgentGone, Peer
from switchyard_py.errors import ShuttingDown
from switchyard_py.lifecycle import RunningCalls
from switchyard_py.observation import Observation


class Connection:
    """An agent's connection that says nothing more once it has sent its body."""

    def __init__(self) -> None:
        self.peer = Peer()
        scope = {"type": "http", "headers": [], PEER: self.peer}
        self.agent = Agent(scope, self._receive, self._send, Observation("chat"))

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def _send(self, _: Any) -> None:
        pass


async def test_a_wait_for_the_engine_is_interrupted_and_other_work_is_finished() -> None:
    calls, finished = RunningCalls(), asyncio.Event()
    waiting, recording = Connection().agent, Connection().agent

    async def wait() -> None:
        with calls.running(waiting), waiting.present():
            await asyncio.Event().wait()

    async def record() -> str:
        with calls.running(recording):
            await finished.wait()
            return "recorded"

    tasks = [asyncio.create_task(wait()), asyncio.create_task(record())]
    await asyncio.sleep(0)
    assert calls.count == 2
    calls.drain()
    calls.end("no time left")
    with pytest.raises(ShuttingDown, match="no time left"):
        await tasks[0]
    assert calls.count == 1
    finished.set()
    assert await tasks[1] == "recorded"
    assert calls.count == 0
    assert not tasks[0].cancelled()


async def test_a_call_that_comes_to_its_wait_later_is_interrupted_there() -> None:
    calls, agent = RunningCalls(), Connection().agent
    with calls.running(agent):
        calls.end("no time left")
        with pytest.raises(ShuttingDown), agent.present():
            raise AssertionError


async def test_none_begins_after_the_drain_has() -> None:
    calls = RunningCalls()
    calls.drain()
    with pytest.raises(ShuttingDown), calls.running(Connection().agent):
        raise AssertionError
    assert calls.count == 0


@pytest.mark.parametrize("first", ["the agent goes", "the end"])
async def test_an_agent_that_goes_at_the_end_is_interrupted_once(first: str) -> None:
    calls, connection = RunningCalls(), Connection()
    agent = connection.agent

    async def wait() -> None:
        with calls.running(agent):
            await agent.read_body(10, 5)
            with agent.present():
                await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0.01)
    if first == "the end":
        calls.end("no time left")
        connection.peer.leave()
    else:
        connection.peer.leave()
        calls.end("no time left")
    with pytest.raises(ShuttingDown if first == "the end" else AgentGone):
        await task
    await asyncio.sleep(0.01)
    assert agent.gone
    agent.close()
    assert not connection.peer.watchers
