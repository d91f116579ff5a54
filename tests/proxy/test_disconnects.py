"""An agent that goes away: the generation stops, and the account tells what became of the call."""

import asyncio
import json
import socket
import struct
import time

import pytest
from running_proxy import HELLO, RunningProxy, StartProxy
from scripted_engine import Exchange, ScriptedEngine, Turn, chat

from switchyard_py.store import Filesystem

TURN = Turn(text="one two three four five")


class _Connection:
    """An agent's connection, to be broken at will."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def calling(cls, running: RunningProxy, session: str | None, **fields: object) -> "_Connection":
        connection = cls(*await asyncio.open_connection("127.0.0.1", running.port))
        body = json.dumps({**HELLO, **fields})
        lines = ["POST /v1/chat/completions HTTP/1.1", "host: proxy", f"content-length: {len(body)}"]
        if session is not None:
            lines.append(f"proxy_x_session_id: {session}")
        connection._writer.write("\r\n".join([*lines, "", body]).encode())
        return connection

    async def read_until(self, mark: bytes) -> bytes:
        async with asyncio.timeout(2):
            return await self._reader.readuntil(mark)

    async def leave(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await self.leave()


async def _aborts_within_a_second(engine: ScriptedEngine) -> None:
    left_at = time.monotonic()
    await engine.until(lambda: engine.aborted == 1, within=1.0)
    assert time.monotonic() - left_at < 1.0
    assert (engine.started, engine.completed) == (1, 0)


@pytest.mark.parametrize("how", ["leave", "reset"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_that_leaves_before_the_first_byte_stops_the_generation(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool, how: str
) -> None:
    async def think(exchange: Exchange) -> None:
        await exchange.stall()

    running = await proxy()
    engine.reply(think)
    agent = await _Connection.calling(running, "s", stream=stream)
    await engine.until(lambda: engine.started == 1)
    await getattr(agent, how)()
    await _aborts_within_a_second(engine)
    await running.until_fates("s", {"failed": 1})
    assert (await running.stats())["agent_gone"] == 1


@pytest.mark.parametrize("how", ["leave", "reset"])
async def test_an_agent_that_leaves_in_mid_stream_stops_the_generation(
    proxy: StartProxy, engine: ScriptedEngine, how: str
) -> None:
    running = await proxy()
    engine.reply(chat(TURN, stepped=True))
    agent = await _Connection.calling(running, "s", stream=True)
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


async def test_an_agent_that_leaves_before_its_body_is_whole_is_no_call(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    _, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
    await asyncio.sleep(0.02)
    writer.close()
    await writer.wait_closed()
    await asyncio.sleep(0.02)
    assert engine.generations == []
    assert (await running.stats())["ledger"]["begun"] == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_an_uncaptured_generation_stops_as_well(proxy: StartProxy, engine: ScriptedEngine, stream: bool) -> None:
    running = await proxy()
    engine.reply(chat(TURN, stepped=True) if stream else _stall)
    agent = await _Connection.calling(running, None, stream=stream)
    await engine.until(lambda: engine.started == 1)
    if stream:
        engine.step(2)
        await agent.read_until(b'"content":"one"')
    await agent.leave()
    await _aborts_within_a_second(engine)


async def _stall(exchange: Exchange) -> None:
    await exchange.stall()


class _SlowCommit(Filesystem):
    def rename(self, source: str, target: str) -> None:
        if target.endswith(".json"):
            time.sleep(0.2)
        super().rename(source, target)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_that_leaves_while_its_record_is_written_makes_it_undelivered(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool
) -> None:
    running = await proxy(filesystem=_SlowCommit())
    engine.reply(chat(TURN))
    agent = await _Connection.calling(running, "s", stream=stream)
    await engine.until(lambda: engine.completed == 1)
    await asyncio.sleep(0.05)
    await agent.leave()
    await running.until_fates("s", {"undelivered": 1})
    assert await running.records("s") == []
    (record,) = await running.records("s", include="all")
    assert record["generation_token_ids"] == TURN.token_ids
    assert record["is_valid"] is True


async def test_an_agent_that_leaves_after_the_tail_has_been_served(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(TURN))
    agent = await _Connection.calling(running, "s", stream=True)
    await agent.read_until(b"[DONE]")
    await agent.reset()
    await asyncio.sleep(0.05)
    assert await running.fates("s") == {"valid": 1}
