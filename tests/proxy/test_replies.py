"""The agent's reply is the engine's own: nothing it did not ask for is in it, everything it asked for is."""

import json
import re
from typing import Any

import httpx
import pytest
from event_stream import DONE, deltas, events, joined
from running_proxy import HELLO, RunningProxy, StartProxy
from scripted_engine import Exchange, ScriptedEngine, Turn, chat

TURNS = {
    "text": Turn(text="hello you"),
    "reasoning": Turn(reasoning="let me think", text="hello"),
    "tool call": Turn(reasoning="look it up", tool_calls=[("get_weather", {"city": "Paris"}), ("get_time", {})]),
    "text and tool call": Turn(text="I look.", tool_calls=[("get_weather", {"city": "Paris"})]),
    "length": Turn(text="and so on", finish_reason="length"),
}
WISHES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "include_reasoning false": {"include_reasoning": False},
    "logprobs false": {"logprobs": False},
    "logprobs null": {"logprobs": None},
    "logprobs true": {"logprobs": True},
    "top_logprobs 5": {"logprobs": True, "top_logprobs": 5},
    "return_token_ids false": {"return_token_ids": False},
    "return_token_ids true": {"return_token_ids": True},
    "everything": {"logprobs": True, "top_logprobs": 1, "return_token_ids": True},
}
USAGE_WISHES: dict[str, dict[str, Any]] = {
    "no options": {},
    "include_usage true": {"stream_options": {"include_usage": True}},
    "include_usage false": {"stream_options": {"include_usage": False}},
    "options null": {"stream_options": None},
}


async def _direct(engine: ScriptedEngine, body: dict[str, Any]) -> bytes:
    """What the agent would have had from the engine itself."""
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        url = f"{engine.base_url}/chat/completions"
        return (await client.post(url, json={**HELLO, **body, "model": "actual-model"})).content


def _settled(reply: bytes) -> bytes:
    """Without what differs from call to call."""
    return re.sub(rb'"id":"chatcmpl-[\w-]{16,36}","object":"([\w.]+)","created":\d+', rb'"object":"\1"', reply)


async def _is_captured(running: RunningProxy, turn: Turn) -> None:
    record = (await running.records("s"))[-1]
    assert record["is_valid"] is True, record["call"]["invalid_reasons"]
    assert record["prompt_token_ids"] == list(turn.prompt_token_ids)
    assert record["generation_token_ids"] == turn.token_ids
    assert record["generation_log_probs"] == turn.logprobs
    assert record["messages"][-1].get("reasoning", "") == turn.reasoning


@pytest.mark.parametrize("wish", WISHES)
async def test_a_buffered_reply_is_what_a_direct_connection_gets_and_capture_is_intact(
    proxy: StartProxy, engine: ScriptedEngine, wish: str
) -> None:
    running = await proxy()
    for name, turn in TURNS.items():
        engine.default(chat(turn))
        ours = (await running.chat(WISHES[wish], "s")).content
        assert _settled(ours) == _settled(await _direct(engine, WISHES[wish])), name
        await _is_captured(running, turn)


@pytest.mark.parametrize("usage", USAGE_WISHES)
@pytest.mark.parametrize("wish", WISHES)
async def test_a_stream_is_what_a_direct_connection_gets_and_capture_is_intact(
    proxy: StartProxy, engine: ScriptedEngine, wish: str, usage: str
) -> None:
    running = await proxy(target={"stream_whitespace": "as_engine"})
    body = {"stream": True, **WISHES[wish], **USAGE_WISHES[usage]}
    for name, turn in TURNS.items():
        engine.default(chat(turn))
        ours = (await running.chat(body, "s")).content
        assert _settled(ours).split(b"\n\n") == _settled(await _direct(engine, body)).split(b"\n\n"), name
        await _is_captured(running, turn)


@pytest.mark.parametrize("wish", ["nothing", "include_reasoning false", "everything"])
async def test_white_space_that_leads_up_to_a_tool_call_is_dropped_and_nothing_else(
    proxy: StartProxy, engine: ScriptedEngine, wish: str
) -> None:
    running = await proxy()
    body = {"stream": True, **WISHES[wish]}
    for name, turn in TURNS.items():
        engine.default(chat(turn))
        ours, theirs = events((await running.chat(body, "s")).content), events(await _direct(engine, body))
        assert joined(ours, "content") == turn.text, name
        if name != "tool call":
            assert deltas(ours) == deltas(theirs), name
            continue
        assert joined(theirs, "content") == "\n\n"
        without = [delta for delta in deltas(theirs) if not (delta.get("content") or "").isspace()]
        assert [delta for delta in deltas(ours) if delta] == [delta for delta in without if delta]
        assert (await running.records("s"))[-1]["call"]["changed"][-1] == "reply.whitespace"
        await _is_captured(running, turn)


