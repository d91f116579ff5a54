"""Servers end in order, whatever ends the block."""

import asyncio
import socket

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from switchyard_py.demo.stage import serving


class Application:
    """Says "here" and remembers that it was closed, which takes a moment."""

    closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await asyncio.sleep(0.1)
            self.closed = True
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})


async def test_serves_during_the_block() -> None:
    application = Application()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with serving(application, listener) as url, httpx.AsyncClient(trust_env=False, verify=False) as client:
            assert (await client.get(url)).text == "here"
        assert application.closed


@pytest.mark.parametrize("after", [0.0, 0.15], ids=["in the block", "while it closes"])
async def test_a_cancelled_block_closes_in_order(after: float) -> None:
    application, left = Application(), asyncio.Event()

    async def block(listener: socket.socket) -> None:
        async with serving(application, listener):
            left.set()
            await asyncio.sleep(0 if after else 60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(block(listener))
        await left.wait()
        await asyncio.sleep(after)
        assert not application.closed
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert application.closed
