import asyncio
import contextlib
import gc
import os
import time
import traceback
from collections.abc import AsyncIterator
from typing import Any

import pytest
from scripted_engine import Exchange, ScriptedEngine, Turn, chat, json_reply, refused_port, sse_reply, unanswered_port

from switchyard_py.upstream import (
    AiohttpUpstream,
    BodyTooLarge,
    BrokenReply,
    NotConnected,
    Reply,
    SentNoReply,
    UpstreamError,
    UpstreamRequest,
    UpstreamTimeout,
)
from switchyard_py.upstream.client import READ_BUFFER_BYTES
from switchyard_py.upstream.connection import EngineConnection
from switchyard_py.upstream.connection import Exchange as ConnectionExchange

SECRET = "sk-canary"
HEADERS = (("authorization", f"Bearer {SECRET}"), ("content-type", "application/json"), ("accept-encoding", "identity"))


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with ScriptedEngine() as engine:
        yield engine


@pytest.fixture
async def upstream() -> AsyncIterator[AiohttpUpstream]:
    upstream = AiohttpUpstream()
    yield upstream
    await upstream.close()


def request(url: str, **changes: Any) -> UpstreamRequest:
    return UpstreamRequest(**{"method": "POST", "url": url, "headers": HEADERS, "body": b'{"a":1}', **changes})


def call(engine: ScriptedEngine, **changes: Any) -> UpstreamRequest:
    return request(f"{engine.base_url}/chat/completions", **changes)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def collect(reply: Reply) -> bytes:
    return b"".join([piece async for piece in reply.chunks()])


async def test_no_bytes_are_no_byte_of_a_reply() -> None:
    # aiohttp feeds a connection b"" when the reader of the reply before resumes it.
    connection = EngineConnection(asyncio.get_running_loop())
    connection.exchange = exchange = ConnectionExchange(lambda: None)
    connection.data_received(b"")
    assert not exchange.got_bytes
    connection.exchange = None
    connection.data_received(b"")


# What is sent