async def test_nothing_of_the_engine_that_was_not_asked_for_is_in_a_reply(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    turn = TURNS["tool call"]
    engine.default(chat(turn))
    for stream in (False, True):
        body: dict[str, Any] = {"stream": stream} if stream else {}
        reply = (await running.chat(body, "s")).text
        assert '"token_ids":[' not in reply
        assert '"prompt_token_ids":[' not in reply
        assert '"logprob"' not in reply
        assert ('"usage"' in reply) is not stream


async def test_include_usage_brings_exactly_one_usage_chunk_before_the_end(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    engine.default(chat(TURNS["text"]))
    with_usage = events((await running.chat({"stream": True, **USAGE_WISHES["include_usage true"]}, "s")).content)
    assert with_usage[-1] == DONE
    assert with_usage[-2]["choices"] == []
    assert with_usage[-2]["usage"]["completion_tokens"] == len(TURNS["text"].tokens)
    assert ["usage" in chunk for chunk in with_usage[:-1]].count(True) == 1
    for wish in ("no options", "include_usage false", "options null"):
        chunks = events((await running.chat({"stream": True, **USAGE_WISHES[wish]}, "s")).content)
        assert all("usage" not in chunk and chunk["choices"] for chunk in chunks[:-1]), wish
    counts = [record["token_count"]["completion_tokens"] for record in await running.records("s")]
    assert counts == [len(TURNS["text"].tokens)] * 4


async def test_more_than_one_choice_is_answered_whole_and_recorded_as_invalid(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    turns = (Turn(text="one"), Turn(text="two", reasoning="hm"))
    engine.default(chat(*turns))
    ours = (await running.chat({"n": 2}, "s")).content
    assert _settled(ours) == _settled(await _direct(engine, {"n": 2}))
    body = {"n": 2, "stream": True}
    streamed, direct = events((await running.chat(body, "s")).content), events(await _direct(engine, body))
    # The scripted engine orders choices by chunk, and has more chunks when it is captured.
    for index in (0, 1):
        assert _of_choice(streamed, index) == _of_choice(direct, index)
    for record in await running.records("s"):
        assert record["is_valid"] is False
        assert record["call"]["invalid_reasons"] == ["more_than_one_choice"]
        assert record["generation_token_ids"] == turns[0].token_ids
        assert record["call"]["choices"][0]["generation_token_ids"] == turns[1].token_ids


def _of_choice(chunks: list[Any], index: int) -> list[Any]:
    return [choice for chunk in chunks if chunk != DONE for choice in chunk["choices"] if choice["index"] == index]


@pytest.mark.parametrize("content_type", ["text/plain; charset=\xff", "application/json; x=\u65e5", "\xe9"])
async def test_a_content_type_of_any_bytes_is_passed_on(
    proxy: StartProxy, engine: ScriptedEngine, content_type: str
) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.headers(200, {"content-type": given.decode("latin-1"), "content-length": "2"})
        await exchange.send(b"{}")

    given = content_type.encode("utf-8" if "\u65e5" in content_type else "latin-1")
    running = await proxy()
    engine.reply(script)
    response = await running.chat({})
    assert (response.status_code, dict(response.headers.raw)[b"content-type"]) == (200, given)


async def test_every_change_to_a_request_is_named(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(
        target={
            "extra_body": {"top_k": 7, "seed": 1},
            "force_body": {"temperature": 0.5},
            "drop_body": ["user"],
            "max_tokens_cap": 100,
        }
    )
    engine.reply(chat(TURNS["text"]))
    echoed = {"role": "assistant", "content": "x", "prompt_token_ids": [1], "generation_log_probs": [0.1]}
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hi"}, echoed, {"role": "user", "content": "go on"}],
        "seed": 9,
        "user": "me",
        "temperature": 1,
        "max_tokens": 500,
        "aws_region_name": None,
        "aws_secret_access_key": "hush",
        "proxy_x_session_id": "s",
    }
    await running.chat(body)
    sent = engine.generations[0].json
    assert sent == {
        "model": "actual-model",
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}, body["messages"][2]],
        "seed": 9,
        "temperature": 0.5,
        "max_tokens": 100,
        "logprobs": True,
        "top_logprobs": 0,
        "return_token_ids": True,
        "top_k": 7,
    }
    (record,) = await running.records("s")
    assert set(record["call"]["changed"]) == {
        *("model", "proxy_x_session_id", "aws_region_name", "aws_secret_access_key", "messages.prompt_token_ids"),
        *("messages.generation_log_probs", "logprobs", "top_logprobs", "return_token_ids", "top_k", "temperature"),
        *("user", "max_tokens"),
    }
    assert record["messages"][:-1] == sent["messages"]
    assert "hush" not in json.dumps(record)
