"""Connections to a server of ours."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
import uvloop
from raw_agent import RawAgent
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from switchyard_py.agent import PEER
from switchyard_py.connection import KEEP_ALIVE_SECONDS, MAX_HEAD_BYTES, ServerConfig

LIMIT = 0.2
MUCH = 6_000_000
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"

Scenario = Callable[[], Coroutine[Any, Any, None]]


def play(scenario: Scenario) -> None:
    """Run it on the loop that the server runs on; the tests of the proxy run on Python's own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


@asynccontextmanager
async def _served(
    app: ASGIApp, *, keep_alive: float = 10, stall: float = LIMIT
) -> AsyncIterator[tuple[int, ServerState]]:
    config = ServerConfig(_without_lifespan(app), agent_stall_seconds=stall, port=0)
    config.timeout_keep_alive = keep_alive  # type: ignore[assignment]
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield server.servers[0].sockets[0].getsockname()[1], server.server_state
    finally:
        for listening in server.servers:
            listening.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        await _until(lambda: not server.server_state.connections and not server.server_state.tasks)
        await server.lifespan.shutdown()


def _without_lifespan(app: ASGIApp) -> ASGIApp:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await app(scope, receive, send)
            return
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})

    return served


async def _until(condition: Callable[[], bool], within: float = 2.0) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)


def _answers(size: int, *headers: tuple[bytes, bytes]) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        length = (b"content-length", b"%d" % size)
        await send({"type": "http.response.start", "status": 200, "headers": [length, *headers]})
        await send({"type": "http.response.body", "body": b"x" * size})

    return app


def test_connections_are_kept_for_longer_than_clients_keep_them() -> None:
    config = ServerConfig(_answers(1), agent_stall_seconds=1)
    # httpx 5 s, aiohttp 15 s, AWS and nginx 60 s, Go 90 s, Azure 120 s.
    assert config.timeout_keep_alive == KEEP_ALIVE_SECONDS > 120


def test_an_idle_connection_is_kept_so_long_and_no_longer() -> None:
    async def scenario() -> None:
        async with _served(_answers(1), keep_alive=0.3) as (port, _):
            agent = await RawAgent.connected(port)
            for _ in range(3):
                await agent.send(GET)
                assert (await agent.read()).endswith(b"x")
                await asyncio.sleep(0.15)
            idle_since = time.monotonic()
            assert await agent.read() == b""
            assert time.monotonic() - idle_since < 1.0
            await agent.leave()

    play(scenario)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nhos"])
def test_a_connection_on_which_no_request_comes_is_closed(said: bytes) -> None:
    async def scenario() -> None:
        async with _served(_answers(1), keep_alive=0.2) as (port, _):
            agent = await RawAgent.connected(port)
            began = time.monotonic()
            await agent.send(said)
            assert await agent.read() == b""
            # uvloop's clock counts milliseconds, from the beginning of a turn.
            assert time.monotonic() - began >= 0.18
            await agent.leave()

    play(scenario)


def test_a_head_that_comes_slowly_is_waited_for() -> None:
    async def scenario() -> None:
        async with _served(_answers(1), keep_alive=0.4) as (port, _):
            agent = await RawAgent.connected(port)
            for start in range(0, len(GET), 6):
                await agent.send(GET[start : start + 6])
                await asyncio.sleep(0.1)
            assert (await agent.read()).endswith(b"x")
            await agent.leave()

    play(scenario)


@pytest.mark.parametrize("header", [(b"connection", b"close"), (b"connection", b"keep-alive")])
def test_an_answer_nobody_reads_is_dropped(header: tuple[bytes, bytes]) -> None:
    async def scenario() -> None:
        async with _served(_answers(MUCH, header)) as (port, state):
            agent = await RawAgent.connected(port)
            await agent.send(GET)
            await _until(lambda: state.total_requests == 1)
            await asyncio.sleep(LIMIT / 2)
            assert len(state.connections) == 1
            await _until(lambda: not state.connections, within=3 * LIMIT)
            await agent.leave()

    play(scenario)


def test_who_waits_to_send_learns_that_the_peer_stalled() -> None:
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await _nowait(receive))["type"] != "http.disconnect":
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
        seen.append(scope[PEER].stalled)

    async def scenario() -> None:
        async with _served(app) as (port, _):
            agent = await RawAgent.connected(port)
            await agent.send(GET)
            await _until(lambda: bool(seen))
            await agent.leave()

    play(scenario)
    assert seen == [True]


async def _nowait(receive: Receive) -> Any:
    waiting: Awaitable[Any] = receive()
    try:
        async with asyncio.timeout(0.001):
            return await waiting
    except TimeoutError:
        return {"type": "nothing"}


