"""Streams are live: what need not be held reaches the agent before the engine sends more."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable

import pytest
from event_stream import DONE, arguments, events, finish_reason, joined
from raw_agent import RawAgent
from running_proxy import StartProxy
from scripted_engine import Exchange, ScriptedEngine, Turn, chat, chat_events, json_reply

from switchyard_py.store import Filesystem

GAP_SECONDS = 0.1


class _Arrivals:
    """Reads a stream and notes when each event came."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, bytes]] = []

    async def read(self, parts: AsyncIterator[bytes]) -> None:
        rest = b""
        async for data in parts:
            now = time.monotonic()
            *whole, rest = (rest + data).split(b"\n\n")
            self.seen += [(now, event + b"\n\n") for event in whole]


async def test_each_chunk_not_held_arrives_before_the_engine_sends_the_next(
    proxy: StartProxy, engine: ScriptedEngine, record_property: Callable[[str, object], None]
) -> None:
    """With a chunk every 100 ms; the worst delay is a property of the test report (aim: 20 ms)."""
    running = await proxy()
    turn = Turn(text="one two three four")
    engine.reply(chat(turn, gap_seconds=GAP_SECONDS))
    arrivals = _Arrivals()
    async with running.chat_stream({"stream": True}, "s") as response:
        await arrivals.read(response.aiter_raw())
    # The last token finishes, then come usage and [DONE]: those are the tail.
    (sent,) = [request.sent_at for request in engine.generations]
    live = sent[: 1 + len(turn.tokens) - 1]
    delays = [seen - at for at, (seen, _) in zip(live, arrivals.seen, strict=False)]
    record_property("worst_delay_ms", round(1000 * max(delays), 1))
    print(f"\nworst delay of {len(delays)} live chunks: {1000 * max(delays):.1f} ms")
    assert len(delays) == len(turn.tokens)
    assert all(0 <= delay < GAP_SECONDS for delay in delays)


