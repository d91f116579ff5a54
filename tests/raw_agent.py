"""An agent by hand: one connection that reads only when told to, and can be broken at will.

agent = await RawAgent.calling(running.port, "s", stream=True)
await agent.read_until(b"[DONE]")
await agent.reset()                                     # or leave(), half_close()
"""

import asyncio
import json
import socket
import struct
from typing import Self

from running_proxy import HELLO

# What the kernel takes for an agent that does not read; as small as lets the tests be quick.
RECEIVE_BYTES = 64 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class RawAgent:
    """Reads nothing by itself: what it does not ask for stays with the sender."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._seen = b""

    @classmethod
    async def connected(cls, port: int) -> Self:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        return cls(connection)

    @classmethod
    async def calling(cls, port: int, session: str | None, **fields: object) -> Self:
        """One that has sent a model call; `fields` are laid over the request."""
        agent = await cls.connected(port)
        body = json.dumps({**HELLO, **fields})
        lines = ["POST /v1/chat/completions HTTP/1.1", "host: proxy", f"content-length: {len(body)}"]
        if session is not None:
            lines.append(f"proxy_x_session_id: {session}")
        await agent.send("\r\n".join([*lines, "", body]).encode())
        return agent

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def read(self, size: int = 65536, within: float = 2.0) -> bytes:
        """Some bytes, at most `size`; b"" at the end. Raises ConnectionResetError, TimeoutError."""
        async with asyncio.timeout(within):
            return await asyncio.get_running_loop().sock_recv(self._socket, size)

    async def read_until(self, mark: bytes, within: float = 2.0) -> bytes:
        """Everything read so far, once `mark` is in it."""
        while mark not in self._seen:
            piece = await self.read(within=within)
            assert piece, self._seen
            self._seen += piece
        return self._seen

    async def read_to_end(self, within: float = 2.0) -> bytes:
        """Everything until the other side closes."""
        while piece := await self.read(within=within):
            self._seen += piece
        return self._seen

    async def leave(self) -> None:
        """Close (FIN)."""
        self._socket.close()

    async def half_close(self) -> None:
        """Send FIN, and stay to read."""
        self._socket.shutdown(socket.SHUT_WR)

    async def reset(self) -> None:
        """Close with a reset (RST)."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._socket.close()