@pytest.mark.parametrize("how", ["leave", "reset", "half_close"])
def test_a_peer_that_goes_while_much_waits_for_it_is_seen_at_once(how: str) -> None:
    gone: list[float] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * MUCH, "more_body": True})
        await receive()
        gone.append(time.monotonic())
        assert scope[PEER].stalled is False

    async def scenario() -> None:
        async with _served(app, stall=30) as (port, state):
            agent = await RawAgent.connected(port)
            await agent.send(GET)
            await agent.read(10)
            went_at = time.monotonic()
            await getattr(agent, how)()
            await _until(lambda: not state.connections and bool(gone))
            assert gone[0] - went_at < 1.0
            await agent.leave()

    play(scenario)


# What Java's HTTP client sends with every request, and what a browser sends for a socket.
OFFERS = {
    "HTTP/2": b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n",
    "a socket": b"connection: Upgrade\r\nupgrade: websocket\r\n",
    "HTTP/2, the last request": b"connection: Upgrade\r\nupgrade: h2c\r\nconnection: close\r\n",
}
SENT = b'{"model": "policy_model"}'
BODIES = {
    "of known length": b"content-length: %d\r\n\r\n%b" % (len(SENT), SENT),
    "in chunks": b"transfer-encoding: chunked\r\n\r\n5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n"
    % (SENT[:5], len(SENT) - 5, SENT[5:]),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
def test_an_offer_of_another_protocol_is_ignored_and_the_request_served(
    offer: bytes, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"] == "/"
        parts, more = b"", True
        while more:
            message = await receive()
            parts, more = parts + message.get("body", b""), message.get("more_body", False)
        received.append(parts)
        await _answers(1)(scope, receive, send)

    request = b"POST / HTTP/1.1\r\nhost: x\r\n" + offer + body

    async def scenario() -> None:
        async with _served(app) as (port, _):
            for cut in range(len(request)):
                agent = await RawAgent.connected(port)
                await agent.send(request[:cut])
                await asyncio.sleep(0)
                await agent.send(request[cut:])
                assert (await agent.read()).startswith(b"HTTP/1.1 200")
                if b"close" not in offer:
                    await agent.send(request)  # what was the body is not taken for the next request
                    assert (await agent.read()).startswith(b"HTTP/1.1 200")
                await agent.leave()

    play(scenario)
    assert set(received) == {SENT}
    assert not caplog.records


def test_many_offers_at_once_are_each_served() -> None:
    offer = b"GET / HTTP/1.1\r\n" + OFFERS["HTTP/2"] + b"\r\n"

    async def scenario() -> None:
        async with _served(_answers(1)) as (port, state):
            agent = await RawAgent.connected(port)
            await agent.send(offer * 2000)
            await _until(lambda: state.total_requests == 2000, within=10)
            await agent.leave()

    play(scenario)


POST = b"POST / HTTP/1.1\r\nhost: x\r\n"
ENDLESS = {
    "an address": (b"GET /", b"x"),
    "a value": (b"GET / HTTP/1.1\r\nx: ", b"x"),
    "many fields": (b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
    "an offer": (b"GET / HTTP/1.1\r\n" + OFFERS["HTTP/2"] + b"x: ", b"x"),
    "fields after the body": (POST + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"x: y\r\n"),
    "the next request": (POST + b"content-length: 1\r\n\r\nx" + b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
}


@pytest.mark.parametrize(("begin", "more"), ENDLESS.values(), ids=ENDLESS)
def test_a_head_without_end_is_refused_and_not_kept(begin: bytes, more: bytes) -> None:
    async def scenario() -> None:
        async with _served(_reads_and_answers, stall=30) as (port, state):
            agent = await RawAgent.connected(port)
            with suppress(ConnectionError):
                await agent.send(begin + more * (2 * MAX_HEAD_BYTES // len(more)))
            await _until(lambda: not state.connections)
            await agent.leave()

    play(scenario)


def test_who_sends_too_large_a_head_is_told_the_limit() -> None:
    async def scenario() -> None:
        async with _served(_answers(1), stall=30) as (port, _):
            agent = await RawAgent.connected(port)
            await agent.send(b"GET / HTTP/1.1\r\nx: " + b"x" * MAX_HEAD_BYTES)
            assert f"larger than {MAX_HEAD_BYTES} bytes".encode() in await agent.read_to_end()
            await agent.leave()

    play(scenario)


def test_a_head_of_a_megabyte_is_served_and_a_body_is_no_head() -> None:
    head = POST + b"x: " + b"x" * 1_000_000 + b"\r\n"
    chunks = b"1\r\nx\r\n" * MAX_HEAD_BYTES

    async def scenario() -> None:
        async with _served(_reads_and_answers, stall=30) as (port, _):
            agent = await RawAgent.connected(port)
            for _ in range(3):  # each request has a limit of its own
                await agent.send(
                    head + b"content-length: %d\r\n\r\n" % (2 * MAX_HEAD_BYTES) + b"x" * 2 * MAX_HEAD_BYTES
                )
                assert (await agent.read(within=10)).startswith(b"HTTP/1.1 200")
            await agent.send(POST + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
            assert (await agent.read(within=20)).startswith(b"HTTP/1.1 200")
            await agent.leave()

    play(scenario)


async def _reads_and_answers(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await _answers(1)(scope, receive, send)
