"""Silences as long as they are: longer than load balancers and client pools wait, with every setting at its default.

The twins with fractions of seconds are in `proxy/test_live.py` and `test_connection.py`.
"""

import asyncio
import re
import time
from pathlib import Path

import pytest
import yaml
from raw_agent import RawAgent
from running_proxy import ROUTE, ProxyProcess, bundle
from scale import FULL
from scripted_engine import Exchange, ScriptedEngine, Turn, chat, chat_events

from switchyard_py.store import SessionReader

SILENCE_SECONDS = 130
# The proxy says something every 15 s, and nobody's patience is shorter than that of nginx.
PATIENCE_SECONDS = 20
KEPT_SECONDS = 120
TURN = Turn(text="one two three")


async def _silent(exchange: Exchange) -> None:
    """Silent as the prompt asks: before the reply, or, in a stream, after its first token."""
    when = exchange.request.json["messages"][0]["content"]
    if when == "before":
        await exchange.pause(SILENCE_SECONDS)
        await chat(TURN)(exchange)
        return
    await exchange.stream_headers()
    for number, event in enumerate([*chat_events(exchange.request, TURN), b"data: [DONE]\n\n"]):
        await exchange.send(event)
        if number == 1:
            await exchange.pause(SILENCE_SECONDS)


async def _stream(port: int, when: str) -> bytes:
    agent = await RawAgent.calling(port, when, stream=True, messages=[{"role": "user", "content": when}])
    try:
        return await agent.read_until(b"[DONE]", within=PATIENCE_SECONDS)
    finally:
        await agent.leave()


async def _buffered(port: int) -> bytes:
    agent = await RawAgent.calling(port, "buffered", messages=[{"role": "user", "content": "before"}])
    try:
        return await agent.read_until(b'"usage"', within=SILENCE_SECONDS + PATIENCE_SECONDS)
    finally:
        await agent.leave()


async def _comes_back(port: int) -> bytes:
    """The second answer on one connection, which was idle for as long as the most patient of client pools keep one."""
    agent = await RawAgent.connected(port)
    try:
        await agent.send(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        await agent.read()
        await asyncio.sleep(KEPT_SECONDS)
        await agent.send(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        return await agent.read_until(ROUTE.encode())
    finally:
        await agent.leave()


@pytest.mark.skipif(not FULL, reason="takes 130 s; make test-faults runs it")
async def test_a_silence_of_130_seconds_is_survived(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine:
        engine.default(_silent)
        (tmp_path / "x.yaml").write_text(yaml.safe_dump(bundle(engine.base_url)))
        process = ProxyProcess(["-c", "x.yaml", "--", "serve", "--host", "127.0.0.1", "--port", "0"], tmp_path)
        await asyncio.to_thread(process.__enter__)
        port = int(process.url.rpartition(":")[2])
        began = time.monotonic()
        try:
            before, middle, buffered, kept = await asyncio.gather(
                _stream(port, "before"), _stream(port, "middle"), _buffered(port), _comes_back(port)
            )
            assert time.monotonic() - began >= SILENCE_SECONDS
        finally:
            await asyncio.to_thread(process.__exit__)
    for answer in (before, middle):
        assert 8 <= len(re.findall(rb"\r\n: keepalive\n\r\n", answer)) <= 9
    assert before.index(b"keepalive") < before.index(b"data: ")
    assert middle.index(b'"content":"one"') < middle.index(b"keepalive") < middle.index(b'"content":"two"')
    assert b"keepalive" not in buffered
    assert ROUTE.encode() in kept
    for session in ("before", "middle", "buffered"):
        page = SessionReader(tmp_path / "rl_data", None).completions(session)
        assert page is not None
        assert len(list(page)) == page.accounting()["valid"] == 1
