"""Answers on the socket: JSON and event streams that stop working when the client leaves.

Server-sent events as vLLM writes them: one `data:` line an event, comment lines when it is silent for long, an error
event and `[DONE]` when the engine dies in the middle, `[DONE]` at the end.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import orjson
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from switchyard_py.simulator.errors import EngineError

_T = TypeVar("_T")

Chunk = Mapping[str, Any]


class ConnectionCut(Exception):
    """A fault closes the connection here."""


def encode_json(value: object) -> bytes:
    """Compact JSON; a lone surrogate is written as an escape."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of `work`, which is cancelled when the client goes away. Raises ClientDisconnect."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class JsonReply(Response):
    """A JSON reply; with `cut` the connection closes in the middle of the body."""

    media_type = "application/json"

    def __init__(self, body: object, status_code: int = 200, *, cut: bool = False) -> None:
        super().__init__(encode_json(body), status_code)
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply."""
        if not self._cut:
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body[: len(self.body) // 2], "more_body": True})


class EventStream(Response):
    """A stream of chunks as server-sent events.

    `chunks` may raise ConnectionCut, which ends the connection without a word, or EngineError, which becomes an event.
    `on_end` is called once, however the stream ended.
    """

    media_type = "text/event-stream"

    def __init__(
        self, chunks: AsyncGenerator[Chunk, None], keep_alive_interval: float | None, on_end: Callable[[], None]
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._chunks = chunks
        self._interval = keep_alive_interval
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; returning without its last part makes the server close the connection."""
        try:
            await until_disconnect(receive, self._send_all(send))
        except (ClientDisconnect, ConnectionCut):
            return
        finally:
            self._on_end()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self._chunks) as chunks:
            try:
                while (chunk := await self._next(chunks, send)) is not None:
                    await _send_data(send, encode_json(chunk))
            except EngineError as error:
                await _send_data(send, json.dumps(error.body).encode())
        await _send_data(send, b"[DONE]")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self, chunks: AsyncGenerator[Chunk, None], send: Send) -> Chunk | None:
        if self._interval is None:
            return await anext(chunks, None)
        waiting = asyncio.ensure_future(anext(chunks, None))
        try:
            while not (await asyncio.wait({waiting}, timeout=self._interval))[0]:
                await send({"type": "http.response.body", "body": b": keep-alive\n\n", "more_body": True})
            return waiting.result()
        finally:
            if waiting.cancel():
                await asyncio.wait({waiting})


async def _send_data(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": b"data: " + data + b"\n\n", "more_body": True})
