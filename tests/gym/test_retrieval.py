"""Fetching a session: once its calls have ended, and never for longer than the deadline."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest
from running_proxy import StartProxy
from scripted_engine import ScriptedEngine, Turn, chat, refused_port, unanswered_port

from switchyard_py.gym import retrieval
from switchyard_py.gym.address import ProxyAddress, proxy_address
from switchyard_py.gym.retrieval import RetrievalFailed, retrieve_session


class Answers:
    """A server that answers each request with the next of `answers` (the last one for ever) and closes."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.requests: list[str] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status:
            head = f"HTTP/1.1 {status} x\r\nlocation: /elsewhere\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[ProxyAddress]:
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        async with server:
            yield ProxyAddress("127.0.0.1", server.sockets[0].getsockname()[1])


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "RETRY_SECONDS", 0.02)


async def test_the_envelope_comes_as_the_proxy_sends_it(engine: ScriptedEngine, proxy: StartProxy) -> None:
    running = await proxy(auth={"reader_keys": ["reader-key"], "caller_keys": ["caller-key"]})
    engine.reply(chat(Turn(text="hello")))
    reply = await running.chat({}, session="a/b ?", headers={"authorization": "Bearer caller-key"})
    assert reply.status_code == 200
    text = await retrieve_session(proxy_address(running.url), "a/b ?", api_key="reader-key")
    envelope = orjson.loads(text)
    assert envelope["session_id"] == "a/b ?"
    assert [record["is_valid"] for record in envelope["completions"]] == [True]


async def test_calls_under_way_are_waited_for(engine: ScriptedEngine, proxy: StartProxy) -> None:
    running = await proxy()
    engine.reply(chat(Turn(text="hello there"), stepped=True))
    async with running.chat_stream({"stream": True}, session="s"):
        fetching = asyncio.ensure_future(retrieve_session(proxy_address(running.url), "s"))
        await asyncio.sleep(0.1)
        assert not fetching.done()
        engine.step(20)
        envelope = orjson.loads(await fetching)
    assert envelope["accounting"]["open"] == 0
    assert len(envelope["completions"]) == 1


async def test_a_proxy_that_comes_back_is_waited_for() -> None:
    server = Answers((0, b""), (503, b"{}"), (200, b'{"a":1}'))
    async with server.served() as address:
        assert await retrieve_session(address, "s", deadline=5) == b'{"a":1}'
    assert len(server.requests) == 3
    assert server.requests[0].startswith("GET /v1/sessions/s/completions?settled=2.5 HTTP/1.1")


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422, 500])
async def test_any_other_status_is_final(status: int) -> None:
    server = Answers((status, b'{"detail":"unknown session"}'))
    async with server.served() as address:
        with pytest.raises(RetrievalFailed, match=f"HTTP {status}: .*unknown session"):
            await retrieve_session(address, "s", deadline=5)
    assert len(server.requests) == 1


@pytest.mark.parametrize("key", ["reader\nkey", "reader-këy"])
async def test_a_key_that_no_header_can_hold_is_not_repeated(key: str) -> None:
    with pytest.raises(RetrievalFailed, match="no header can hold") as refused:
        await retrieve_session(ProxyAddress("127.0.0.1", 1), "s", api_key=key)
    assert "reader-" not in str(refused.value)


async def test_nothing_takes_longer_than_the_deadline() -> None:
    with refused_port() as refused, unanswered_port() as unanswered:
        for port, reason in ((refused, "last seen: ConnectError"), (unanswered, "not complete within 0.3 s")):
            began = time.monotonic()
            with pytest.raises(RetrievalFailed, match=reason):
                await retrieve_session(ProxyAddress("127.0.0.1", port), "s", deadline=0.3)
            assert 0.25 < time.monotonic() - began < 2


async def test_an_answer_that_never_ends_is_given_up() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        try:
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        address = ProxyAddress("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(RetrievalFailed, match="no answer"):
            await retrieve_session(address, "s", deadline=0.3)
        await asyncio.sleep(0.05)
