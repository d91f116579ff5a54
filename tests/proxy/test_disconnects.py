"""An agent that goes away: the generation stops, and the account tells what became of the call."""

import asyncio
import json
import time

import pytest
from raw_agent import RawAgent
from running_proxy import StartProxy
from scripted_engine import Exchange, ScriptedEngine, Turn, chat, sse_reply

from switchyard_py.store import Filesystem

TURN = Turn(text="one two three four five")
HOW = pytest.mark.parametrize("how", ["leave", "reset", "half_close"])
BOTH = pytest.mark.parametrize("stream", [False, True])


async def _aborts_within_a_second(engine: ScriptedEngine) -> None:
    left_at = time.monotonic()
    await engine.until(lambda: engine.aborted == 1, within=1.0)
    assert time.monotonic() - left_at < 1.0
    assert (engine.started, engine.completed) == (1, 0)


async def _stall(exchange: Exchange) -> None:
    await exchange.stall()


@HOW
@BOTH
async def test_before_the_engine_begins_the_generation_stops(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool, how: str
) -> None:
    running = await proxy()
    engine.reply(_stall)
    agent = await RawAgent.calling(running.port, "s", stream=stream)
    await engine.until(lambda: engine.started == 1)
    await getattr(agent, how)()
    await _aborts_within_a_second(engine)
    await running.until_fates("s", {"failed": 1})
    await running.until_counted("agent_gone", 1)
    await agent.leave()


@HOW
async def test_a_large_request_whose_agent_goes_stops_the_generation(
    proxy: StartProxy, engine: ScriptedEngine, how: str
) -> None:
    running = await proxy()
    engine.reply(_stall)
    # So much of it at once that the server stops reading for a moment.
    messages = [{"role": "user", "content": "x" * 3_000_000}]
    agent = await RawAgent.calling(running.port, "s", messages=messages)
    await engine.until(lambda: engine.started == 1)
    await getattr(agent, how)()
    await _aborts_within_a_second(engine)
    await running.until_fates("s", {"failed": 1})
    await agent.leave()


@HOW
async def test_before_the_first_token_the_generation_stops(proxy: StartProxy, engine: ScriptedEngine, how: str) -> None:
    running = await proxy()
    engine.reply(sse_reply([], done=False, then="stall"))
    agent = await RawAgent.calling(running.port, "s", stream=True)
    await agent.read_until(b"\r\n\r\n")
    await getattr(agent, how)()
    await _aborts_within_a_second(engine)
    await running.until_fates("s", {"failed": 1})
    (file,) = running.files(".failed")
    assert json.loads(file.read_bytes())["seen"] is None
    await agent.leave()


@HOW
async def test_in_mid_stream_the_generation_stops(proxy: StartProxy, engine: ScriptedEngine, how: str) -> None:
    running = await proxy()
    engine.reply(chat(TURN, stepped=True))
    agent = await RawAgent.calling(running.port, "s", stream=True)
    engine.step(3)
    await agent.read_until(b'"content":" "')
    await getattr(agent, how)()
    await _aborts_within_a_second(engine)
    await running.until_fates("s", {"failed": 1})
    (file,) = running.files(".failed")
    failed = json.loads(file.read_bytes())
    assert failed["reason"] == "agent_gone"
    assert failed["seen"]["generation_token_ids"] == TURN.token_ids[:2]
    assert await running.records("s", include="all") == []
    await agent.leave()


@HOW
async def test_while_its_tool_call_is_held_the_generation_stops(
    proxy: StartProxy, engine: ScriptedEngine, how: str
) -> None:
    running = await proxy()
    turn = Turn(text="well", tool_calls=[("run", "{}")])
    engine.reply(chat(turn, stepped=True))
    agent = await RawAgent.calling(running.port, "s", stream=True)
    # All tokens, and not the end behind them: the call is complete, and the agent has not been shown it.
    engine.step(1 + len(turn.tokens))
    await agent.read_until(b'"name":"run"')
    await getattr(agent, how)()
    await _aborts_within_a_second(engine)
    await running.until_fates("s", {"failed": 1})
    await agent.leave()


async def test_with_another_request_sent_ahead_the_generation_stops(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(Turn(text="one " * 200), gap_seconds=0.02))
    agent = await RawAgent.calling(running.port, "s", stream=True)
    await agent.send(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
    await agent.read_until(b'"content":"one"')
    await agent.reset()
    await _aborts_within_a_second(engine)
    await running.until_fates("s", {"failed": 1})


async def test_before_its_body_is_whole_it_is_no_call(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    agent = await RawAgent.connected(running.port)
    await agent.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
    await asyncio.sleep(0.02)
    await agent.leave()
    await asyncio.sleep(0.02)
    assert engine.generations == []
    assert (await running.stats())["ledger"]["begun"] == 0


@BOTH
async def test_an_uncaptured_generation_stops_as_well(proxy: StartProxy, engine: ScriptedEngine, stream: bool) -> None:
    running = await proxy()
    engine.reply(chat(TURN, stepped=True) if stream else _stall)
    agent = await RawAgent.calling(running.port, None, stream=stream)
    await engine.until(lambda: engine.started == 1)
    if stream:
        engine.step(2)
        await agent.read_until(b'"content":"one"')
    await agent.leave()
    await _aborts_within_a_second(engine)


class _SlowStore(Filesystem):
    """Takes 0.2 s for each file of a kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def rename(self, source: str, target: str) -> None:
        if target.endswith(self._kind):
            time.sleep(0.2)
        super().rename(source, target)


@BOTH
async def test_while_its_call_begins_nothing_is_sent(proxy: StartProxy, engine: ScriptedEngine, stream: bool) -> None:
    running = await proxy(filesystem=_SlowStore(".open"))
    agent = await RawAgent.calling(running.port, "s", stream=stream)
    await asyncio.sleep(0.05)
    await agent.leave()
    await running.until_fates("s", {"failed": 1})
    assert engine.generations == []


@HOW
@BOTH
async def test_while_its_record_is_written_the_call_becomes_undelivered(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool, how: str
) -> None:
    running = await proxy(filesystem=_SlowStore(".json"))
    engine.reply(chat(TURN))
    agent = await RawAgent.calling(running.port, "s", stream=stream)
    await engine.until(lambda: engine.completed == 1)
    await asyncio.sleep(0.05)
    await getattr(agent, how)()
    await running.until_fates("s", {"undelivered": 1})
    assert await running.records("s") == []
    (record,) = await running.records("s", include="all")
    assert record["generation_token_ids"] == TURN.token_ids
    assert record["is_valid"] is True
    await agent.leave()


@HOW
@BOTH
async def test_right_after_the_tail_the_answer_is_delivered(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool, how: str
) -> None:
    running = await proxy()
    engine.reply(chat(TURN))
    agent = await RawAgent.calling(running.port, "s", stream=stream)
    await agent.read_until(b"[DONE]" if stream else b'"usage"')
    await getattr(agent, how)()
    await asyncio.sleep(0.05)
    assert await running.fates("s") == {"valid": 1}
    await running.until_counted("agent_gone", 0)
    await agent.leave()
