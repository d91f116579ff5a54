"""How an agent goes away or stands still, and when."""

import asyncio
import json
from collections.abc import Callable, Coroutine

from fault_matrix.cell import SESSION, Cell
from fault_matrix.fault import Play
from raw_agent import RawAgent
from running_proxy import HELLO
from scripted_engine import Exchange, chat

# More than the kernel and the proxy hold for an agent that does not read.
_PIECE = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"x" * 60_000)
GONE = "nothing more"


async def half_close(agent: RawAgent) -> None:
    """Send FIN and go on reading to the end."""
    await agent.half_close()
    await agent.read_to_end()
    await agent.leave()


Leave = Callable[[RawAgent], Coroutine[None, None, None]]


def while_waiting(leave: Leave) -> Play:
    """Before the first byte of the reply."""

    async def play(cell: Cell) -> str:
        cell.engine.reply(stall)
        agent = await _calling(cell)
        await cell.engine.until(lambda: cell.engine.started == 1)
        await leave(agent)
        return GONE

    return play


def in_mid_stream(leave: Leave) -> Play:
    """With the first words, or the first fragment of the arguments, on its side."""

    async def play(cell: Cell) -> str:
        cell.engine.reply(chat(cell.turn, stepped=True))
        agent = await _calling(cell)
        cell.engine.step(12 if cell.turn.calls else 4)
        await agent.read_until(b"arguments" if cell.turn.calls else b"two")
        await leave(agent)
        return GONE

    return play


def while_the_tail_is_held(leave: Leave) -> Play:
    """The engine is done, and the record is being written."""

    async def play(cell: Cell) -> str:
        async def hold(exchange: Exchange) -> None:
            cell.disk.hold()
            await chat(cell.turn)(exchange)

        cell.engine.reply(hold)
        agent = await _calling(cell)
        await cell.engine.until(lambda: cell.engine.completed == 1)
        leaving = asyncio.create_task(leave(agent))
        await asyncio.sleep(0.05)
        cell.disk.release()
        await leaving
        return GONE

    return play


def after_the_end(leave: Leave) -> Play:
    """With the last byte on its side."""

    async def play(cell: Cell) -> str:
        cell.engine.reply(chat(cell.turn))
        agent = await _calling(cell)
        await agent.read_until(b"[DONE]" if cell.mode.streamed else b'"metrics":null}')
        await leave(agent)
        return "its answer"

    return play


async def stops_reading(cell: Cell) -> str:
    """After the first words, while the engine goes on and on."""

    async def endless(exchange: Exchange) -> None:
        await exchange.stream_headers()
        while True:
            await exchange.send(_PIECE)

    cell.engine.reply(endless)
    agent = await _calling(cell)
    await agent.read_until(b"xxx")
    await cell.engine.until(lambda: cell.engine.aborted == 1, within=5)
    await agent.leave()
    return GONE


async def stops_sending(cell: Cell) -> str:
    """In the middle of its request."""
    agent = await RawAgent.connected(cell.running.port)
    body = json.dumps({**HELLO, "stream": cell.mode.streamed}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: proxy\r\nproxy_x_session_id: {SESSION}\r\n"
    await agent.send(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body[:-5])
    answer = await agent.read_to_end(within=5)
    assert answer.startswith(b"HTTP/1.1 408 ")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert cell.fault.says in error["message"]
    await agent.leave()
    return f"408 `{error['code']}`"


async def stall(exchange: Exchange) -> None:
    await exchange.stall()


async def _calling(cell: Cell) -> RawAgent:
    return await RawAgent.calling(cell.running.port, SESSION, stream=cell.mode.streamed)
