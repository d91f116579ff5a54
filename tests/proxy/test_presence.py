"""An agent or a trainer that stays connected and stops: it holds nothing for longer than it may."""

import asyncio
import json
import os
import time

import pytest
from raw_agent import RawAgent
from running_proxy import RunningProxy, StartProxy
from scripted_engine import DONE, Exchange, ScriptedEngine, Turn, chat, json_reply, sse_reply

LIMIT = 0.3
STALLS = {"server": {"drain_seconds": 0, "agent_stall_seconds": LIMIT}}
# More than the kernel takes for an agent that does not read (its send buffer: 4 MB), so that we hold the rest.
MUCH = 6_000_000
PIECE = 60_000
BOTH = pytest.mark.parametrize("session", ["s", None])


def _chunk(content: str, finish_reason: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish_reason}]}


async def _endless(exchange: Exchange) -> None:
    await exchange.stream_headers()
    while True:
        await exchange.send(b"data: " + json.dumps(_chunk("x" * PIECE)).encode() + b"\n\n")


def _reason(running: RunningProxy) -> str:
    (file,) = running.files(".failed")
    reason: str = json.loads(file.read_bytes())["reason"]
    return reason


@BOTH
async def test_an_agent_that_stops_reading_is_cut_off_and_the_generation_stops(
    proxy: StartProxy, engine: ScriptedEngine, session: str | None
) -> None:
    running = await proxy(**STALLS)
    engine.reply(_endless)
    agent = await RawAgent.calling(running.port, session, stream=True)
    began = time.monotonic()
    await agent.read_until(b"xxx")
    await engine.until(lambda: engine.aborted == 1, within=5)
    assert time.monotonic() - began >= LIMIT
    if session is not None:
        await running.until_fates(session, {"failed": 1})
        assert _reason(running) == "agent_stalled"
    await running.until_counted("agent_gone", 1)
    await agent.leave()


