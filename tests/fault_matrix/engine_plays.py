"""How an engine goes wrong: each a reply to one request, given what the model would have said."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from fault_matrix.cell import Cell
from fault_matrix.fault import Play
from scripted_engine import DONE, Exchange, Script, Turn, chat, chat_body, chat_events, json_reply

Reply = Callable[[Exchange, Turn], Awaitable[None]]
Break = Literal["close", "reset", "stall", "end"]

ERROR = {"error": {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}}


def answering(*replies: Reply, warm: bool = False) -> Play:
    """Reply so, each time the call comes; `warm`: over a connection that has carried a call before."""

    async def play(cell: Cell) -> str:
        if warm:
            await cell.warm_up()
        cell.engine.reply(*(_of_turn(reply, cell.turn) for reply in replies))
        return await cell.call()

    return play


def accepting(how: Literal["close", "reset"]) -> Play:
    """Take connections and end them at once."""

    async def play(cell: Cell) -> str:
        cell.engine.accepting = how
        seen = await cell.call()
        cell.engine.accepting = "serve"
        return seen

    return play


async def calling(cell: Cell) -> str:
    """The address of the target is the fault."""
    return await cell.call()


async def stopped(cell: Cell) -> str:
    await cell.engine.stop()
    seen = await cell.call()
    await cell.engine.start()
    return seen


async def restarting(cell: Cell) -> str:
    """Back when the call has been tried twice."""
    await cell.engine.stop()
    cell.engine.reply(chat(cell.turn))
    call = asyncio.create_task(cell.call())
    while not (await cell.running.stats())["repeated"]:
        await asyncio.sleep(0.005)
    await cell.engine.start()
    return await call


async def well(exchange: Exchange, turn: Turn) -> None:
    await chat(turn)(exchange)


def fixed(script: Script) -> Reply:
    """Whatever the model would have said."""
    return lambda exchange, _: script(exchange)


def refusing(status: int, *, after: str | None = None, body: object = ERROR) -> Reply:
    return fixed(json_reply(body, status, {} if after is None else {"retry-after": after}))


def saying(body: object) -> Reply:
    """Status 200 and this instead of an answer, whether a stream was asked for or not."""
    return fixed(json_reply(body))


def raw(data: bytes, *, then: Break = "close") -> Reply:
    """These bytes instead of HTTP."""

    async def reply(exchange: Exchange, _: Turn) -> None:
        await exchange.raw(data)
        await _end(exchange, then)

    return reply


def silent(then: Break) -> Reply:
    return raw(b"", then=then)


async def dripping(exchange: Exchange, _: Turn) -> None:
    """A head that comes a byte at a time and never ends."""
    await exchange.raw(b"HTTP/1.1 200 OK\r\nx-slow: ")
    while True:
        await exchange.raw(b"a")
        await exchange.pause(0.02)


async def trickling(exchange: Exchange, turn: Turn) -> None:
    """A body that goes on and never ends."""
    await _begin(exchange, _pieces(exchange, turn)[:4])
    while True:
        await exchange.send(b": still here\n\n" if _streams(exchange) else b" ")
        await exchange.pause(0.02)


def cut(where: Literal["middle", "end"], then: Break, *extra: bytes | dict[str, Any]) -> Reply:
    """Half of the answer, or all but its finish; after it `extra` events; then what comes instead of the rest."""

    async def reply(exchange: Exchange, turn: Turn) -> None:
        pieces = _pieces(exchange, turn)
        length = len(pieces) // 2
        if where == "end":
            length = next(index for index, piece in enumerate(pieces) if b'"finish_reason":"' in piece)
        await _begin(exchange, pieces[:length], [_event(item) for item in extra])
        if then == "reset":
            await exchange.pause(0.02)  # or it would overtake what is on its way
        await _end(exchange, then)

    return reply


async def cut_in_chunk(exchange: Exchange, turn: Turn) -> None:
    """The connection ends within one chunk of the transfer encoding."""
    pieces = _pieces(exchange, turn)
    await _begin(exchange, pieces[: len(pieces) // 2])
    await exchange.raw(b"40\r\ndata: {")
    exchange.close()


def altered(**choice: Any) -> Reply:
    """A whole buffered answer, or the same as a stream's only chunk of tokens, with fields of the choice replaced."""

    async def reply(exchange: Exchange, turn: Turn) -> None:
        body = chat_body(exchange.request, turn)
        body["choices"][0] |= choice
        if not _streams(exchange):
            await exchange.json(body)
            return
        message = body["choices"][0].pop("message")
        calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls", []))]
        body["choices"][0]["delta"] = {"content": message["content"], **({"tool_calls": calls} if calls else {})}
        await _begin(exchange, [_event(body), DONE])

    return reply


def as_stream(streams: bool) -> Reply:
    """The answer in the form that was not asked for."""

    async def reply(exchange: Exchange, turn: Turn) -> None:
        if streams:
            await exchange.stream_headers()
            await exchange.send(b"".join([*chat_events(exchange.request, turn), DONE]))
        else:
            await exchange.json(chat_body(exchange.request, turn))

    return reply


def late(seconds: float, reply: Reply) -> Reply:
    async def later(exchange: Exchange, turn: Turn) -> None:
        await exchange.pause(seconds)
        await reply(exchange, turn)

    return later


def _of_turn(reply: Reply, turn: Turn) -> Script:
    async def script(exchange: Exchange) -> None:
        await reply(exchange, turn)

    return script


def _streams(exchange: Exchange) -> bool:
    return bool(exchange.request.json.get("stream"))


def _pieces(exchange: Exchange, turn: Turn) -> list[bytes]:
    """The answer in pieces: the events of a stream, or a buffered body byte by byte up to its finish reason."""
    if _streams(exchange):
        return [*chat_events(exchange.request, turn), DONE]
    body = json.dumps(chat_body(exchange.request, turn), separators=(",", ":")).encode()
    head, mark, rest = body.partition(b'"finish_reason":"')
    return [*(bytes([byte]) for byte in head), mark + rest]


async def _begin(exchange: Exchange, *pieces: list[bytes]) -> None:
    kind = "text/event-stream; charset=utf-8" if _streams(exchange) else "application/json"
    await exchange.headers(200, {"content-type": kind})
    await exchange.send(b"".join(piece for some in pieces for piece in some))


async def _end(exchange: Exchange, how: Break) -> None:
    match how:
        case "close":
            exchange.close()
        case "reset":
            exchange.reset()
        case "stall":
            await exchange.stall()


def _event(item: bytes | dict[str, Any]) -> bytes:
    return item if isinstance(item, bytes) else b"data: " + json.dumps(item).encode() + b"\n\n"