async def test_sends_the_given_headers_and_no_others(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.default(json_reply({"ok": 1}, headers={"X-Engine": "one", "set-cookie": "a=b"}))
    for _ in range(2):
        reply = await upstream.send(request(f"http://localhost:{engine.port}/v1/chat/completions"))
        assert (reply.status, reply.headers["x-engine"]) == (200, "one")
        assert await reply.read(1000) == b'{"ok":1}'
    for received in engine.requests:
        assert received.headers == [("Host", f"localhost:{engine.port}"), *HEADERS, ("Content-Length", "7")]
        assert received.body == b'{"a":1}'
        assert received.path == "/v1/chat/completions"


async def test_ignores_proxy_variables(
    engine: ScriptedEngine, upstream: AiohttpUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused_port() as port:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        engine.reply(json_reply({}))
        assert (await (await upstream.send(call(engine))).read(10)) == b"{}"


async def test_does_not_follow_redirects(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.reply(json_reply({}, 307, {"location": f"{engine.url}/elsewhere"}))
    reply = await upstream.send(call(engine))
    await reply.read(10)
    assert (reply.status, len(engine.requests)) == (307, 1)


async def test_does_not_decompress(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.reply(json_reply(b"not gzip", headers={"content-encoding": "gzip"}))
    assert await (await upstream.send(call(engine))).read(10) == b"not gzip"


async def test_credentials_of_the_url_yield_to_a_header(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.default(json_reply({}))
    url = f"http://user:pass@127.0.0.1:{engine.port}/v1"
    for headers in (HEADERS, ()):
        await (await upstream.send(request(url, headers=headers))).read(10)
    assert [received.header("authorization") for received in engine.requests] == [
        f"Bearer {SECRET}",
        "Basic dXNlcjpwYXNz",
    ]


async def test_refuses_a_header_with_a_line_break(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    with pytest.raises(ValueError, match="header") as caught:
        await upstream.send(call(engine, headers=[("x-a", f"{SECRET}\r\nx-b: c")]))
    assert SECRET not in str(caught.value)
    assert engine.requests == []


async def test_a_large_body_is_sent_in_slices(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    """In one piece aiohttp would warn that it holds up the loop, and warnings are errors."""
    engine.default(json_reply({}))
    body = os.urandom(1 << 20) * 20
    assert await (await upstream.send(call(engine, body=body))).read(10) == b"{}"
    assert engine.requests[0].body == body


async def test_has_no_pool_limit(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.default(sse_reply([b"x"], done=False, then="stall"))
    replies = await asyncio.gather(*(upstream.send(call(engine)) for _ in range(150)))
    assert (len(replies), engine.running) == (150, 150)
    for reply in replies:
        reply.close()
    await engine.until(lambda: engine.aborted == 150)


# What is read


async def test_chunks_arrive_when_they_are_sent(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    events = [b"data: %d\n\n" % number for number in range(20)]
    engine.reply(sse_reply(events, done=False, stepped=True))
    reply = await upstream.send(call(engine))
    pieces = reply.chunks()
    for event in events:
        engine.step()
        assert await anext(pieces) == event
    assert [piece async for piece in pieces] == []


async def test_read_refuses_a_body_beyond_its_limit(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.reply(
        json_reply(b"x" * 101), sse_reply([b"x" * 60, b"x" * 60], done=False, then="stall"), json_reply(b"x" * 100)
    )
    for _ in range(2):
        with pytest.raises(BodyTooLarge, match="100 bytes"):
            await (await upstream.send(call(engine))).read(100)
    assert len(await (await upstream.send(call(engine))).read(100)) == 100
    await engine.until(lambda: engine.aborted == 1)


async def test_accepts_large_heads(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    many = {f"x-{number}": "v" * 100 for number in range(500)}
    engine.reply(json_reply({}, headers=many), json_reply({}, headers={"x-long": "v" * 60_000}))
    first = await upstream.send(call(engine))
    assert first.headers["X-499"] == "v" * 100
    await first.read(10)
    second = await upstream.send(call(engine))
    assert len(second.headers["x-long"]) == 60_000
    await second.read(10)


async def test_a_slow_reader_holds_the_engine_back(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    piece = b"x" * 65536

    async def endless(exchange: Exchange) -> None:
        await exchange.headers(200)
        while True:
            await exchange.send(piece)

    engine.reply(endless)
    reply = await upstream.send(call(engine))
    await asyncio.sleep(0.1)
    sent = len(engine.requests[0].sent_at)
    await asyncio.sleep(0.1)
    assert len(engine.requests[0].sent_at) == sent
    read = 0
    pieces = reply.chunks()
    while read < sent * len(piece) + READ_BUFFER_BYTES:
        read += len(await anext(pieces))
    reply.close()


# Connections


async def test_a_read_reply_gives_its_connection_back(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.default(chat(Turn(text="hi")))
    reused = []
    for stream in (b'{"stream":true}', b"{}", b'{"stream":true}'):
        reply = await upstream.send(call(engine, body=stream))
        await collect(reply)
        reply.close()
        reused.append(reply.reused)
    assert (reused, engine.connections) == ([False, True, True], 1)


async def test_connections_are_busy_or_idle_as_long_as_they_stand(
    engine: ScriptedEngine, upstream: AiohttpUpstream
) -> None:
    engine.default(sse_reply([b"x"], stepped=True))
    replies = [await upstream.send(call(engine)) for _ in range(3)]
    assert upstream.connections() == {"busy": 3, "idle": 0}
    replies[1].close()
    assert upstream.connections() == {"busy": 2, "idle": 0}
    engine.step(100)
    await collect(replies[0])
    await collect(replies[2])
    assert upstream.connections() == {"busy": 0, "idle": 2}


async def test_who_wants_to_know_is_told_of_every_wait_for_the_engine(
    engine: ScriptedEngine, upstream: AiohttpUpstream
) -> None:
    class Stopwatch:
        """Says whether it runs, and how often it was started."""

        def __init__(self) -> None:
            self.runs = False
            self.starts = 0

        def __enter__(self) -> None:
            self.runs, self.starts = True, self.starts + 1

        def __exit__(self, *_: object) -> None:
            self.runs = False

    stopwatch = Stopwatch()
    engine.reply(sse_reply([b"x", b"y"], done=False, stepped=True))
    reply = await upstream.send(call(engine, waiting=stopwatch))
    assert (stopwatch.runs, stopwatch.starts) == (False, 1)
    pieces = reply.chunks()
    waiting = asyncio.ensure_future(anext(pieces))
    await asyncio.sleep(0.01)
    assert stopwatch.runs
    engine.step()
    await waiting
    assert (stopwatch.runs, stopwatch.starts) == (False, 2)
    engine.step()
    assert [piece async for piece in pieces] == [b"y"]
    assert (stopwatch.runs, stopwatch.starts) == (False, 4)
    with refused_port() as port, pytest.raises(NotConnected):
        await upstream.send(request(f"http://127.0.0.1:{port}/v1", waiting=stopwatch))
    assert (stopwatch.runs, stopwatch.starts) == (False, 5)


async def test_closing_drops_the_connection(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.default(sse_reply([b"x"], done=False, then="stall"))
    reply = await upstream.send(call(engine))
    assert await anext(reply.chunks()) == b"x"
    reply.close()
    reply.close()
    await engine.until(lambda: engine.aborted == 1, within=0.5)
    with pytest.raises(BrokenReply):
        await reply.read(10)


async def test_closing_after_all_arrived_harms_nobody_else(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    """The connection is back in the pool when the body has arrived, read or not."""
    engine.reply(json_reply({}), sse_reply([b"a"], done=False, stepped=True))
    unread = await upstream.send(call(engine))
    await engine.until(lambda: engine.completed == 1)
    await asyncio.sleep(0.01)
    other = await upstream.send(call(engine))
    assert other.reused
    unread.close()
    engine.step()
    assert await collect(other) == b"a"


async def test_closing_wakes_a_pending_read(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.default(sse_reply([], done=False, then="stall"))
    reply = await upstream.send(call(engine))
    reading = asyncio.create_task(reply.read(10))
    await asyncio.sleep(0.01)
    reply.close()
    with pytest.raises(BrokenReply, match="closed before its end"):
        await asyncio.wait_for(reading, 0.1)


async def test_a_reader_that_stops_closes(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.default(sse_reply([b"x"], done=False, then="stall"))
    reply = await upstream.send(call(engine))
    pieces = reply.chunks()
    await anext(pieces)
    await pieces.aclose()  # type: ignore[attr-defined]
    await engine.until(lambda: engine.aborted == 1, within=0.5)


async def _silent(exchange: Exchange) -> None:
    await exchange.stall()


@pytest.mark.parametrize("waiting_for", ["head", "read", "chunks"])
async def test_cancelling_stops_the_engine(waiting_for: str, engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.default(_silent if waiting_for == "head" else sse_reply([], done=False, then="stall"))

    async def work() -> None:
        reply = await upstream.send(call(engine))
        await (reply.read(10) if waiting_for == "read" else collect(reply))

    task = asyncio.create_task(work())
    await engine.until(lambda: engine.running == 1)
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await engine.until(lambda: engine.aborted == 1, within=0.5)


class Deaf(asyncio.Protocol):
    """A server that accepts and reads nothing."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()


async def test_cancelling_while_the_body_is_sent_drops_it(upstream: AiohttpUpstream) -> None:
    """Bytes the engine does not take must not hold the connection open."""
    deaf = Deaf()
    server = await asyncio.get_running_loop().create_server(lambda: deaf, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    before = open_descriptors()
    task = asyncio.create_task(upstream.send(request(f"http://127.0.0.1:{port}/", body=b"x" * 30_000_000)))
    await asyncio.sleep(0.1)
    assert open_descriptors() == before + 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.02)
    assert open_descriptors() == before + 1
    deaf.transport.abort()
    server.close()
    await asyncio.sleep(0)


async def test_idle_connections_are_not_used_after_their_time(engine: ScriptedEngine) -> None:
    engine.default(json_reply({}))
    upstream = AiohttpUpstream(idle_connection_seconds=0.05)
    for _ in range(2):
        await (await upstream.send(call(engine))).read(10)
        await asyncio.sleep(0.07)
    await upstream.close()
    assert engine.connections == 2


async def test_bytes_nobody_asked_for_answer_nobody(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    stray = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray"

    async def twice(exchange: Exchange) -> None:
        await exchange.json({"mine": 1})
        await exchange.pause(0.02)
        await exchange.raw(stray)

    async def twice_at_once(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n" + b'{"mine":1}' + stray)
        await exchange.stall()

    engine.reply(twice, twice_at_once)
    engine.default(json_reply({"own": 1}))
    for expected in (b'{"mine":1}', b'{"mine":1}', b'{"own":1}'):
        assert await (await upstream.send(call(engine))).read(100) == expected
        if b"mine" in expected:
            await engine.until(lambda: engine.open_connections == 0)


# Failures


async def test_refused_and_unknown_are_not_connected(upstream: AiohttpUpstream) -> None:
    with refused_port() as port, pytest.raises(NotConnected) as caught:
        await upstream.send(request(f"http://user:{SECRET}@127.0.0.1:{port}/v1/x?key={SECRET}"))
    assert str(caught.value) == f"cannot connect to 127.0.0.1:{port}: connection refused"
    for url in ("http://", "ftp://127.0.0.1/", "http://[::1", "nothing"):
        with pytest.raises(NotConnected, match="not valid"):
            await upstream.send(request(url))


async def _close(exchange: Exchange) -> None:
    exchange.close()


async def _reset(exchange: Exchange) -> None:
    exchange.reset()


@pytest.mark.parametrize("script", [_close, _reset])
async def test_no_reply_on_a_new_connection_is_not_resent(
    script: Any, engine: ScriptedEngine, upstream: AiohttpUpstream
) -> None:
    engine.reply(script)
    with pytest.raises(SentNoReply, match=f"^127.0.0.1:{engine.port} ended the connection without a reply: ") as caught:
        await upstream.send(call(engine))
    assert (caught.value.reused, upstream.resent, engine.started) == (False, 0, 1)


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("script", [_close, _reset])
async def test_no_reply_on_a_used_connection_is_resent_once(
    script: Any, method: str, engine: ScriptedEngine, upstream: AiohttpUpstream
) -> None:
    engine.on(method, "/v1/chat/completions", json_reply({"first": 1}))
    await (await upstream.send(call(engine, method=method))).read(100)
    answers = iter([script, json_reply({"second": 1}), script, script])

    async def next_answer(exchange: Exchange) -> None:
        await next(answers)(exchange)

    engine.on(method, "/v1/chat/completions", next_answer)
    reply = await upstream.send(call(engine, method=method))
    assert await reply.read(100) == b'{"second":1}'
    assert (reply.reused, upstream.resent, len(engine.requests)) == (False, 1, 3)
    assert engine.requests[1].body == engine.requests[2].body
    # A resend that meets the same fate is the end of it.
    with pytest.raises(SentNoReply):
        await upstream.send(call(engine, method=method))
    assert (upstream.resent, len(engine.requests)) == (2, 5)


async def test_a_resend_avoids_the_other_idle_connections(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.default(sse_reply([b"x"], done=False, stepped=True))
    replies = await asyncio.gather(*(upstream.send(call(engine)) for _ in range(3)))
    engine.step(3)
    await asyncio.gather(*(reply.read(10) for reply in replies))
    engine.default(json_reply({}))
    engine.reply(_close)
    reply = await upstream.send(call(engine))
    assert (await reply.read(10), engine.connections) == (b"{}", 4)


async def test_a_resend_that_cannot_connect_does_not_claim_nothing_was_sent(
    engine: ScriptedEngine, upstream: AiohttpUpstream
) -> None:
    engine.reply(json_reply({}))
    await (await upstream.send(call(engine))).read(10)

    async def die(exchange: Exchange) -> None:
        asyncio.get_running_loop().create_task(engine.stop())
        await exchange.stall()

    engine.reply(die)
    with pytest.raises(SentNoReply) as caught:
        await upstream.send(call(engine))
    assert (caught.value.reused, upstream.resent, engine.started) == (True, 0, 2)
    await engine.start()


HEADS = {
    "cut in the status line": b"HTTP/1.1 2",
    "cut in the headers": b"HTTP/1.1 200 OK\r\ncontent-type: text/ev",
    "not HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "HTML without a head": b"<html>502 Bad Gateway</html>\r\n\r\n",
    "too many headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 2000 + b"\r\n",
    "too long a header": b"HTTP/1.1 200 OK\r\na: " + b"b" * 200_000 + b"\r\n\r\n",
    "bad length": b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
}


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
async def test_a_bad_head_is_a_broken_reply(
    head: bytes, fresh: bool, engine: ScriptedEngine, upstream: AiohttpUpstream
) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.raw(head)
        exchange.close()

    if not fresh:
        engine.reply(json_reply({}))
        await (await upstream.send(call(engine))).read(10)
    engine.reply(script)
    with pytest.raises(BrokenReply, match=f"^127.0.0.1:{engine.port} "):
        await upstream.send(call(engine))
    assert (upstream.resent, engine.started) == (0, 1 if fresh else 2)


async def _not_http(exchange: Exchange) -> None:
    await exchange.raw(HEADS["not HTTP"])


@pytest.mark.parametrize("script", [_close, _not_http, _silent])
async def test_no_secret_shows_in_a_traceback(script: Any, engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.reply(script)
    url = f"http://user:{SECRET}@127.0.0.1:{engine.port}/v1/{SECRET}?key={SECRET}"
    with pytest.raises(UpstreamError) as caught:
        await upstream.send(request(url, first_byte_timeout=0.05))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
BODIES = {
    "length not reached": (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", "close"),
    "chunks without end": (CHUNKED + b"3\r\nabc\r\n", "close"),
    "cut in a chunk": (CHUNKED + b"9\r\nabc", "close"),
    "reset between chunks": (CHUNKED + b"3\r\nabc\r\n", "reset"),
    "reset instead of the end": (b"HTTP/1.1 200 OK\r\n\r\nabc", "reset"),
    "bad chunk size": (CHUNKED + b"3\r\nabc\r\n", "zz"),
}


@pytest.mark.parametrize("reader", ["read", "chunks", "late chunks"])
@pytest.mark.parametrize(("body", "ending"), BODIES.values(), ids=BODIES)
async def test_a_bad_body_is_a_broken_reply_after_what_had_arrived(
    body: bytes, ending: str, reader: str, engine: ScriptedEngine, upstream: AiohttpUpstream
) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.raw(body)
        await exchange.pause(0.01)
        if ending == "reset":
            exchange.reset()
        elif ending == "close":
            exchange.close()
        else:
            await exchange.raw(b"zz\r\n")
        await exchange.stall()

    engine.reply(script)
    reply = await upstream.send(call(engine))
    pieces = reply.chunks()
    if reader == "late chunks":
        await asyncio.sleep(0.03)
    if reader != "read":
        assert await anext(pieces) == b"abc"
    with pytest.raises(BrokenReply, match=f"^127.0.0.1:{engine.port} broke off its reply: "):
        await (reply.read(100) if reader == "read" else anext(pieces))


async def test_a_body_without_length_ends_with_its_connection(
    engine: ScriptedEngine, upstream: AiohttpUpstream
) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\n\r\nabc")
        exchange.close()

    engine.reply(script)
    assert await (await upstream.send(call(engine))).read(100) == b"abc"


# Time limits


async def _drip(exchange: Exchange) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n" + b"x-slow: 1\r\n" * 100:
        await exchange.raw(bytes([byte]))
        await exchange.pause(0.005)


async def _trickle(exchange: Exchange) -> None:
    await exchange.stream_headers()
    while True:
        await exchange.send(b": still here\n\n")
        await exchange.pause(0.01)


@pytest.mark.parametrize(
    ("script", "limit", "message"),
    [
        (_silent, "first_byte", "did not begin its reply within 0.05 s"),
        (_drip, "first_byte", "did not begin its reply within 0.05 s"),
        (_silent, "total", "did not finish its reply within 0.05 s"),
        (sse_reply([b"x"], done=False, then="stall"), "idle", "sent nothing for 0.05 s in the middle of its reply"),
        (sse_reply([b"x"], done=False, then="stall"), "total", "did not finish its reply within 0.05 s"),
        (_trickle, "total", "did not finish its reply within 0.05 s"),
    ],
)
async def test_time_limits(
    script: Any, limit: str, message: str, engine: ScriptedEngine, upstream: AiohttpUpstream
) -> None:
    engine.reply(script)
    limits = {"connect_timeout": 5.0, "first_byte_timeout": 5.0, "idle_timeout": 5.0, "total_timeout": 5.0}
    started = time.monotonic()
    with pytest.raises(UpstreamTimeout) as caught:
        await (await upstream.send(call(engine, **{**limits, f"{limit}_timeout": 0.05}))).read(1_000_000)
    assert 0.04 < time.monotonic() - started < 1
    assert (caught.value.which, caught.value.seconds) == (limit, 0.05)
    assert str(caught.value) == f"127.0.0.1:{engine.port} {message}"
    await engine.until(lambda: engine.aborted == 1, within=0.5)
    assert upstream.resent == 0


async def test_connect_limit(upstream: AiohttpUpstream) -> None:
    with unanswered_port() as port, pytest.raises(UpstreamTimeout) as caught:
        await upstream.send(request(f"http://127.0.0.1:{port}/", connect_timeout=0.05, total_timeout=5))
    assert (caught.value.which, str(caught.value)) == ("connect", f"no connection to 127.0.0.1:{port} within 0.05 s")


async def test_a_chunk_every_while_is_not_idle(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.reply(sse_reply([b"x"] * 6, gap_seconds=0.05, done=False))
    assert await collect(await upstream.send(call(engine, idle_timeout=0.2, first_byte_timeout=0.2))) == b"xxxxxx"


async def test_a_slow_reader_is_not_an_idle_engine(engine: ScriptedEngine, upstream: AiohttpUpstream) -> None:
    engine.reply(sse_reply([b"x"] * 3, done=False, stepped=True))
    reply = await upstream.send(call(engine, idle_timeout=0.1))
    pieces = reply.chunks()
    for _ in range(3):
        engine.step()
        assert await anext(pieces) == b"x"
        await asyncio.sleep(0.12)
    assert [piece async for piece in pieces] == []


# Leaks


async def test_nothing_is_left_open(engine: ScriptedEngine) -> None:
    async def hit(script: Any) -> None:
        engine.reply(script)
        with contextlib.suppress(UpstreamError):
            await collect(await client.send(call(engine, idle_timeout=0.02, first_byte_timeout=0.02)))

    before, tasks = open_descriptors(), len(asyncio.all_tasks())
    client = AiohttpUpstream()
    scripts = [
        json_reply({}),
        _close,
        _reset,
        _silent,
        sse_reply([b"x"], then="reset"),
        sse_reply([b"x"], then="stall"),
    ]
    await asyncio.gather(*(hit(script) for script in scripts * 5))
    await engine.until(lambda: engine.running == 0)
    await client.close()
    await engine.until(lambda: open_descriptors() == before)
    assert len(asyncio.all_tasks()) == tasks
    # A connection or reply that someone forgot warns when it is collected, and warnings are errors.
    gc.collect()