async def test_what_waits_for_an_agent_that_does_not_read_is_bounded_and_others_go_on(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy(server={"drain_seconds": 0, "agent_stall_seconds": 20})
    engine.reply(_endless)
    agent = await RawAgent.calling(running.port, "s", stream=True)
    await agent.read_until(b"xxx")
    (generation,) = engine.generations
    await engine.until(lambda: time.monotonic() - generation.sent_at[-1] > 0.2)
    sent = len(generation.sent_at)
    assert sent * PIECE < 24_000_000
    engine.default(chat(Turn(text="hello")))
    for stream in (False, True):
        assert (await running.chat({"stream": stream}, "other")).status_code == 200
    assert len(generation.sent_at) == sent
    assert engine.aborted == 0
    await agent.reset()
    await running.until_fates("s", {"failed": 1})


async def test_a_slow_agent_is_not_cut_off(proxy: StartProxy, engine: ScriptedEngine) -> None:
    limit = 2 * LIMIT
    running = await proxy(server={"drain_seconds": 0, "agent_stall_seconds": limit})
    pieces = [_chunk("x" * PIECE) for _ in range(MUCH // PIECE)]
    engine.reply(sse_reply([*pieces, _chunk("", "stop")]))
    agent = await RawAgent.calling(running.port, "s", stream=True)
    # The kernel takes more from us only when a third of its buffer is free: that is longer than the limit here.
    until, taken = time.monotonic() + 2.5 * limit, 0
    while time.monotonic() < until:
        taken += len(await agent.read(PIECE // 2))
        await asyncio.sleep(limit / 10)
    assert taken < MUCH / 4
    assert engine.aborted == 0
    await agent.read_until(b"[DONE]", within=5)
    assert await running.fates("s") == {"invalid": 1}
    await agent.leave()


async def test_an_agent_that_stops_before_the_tail_has_an_undelivered_record(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy(**STALLS)
    engine.reply(sse_reply([_chunk("x" * MUCH), _chunk("", "stop")]))
    agent = await RawAgent.calling(running.port, "s", stream=True)
    await engine.until(lambda: engine.completed == 1)
    await running.until_fates("s", {"undelivered": 1}, within=5)
    await running.until_counted("agent_gone", 1)
    await agent.leave()


async def test_an_answer_that_was_handed_over_whole_stays_delivered(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(**STALLS)
    choice = {"index": 0, "message": {"role": "assistant", "content": "x" * MUCH}, "finish_reason": "stop"}
    engine.reply(json_reply({"choices": [choice]}))
    agent = await RawAgent.calling(running.port, "s")
    await running.until_fates("s", {"invalid": 1}, within=5)
    await asyncio.sleep(3 * LIMIT)
    # Cut off all the same: the rest is not kept for it.
    with pytest.raises((ConnectionResetError, AssertionError)):
        await agent.read_until(b'"finish_reason":"stop"')
    assert await running.fates("s") == {"invalid": 1}
    await running.until_counted("agent_gone", 0)
    await agent.leave()


async def test_a_trainer_that_stops_reading_is_cut_off_and_others_are_served(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy(**STALLS)
    choice = {"index": 0, "message": {"role": "assistant", "content": "x" * MUCH}, "finish_reason": "stop"}
    engine.default(json_reply({"choices": [choice]}))
    for _ in range(2):
        await running.chat({}, "s")
    trainer = await RawAgent.connected(running.port)
    await trainer.send(b"GET /v1/sessions/s/completions HTTP/1.1\r\nhost: x\r\n\r\n")
    await trainer.read_until(b"schema_version")
    assert len(await running.records("s")) == 2
    await asyncio.sleep(3 * LIMIT)
    with pytest.raises((ConnectionResetError, AssertionError)):
        await trainer.read_until(b'"accounting"')
    await trainer.leave()
    held = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.exists(entry.path)]
    assert not any(name.startswith(f"{running.directory}/sessions") for name in held)


async def test_a_trainer_that_leaves_is_not_waited_for(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(sse_reply([], done=False, then="stall"))
    agent = await RawAgent.calling(running.port, "s", stream=True)
    await agent.read_until(b"\r\n\r\n")
    before = len(asyncio.all_tasks())
    trainer = await RawAgent.connected(running.port)
    await trainer.send(b"GET /v1/sessions/s/completions?settled=60 HTTP/1.1\r\nhost: x\r\n\r\n")
    await engine.until(lambda: len(asyncio.all_tasks()) > before)
    await trainer.leave()
    await engine.until(lambda: len(asyncio.all_tasks()) == before)
    await agent.leave()


async def test_a_body_that_stops_is_408_and_no_call(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(**STALLS)
    agent = await RawAgent.connected(running.port)
    began = time.monotonic()
    await agent.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{")
    answer = await agent.read_to_end()
    assert time.monotonic() - began >= LIMIT
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "request_timeout")
    assert f"nothing of it came for {LIMIT} s, the limit `server.agent_stall_seconds`" in error["message"]
    assert engine.generations == []
    assert (await running.stats())["ledger"]["begun"] == 0
    await agent.leave()


REFUSED_UNREAD = {
    401: b"",
    413: b"x-api-key: caller-key\r\n",
    415: b"x-api-key: caller-key\r\ncontent-encoding: gzip\r\n",
}


@pytest.mark.parametrize("status", REFUSED_UNREAD)
async def test_the_body_of_a_refused_call_is_dropped_and_its_connection_goes_on(
    proxy: StartProxy, engine: ScriptedEngine, status: int
) -> None:
    size = 4_000_000
    running = await proxy(
        auth={"caller_keys": ["caller-key"]},
        server={"drain_seconds": 0, "max_body_bytes": 2 * size if status != 413 else 9},
    )
    agent = await RawAgent.connected(running.port)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + REFUSED_UNREAD[status]
    await agent.send(head + b"content-length: %d\r\n\r\n" % size + b"x" * 1000)
    refused = await agent.read_until(b"}}")
    assert refused.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" not in refused
    await agent.send(b"x" * (size - 1000) + b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
    assert await agent.read_until(b'{"status":"ok"}')
    assert engine.requests == []
    await agent.leave()


async def test_a_body_that_comes_slowly_is_waited_for(proxy: StartProxy, engine: ScriptedEngine) -> None:
    limit = 2 * LIMIT
    running = await proxy(server={"drain_seconds": 0, "agent_stall_seconds": limit})
    engine.reply(chat(Turn(text="hello")))
    body = json.dumps({"model": "policy_model", "messages": [{"role": "user", "content": "hi"}]}).encode()
    agent = await RawAgent.connected(running.port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    await agent.send(head.encode())
    for start in range(0, len(body), 16):
        await asyncio.sleep(limit / 4)
        await agent.send(body[start : start + 16])
    assert b'"content":"hello"' in await agent.read_until(b'"usage"')
    await agent.leave()


async def test_a_stream_whose_agent_reads_again_in_time_is_whole(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(**STALLS)
    pieces = [_chunk("x" * PIECE) for _ in range(MUCH // PIECE)]
    engine.reply(sse_reply([*pieces, _chunk("", "stop")], done=True))
    agent = await RawAgent.calling(running.port, "s", stream=True)
    await asyncio.sleep(LIMIT / 2)
    answer = await agent.read_until(DONE)
    assert answer.count(b"x" * PIECE) == len(pieces)
    assert await running.fates("s") == {"invalid": 1}
    await agent.leave()