async def test_argument_fragments_stream_one_behind_and_the_last_one_waits(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    turn = Turn(reasoning="well", tool_calls=[("run", '{"a": [1, 2]}')])
    engine.reply(chat(turn, stepped=True))
    arrivals = _Arrivals()

    def shown() -> str:
        return arguments(events(b"".join(event for _, event in arrivals.seen)))

    async with running.chat_stream({"stream": True}, "s") as response:
        reading = asyncio.create_task(arrivals.read(response.aiter_raw()))
        engine.step()
        before = ""
        for token in turn.tokens:
            engine.step()
            fragments = [call["function"].get("arguments", "") for call in token.delta.get("tool_calls", [])]
            if fragments:
                expected = before
                await engine.until(lambda expected=expected: shown() == expected)  # type: ignore[misc]
            before += "".join(fragments)
        engine.step(10)
        await reading
    assert shown() == before == '{"a": [1, 2]}'


async def test_an_engine_that_is_slow_to_begin_is_bridged_by_heartbeats(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy(target={"early_headers_after": 0.05})

    async def slow(exchange: Exchange) -> None:
        await exchange.pause(0.3)
        await chat(Turn(text="hello"))(exchange)

    engine.reply(slow)
    began = time.monotonic()
    async with running.chat_stream({"stream": True}, "s") as response:
        assert time.monotonic() - began < 0.25
        assert response.status_code == 200
        body = await response.aread()
    beats = body[: body.index(b"data: ")]
    assert set(beats.splitlines()) == {b": keepalive"}
    assert 3 <= len(beats.splitlines()) <= 6
    assert joined(events(body), "content") == "hello"
    assert events(body)[-1] == DONE
    assert await running.fates("s") == {"valid": 1}


def _between_events(body: bytes) -> int:
    """How many heartbeats a stream holds; everything else in it must be whole events, or follow a heartbeat."""
    beats = body.count(b": keepalive\n")
    assert re.fullmatch(rb"(: keepalive\n|data: [^\n]*\n\n)*", body), body
    return beats


@pytest.mark.parametrize("session", ["s", None])
async def test_an_engine_that_falls_silent_in_mid_stream_is_bridged(
    proxy: StartProxy, engine: ScriptedEngine, session: str | None
) -> None:
    running = await proxy(target={"early_headers_after": 0.05})
    turn = Turn(text="one two")

    async def silent(exchange: Exchange) -> None:
        await exchange.stream_headers()
        for event in chat_events(exchange.request, turn):
            await exchange.send(event[:20])
            await exchange.pause(0.15)
            await exchange.send(event[20:])
        await exchange.send(b"data: [DONE]\n\n")

    engine.reply(silent)
    body = (await running.chat({"stream": True}, session)).content
    sent = len(list(chat_events(engine.generations[0], turn)))
    assert sent <= _between_events(body) <= 4 * sent
    assert (joined(events(body), "content"), events(body)[-1]) == (turn.text, DONE)


async def test_a_busy_stream_gets_no_heartbeats(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(target={"early_headers_after": 0.5})
    turn = Turn(text="one two three four five six")
    engine.reply(chat(turn, gap_seconds=0.05))
    body = (await running.chat({"stream": True}, "s")).content
    assert _between_events(body) == 0


async def test_a_held_tool_call_and_a_slow_commit_are_bridged(proxy: StartProxy, engine: ScriptedEngine) -> None:
    class SlowCommit(Filesystem):
        def rename(self, source: str, target: str) -> None:
            if target.endswith(".json"):
                time.sleep(0.3)
            super().rename(source, target)

    running = await proxy(target={"early_headers_after": 0.05}, filesystem=SlowCommit())
    turn = Turn(text="well", tool_calls=[("run", "{}")])
    engine.reply(chat(turn, stepped=True))
    agent = await RawAgent.calling(running.port, "s", stream=True)
    engine.step(1 + len(turn.tokens))
    held = await agent.read_until(b"keepalive\n\r\n" + b"c\r\n: keepalive")
    engine.step(10)
    whole = await agent.read_until(b"[DONE]")
    assert whole[len(held) :].count(b": keepalive\n") >= 3
    assert whole.rindex(b": keepalive") < whole.index(b'"finish_reason":"tool_calls"')
    assert await running.fates("s") == {"valid": 1}
    await agent.leave()


async def test_headers_at_once_are_one_heartbeat_and_no_flood(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(target={"early_headers_after": 0})

    async def slow(exchange: Exchange) -> None:
        await exchange.pause(0.4)
        await chat(Turn(text="hello"))(exchange)

    engine.reply(slow)
    began = time.monotonic()
    async with running.chat_stream({"stream": True}, "s") as response:
        assert time.monotonic() - began < 0.35
        assert _between_events(await response.aread()) == 1


async def test_a_refusal_before_the_heartbeats_keeps_its_status(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(target={"early_headers_after": 0.2})
    given = {"error": {"message": "too many", "type": "rate_limit_error", "param": None, "code": 429}}
    engine.reply(json_reply(given, 429, {"retry-after": "7"}))
    response = await running.chat({"stream": True}, "s")
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")
    assert response.json() == given


async def test_a_refusal_after_the_heartbeats_is_an_error_event(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(target={"early_headers_after": 0.05})
    given = {"error": {"message": "too many", "type": "rate_limit_error", "param": None, "code": 429}}

    async def slow(exchange: Exchange) -> None:
        await exchange.pause(0.15)
        await exchange.json(given, 429)

    engine.reply(slow)
    response = await running.chat({"stream": True}, "s")
    assert response.status_code == 200
    assert events(response.content) == [given]
    assert await running.fates("s") == {"failed": 1}


@pytest.mark.parametrize("body", [{}, {"stream": False}])
async def test_a_buffered_call_gets_no_heartbeats(
    proxy: StartProxy, engine: ScriptedEngine, body: dict[str, object]
) -> None:
    running = await proxy(target={"early_headers_after": 0.02})

    async def slow(exchange: Exchange) -> None:
        await exchange.pause(0.1)
        await chat(Turn(text="hello"))(exchange)

    engine.reply(slow)
    response = await running.chat(body, "s")
    assert response.json()["choices"][0]["message"]["content"] == "hello"


async def test_a_stream_without_session_is_live_too(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(Turn(text="one two"), stepped=True))
    arrivals = _Arrivals()
    async with running.chat_stream({"stream": True}) as response:
        reading = asyncio.create_task(arrivals.read(response.aiter_raw()))
        for count in range(1, 4):
            engine.step()
            await engine.until(lambda count=count: len(arrivals.seen) == count)  # type: ignore[misc]
        engine.step(10)
        await reading
    chunks = events(b"".join(event for _, event in arrivals.seen))
    assert (joined(chunks, "content"), finish_reason(chunks), chunks[-1]) == ("one two", "stop", DONE)


@pytest.mark.parametrize("session", ["s", None])
async def test_a_whole_reply_after_the_heartbeats_is_an_error_event(
    proxy: StartProxy, engine: ScriptedEngine, session: str | None
) -> None:
    running = await proxy(target={"early_headers_after": 0.05})

    async def slow(exchange: Exchange) -> None:
        await exchange.pause(0.15)
        await exchange.json({"id": "x", "choices": []})

    engine.reply(slow)
    response = await running.chat({"stream": True}, session)
    assert response.status_code == 200
    (event,) = events(response.content)
    assert "without a stream" in event["error"]["message"]
