"""How an agent goes away, and when."""

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Self

from fault_matrix.cell import SESSION, Cell
from fault_matrix.fault import Play
from running_proxy import HELLO
from scripted_engine import Exchange, chat

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
GONE = "nothing more"


class LeavingAgent:
    """The connection of one call, to be broken at will."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def calling(cls, cell: Cell) -> Self:
        agent = cls(*await asyncio.open_connection("127.0.0.1", cell.running.port))
        body = json.dumps({**HELLO, "stream": cell.mode.streamed})
        head = ["POST /v1/chat/completions HTTP/1.1", "host: proxy", f"content-length: {len(body)}"]
        agent._writer.write("\r\n".join([*head, f"proxy_x_session_id: {SESSION}", "", body]).encode())
        return agent

    async def read_until(self, mark: bytes) -> None:
        async with asyncio.timeout(2):
            await self._reader.readuntil(mark)

    async def leave(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def reset(self) -> None:
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        await self.leave()

    async def half_close(self) -> None:
        """Send FIN and go on reading to the end."""
        self._writer.write_eof()
        async with asyncio.timeout(2):
            await self._reader.read()
        await self.leave()


Leave = Callable[[LeavingAgent], Coroutine[None, None, None]]


def while_waiting(leave: Leave) -> Play:
    """Before the first byte of the reply."""

    async def play(cell: Cell) -> str:
        cell.engine.reply(stall)
        agent = await LeavingAgent.calling(cell)
        await cell.engine.until(lambda: cell.engine.started == 1)
        await leave(agent)
        return GONE

    return play


def in_mid_stream(leave: Leave) -> Play:
    """With the first words, or the first fragment of the arguments, on its side."""

    async def play(cell: Cell) -> str:
        cell.engine.reply(chat(cell.turn, stepped=True))
        agent = await LeavingAgent.calling(cell)
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
        agent = await LeavingAgent.calling(cell)
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
        agent = await LeavingAgent.calling(cell)
        await agent.read_until(b"[DONE]" if cell.mode.streamed else b'"metrics":null}')
        await leave(agent)
        return "its answer"

    return play


async def stall(exchange: Exchange) -> None:
    await exchange.stall()
