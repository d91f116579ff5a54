import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from scripted_engine import (
    ScriptedEngine,
    ScriptedEngineThread,
    Turn,
    chat,
    chat_stream,
    json_reply,
    refused_port,
    sse_reply,
    unanswered_port,
)
from wire_recordings import recording

from switchyard_py.upstream import SSEReader

CAPTURE = {"logprobs": True, "top_logprobs": 0, "return_token_ids": True}


def shape(value: object) -> object:
    """Types and key order, of a list the shape of its first item."""
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


def chunks(stream: bytes) -> list[dict[str, Any]]:
    events = SSEReader().feed(stream)
    return [json.loads(event.data) for event in events if event.data not in (None, b"[DONE]")]


async def post(engine: ScriptedEngine, **body: object) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(f"{engine.base_url}/chat/completions", json={"model": "tiny", "messages": [], **body})


async def test_buffered_reply_has_the_shape_of_a_recorded_one() -> None:
    recorded = json.loads(recording("trained_tool_auto").body)
    turn = Turn(reasoning="think", tool_calls=[("get_weather", {"city": "Paris"})])
    async with ScriptedEngine() as engine:
        engine.reply(chat(turn))
        reply = (await post(engine, **CAPTURE)).json()
    assert shape(reply) == shape(recorded)
    assert reply["choices"][0]["token_ids"] == turn.token_ids
    assert reply["usage"]["completion_tokens"] == len(turn.token_ids)


async def test_counts_so_far_have_the_shape_of_recorded_ones() -> None:
    recorded = chunks(recording("chat_stream_cont_usage").body)
    turn = Turn(reasoning="think hard", text="hello")
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with ScriptedEngine() as engine:
        engine.reply(chat(turn))
        stream = chunks((await post(engine, stream=True, stream_options=options, **CAPTURE)).content)
    assert shape(stream[0]) == shape(recorded[0])
    assert shape(stream[2]) == shape(recorded[1])
    generated = [(chunk["usage"]["completion_tokens"], len(chunk["choices"][0]["token_ids"])) for chunk in stream[1:-1]]
    assert generated == [(count, 1) for count in range(1, len(turn.tokens) + 1)]
    assert stream[-2]["usage"] == stream[-1]["usage"]


async def test_stream_has_the_shape_of_a_recorded_one() -> None:
    recorded = chunks(recording("trained_tool_auto_stream").body)
    turn = Turn(reasoning="think", tool_calls=[("get_weather", {"city": "Paris"})])
    async with ScriptedEngine() as engine:
        engine.reply(chat(turn))
        sent = chunks((await post(engine, stream=True, stream_options={"include_usage": True}, **CAPTURE)).content)
    assert {json.dumps(shape(chunk)) for chunk in sent} == {json.dumps(shape(chunk)) for chunk in recorded}
    ids = [token for chunk in sent for choice in chunk["choices"] for token in choice.get("token_ids", [])]
    assert ids == turn.token_ids


async def test_stream_without_capture_drops_tokens_without_text() -> None:
    recorded = chunks(recording("chat_stream_nocapture").body)
    async with ScriptedEngine() as engine:
        engine.reply(chat(Turn(reasoning="think twice", finish_reason="length")))
        sent = chunks((await post(engine, stream=True)).content)
    assert {json.dumps(shape(chunk)) for chunk in sent} == {json.dumps(shape(chunk)) for chunk in recorded}


async def test_choices_interleave() -> None:
    async with ScriptedEngine() as engine:
        engine.reply(chat(Turn(text="a b"), Turn(text="c d")))
        sent = chunks((await post(engine, stream=True, n=2)).content)
    assert [chunk["choices"][0]["index"] for chunk in sent] == [0, 1] * 5


async def test_steps_let_one_event_pass_each() -> None:
    async with ScriptedEngine() as engine, httpx.AsyncClient(trust_env=False) as client:
        engine.reply(sse_reply([b"one", b"two"], done=False, stepped=True))
        async with client.stream("POST", f"{engine.base_url}/chat/completions", json={}) as reply:
            pieces = reply.aiter_raw()
            for expected in (b"one", b"two"):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await asyncio.shield(waiting := asyncio.ensure_future(anext(pieces)))
                engine.step()
                assert await waiting == expected


async def test_a_client_that_goes_away_is_counted_as_aborted() -> None:
    async with ScriptedEngine() as engine, httpx.AsyncClient(trust_env=False) as client:
        engine.default(chat_stream(Turn(text="a b c d e f"), gap_seconds=0.05))
        async with client.stream("POST", f"{engine.base_url}/chat/completions", json={}) as reply:
            await anext(reply.aiter_raw())
        left = time.monotonic()
        await engine.until(lambda: engine.aborted == 1)
        assert time.monotonic() - left < 0.04
        assert (engine.started, engine.completed, engine.broken) == (1, 0, 0)


async def test_endings_and_keep_alive() -> None:
    async with ScriptedEngine() as engine, httpx.AsyncClient(trust_env=False) as client:
        engine.reply(json_reply({}), sse_reply([], then="reset"), sse_reply([], then="close"))
        url = f"{engine.base_url}/chat/completions"
        assert (await client.post(url, json={})).json() == {}
        with pytest.raises(httpx.ReadError):
            await client.post(url, json={})
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(url, json={})
        assert [request.connection for request in engine.requests] == [1, 1, 2]
        assert (engine.completed, engine.broken) == (1, 2)


async def test_restarts_on_its_port() -> None:
    async with ScriptedEngine() as engine:
        engine.default(json_reply({"answer": 1}))
        await engine.stop()
        with pytest.raises(httpx.ConnectError):
            await post(engine)
        await engine.start()
        assert (await post(engine)).json() == {"answer": 1}


async def test_a_failing_script_fails_the_test() -> None:
    async def script(exchange: object) -> None:
        raise ValueError("in the script")

    engine = ScriptedEngine()
    await engine.start()
    engine.reply(script)
    with pytest.raises(httpx.ReadError):
        await post(engine)
    with pytest.raises(ExceptionGroup, match="scripts failed"):
        await engine.__aexit__()


async def test_answers_the_standard_paths() -> None:
    async with ScriptedEngine(model="policy", max_model_len=77) as engine, httpx.AsyncClient(trust_env=False) as client:
        card = (await client.get(f"{engine.base_url}/models")).json()["data"][0]
        health = await client.get(f"{engine.url}/health")
        assert (card["id"], card["max_model_len"], health.status_code) == ("policy", 77, 200)
        assert engine.started == 0


def test_runs_in_a_thread() -> None:
    with ScriptedEngineThread() as engine, httpx.Client(trust_env=False) as client:
        engine.reply(chat(Turn(text="hi")))
        reply = client.post(f"{engine.engine.base_url}/chat/completions", json={})
        assert reply.json()["choices"][0]["message"]["content"] == "hi"
        engine.until(lambda: engine.engine.completed == 1)


async def test_dead_ports() -> None:
    with refused_port() as port, pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    with unanswered_port() as port, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await asyncio.open_connection("127.0.0.1", port)
