"""A simulator on a real socket, for the length of a `with`."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import uvicorn

from switchyard_py.simulator import SimulatorSettings, create_simulator

RunSimulator = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
"""Type of `running_simulator`."""


@asynccontextmanager
async def running_simulator(*, model: str = "tiny", **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a simulator with these settings; its `base_url` is the root of the engine."""
    app = create_simulator(SimulatorSettings(model=model, **settings))
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, ws="none")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    # Named as TCP, so that the event loop turns off Nagle's algorithm, which costs 40 ms a reply here.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        # The steps of `serve` and `shutdown` without their waits of a tenth of a second.
        await server.startup(sockets=[listener])
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            async with httpx.AsyncClient(base_url=url, timeout=20, trust_env=False) as client:
                yield client
        finally:
            for listening in server.servers:
                listening.close()
            async with asyncio.timeout(5):
                while server.server_state.connections or server.server_state.tasks:
                    for connection in list(server.server_state.connections):
                        connection.shutdown()
                    await asyncio.sleep(0.001)
