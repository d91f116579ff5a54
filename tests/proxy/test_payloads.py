"""Large, odd and many: what comes in a body or a header passes as it is, or is refused with a clear word."""

import base64
import gzip
import json
import zlib
from random import Random
from typing import Any

import orjson
import pytest
from event_stream import DONE, events, joined
from running_proxy import HELLO, RunningProxy, StartProxy
from scripted_engine import Exchange, Script, ScriptedEngine, Turn, chat, chat_body, chat_events, sse_reply
from wire_agent import Answer, WireAgent, http_request

MIB = 1024 * 1024
TURN = Turn(text="hello")
SESSION = {"proxy_x_session_id": "s"}


async def _sent(running: RunningProxy, request: bytes, within: float = 20) -> Answer:
    agent = WireAgent(running.port)
    try:
        return await agent.call(request, leave_after=within)
    finally:
        await agent.close()


def _error(answer: Answer) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(answer.body)["error"]
    assert list(error) == ["message", "type", "param", "code"]
    return error


# Bodies beyond the limit


async def test_a_length_beyond_the_limit_is_refused_before_a_byte_of_the_body(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n"
    answer = await _sent(running, head.format(128 * MIB + 1).encode())
    assert (answer.status, _error(answer)["code"]) == (413, "request_too_large")
    assert answer.headers["x-switchyard-error-source"] == "switchyard"
    # 128 MiB are within it, and waited for.
    assert (await _sent(running, head.format(128 * MIB).encode(), within=0.1)).status == 0
    assert (await running.stats())["ledger"]["begun"] == 0


async def test_a_body_without_a_length_is_refused_as_soon_as_it_is_beyond_the_limit(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy(server={"max_body_bytes": 100_000})
    request = http_request(b" " * 300_000, SESSION, chunk_bytes=60_000)
    # The last chunk that says the body is whole never comes.
    answer = await _sent(running, request.removesuffix(b"0\r\n\r\n"))
    assert (answer.status, _error(answer)["code"]) == (413, "request_too_large")
    assert "100000 bytes" in _error(answer)["message"]


# Bodies within it


async def test_an_image_of_20_mb_reaches_the_engine_and_the_record(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(TURN))
    image = "data:image/png;base64," + base64.b64encode(Random(1).randbytes(15_000_000)).decode()
    parts = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": image}}]
    response = await running.chat({"messages": [{"role": "user", "content": parts}]}, "s")
    assert response.status_code == 200
    assert engine.generations[0].json["messages"][0]["content"] == parts
    (file,) = running.files(".json")
    record = orjson.loads(file.read_bytes())
    assert record["messages"][0]["content"] == parts
    assert (record["is_valid"], record["call"]["lossy"]) == (True, False)


def _tool(number: int) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "const": number}}}
    return {"type": "function", "function": {"name": f"tool_{number}", "description": "x", "parameters": schema}}


MANY: dict[str, dict[str, Any]] = {
    "messages": {
        "messages": [{"role": ("user", "assistant")[number % 2], "content": f"{number}"} for number in range(10_000)]
    },
    "tools": {"tools": [_tool(number) for number in range(10_000)]},
    "NUL": {"messages": [{"role": "user", "content": "a\0b"}], "user": "\0"},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", MANY)
async def test_many_and_odd_parts_reach_the_engine_and_the_record(
    proxy: StartProxy, engine: ScriptedEngine, what: str, stream: bool
) -> None:
    running = await proxy()
    engine.reply(chat(TURN))
    body = {**HELLO, **MANY[what], "stream": stream}
    assert (await running.chat(body, "s")).status_code == 200
    sent = engine.generations[0].json
    assert {key: sent[key] for key in MANY[what]} == MANY[what]
    (record,) = await running.records("s")
    assert record["messages"][:-1] == body["messages"]
    assert [tool["id"] for tool in record["tools"]] == [
        tool["function"]["name"] for tool in MANY[what].get("tools", [])
    ]
    assert (record["is_valid"], record["generation_token_ids"]) == (True, TURN.token_ids)


async def test_keys_that_occur_twice_inside_of_a_value_are_none_of_ours(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    engine.reply(chat(TURN))
    messages = b'[{"role":"user","content":"a","content":"b"},{"role":"user","role":"user","content":"c"}]'
    assert (await running.chat(b'{"model":"policy_model","messages":%b}' % messages, "s")).status_code == 200
    assert b'"messages":%b' % messages in engine.generations[0].body
    (file,) = running.files(".json")
    assert b'"messages":' + messages[:-1] in file.read_bytes()


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "a/b; charset=latin-1"]
)
async def test_a_body_is_judged_by_what_it_is_and_not_by_its_content_type(
    proxy: StartProxy, engine: ScriptedEngine, content_type: str | None
) -> None:
    running = await proxy()
    engine.reply(chat(TURN))
    body = json.dumps({**HELLO, "user": "ü"}, ensure_ascii=False)
    request = http_request(body.encode(), SESSION | {"content-type": content_type or "x/y"})
    if content_type is None:
        request = request.replace(b"content-type: x/y\r\n", b"")
    assert (await _sent(running, request)).status == 200
    assert engine.generations[0].header("content-type") == "application/json"
    assert engine.generations[0].json["user"] == "ü"
    # In the encoding the type names it would be no UTF-8, which JSON must be.
    refused = await _sent(running, http_request(body.encode("latin-1"), {"content-type": content_type or "x/y"}))
    assert (refused.status, _error(refused)["code"]) == (400, "invalid_body")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP", "br", "gzip, identity"])
async def test_a_compressed_body_is_refused_with_a_clear_word(
    proxy: StartProxy, engine: ScriptedEngine, encoding: str
) -> None:
    running = await proxy()
    compress = zlib.compress if encoding == "deflate" else gzip.compress
    body = compress(json.dumps(HELLO).encode())
    answer = await _sent(running, http_request(body, SESSION | {"content-encoding": encoding}))
    assert (answer.status, _error(answer)["code"]) == (415, "unsupported_encoding")
    assert "content-encoding" in _error(answer)["message"]
    assert engine.generations == []


@pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
async def test_a_body_that_says_it_is_not_compressed_is_read(
    proxy: StartProxy, engine: ScriptedEngine, encoding: str
) -> None:
    running = await proxy()
    engine.reply(chat(TURN))
    request = http_request(json.dumps(HELLO).encode(), SESSION | {"content-encoding": encoding})
    assert (await _sent(running, request)).status == 200


# Headers


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("x-request-id", 200),
        ("user-agent", 200),
        ("traceparent", 200),
        ("tracestate", 200),
        ("authorization", 200),
        ("thread-id", 200),
        ("cookie", 200),
        ("x-anything", 200),
        ("proxy_x_session_id", 400),
        ("x-parent-session-id", 400),
    ],
)
async def test_a_header_of_1_mb_is_cut_where_it_is_kept_or_refused_where_it_counts(
    proxy: StartProxy, engine: ScriptedEngine, name: str, status: int
) -> None:
    running = await proxy()
    engine.default(chat(TURN))
    answer = await _sent(running, http_request(json.dumps(HELLO).encode(), SESSION | {name: "x" * MIB}))
    assert answer.status == status
    if status == 400:
        assert _error(answer)["code"] == "invalid_session"
        return
    assert all(len(value) < 2000 for _, value in engine.generations[0].headers)
    (file,) = running.files(".json")
    assert file.stat().st_size < 10_000
    record = orjson.loads(file.read_bytes())
    kept = {
        "x-request-id": record["call"]["client"]["request_id"],
        "user-agent": record["call"]["client"]["user_agent"],
    }
    assert (kept.get(name) or "").count("x") in (0, 1024)


# Replies


def _big_content(size: int) -> Script:
    """A reply, buffered or streamed, with a text of so many bytes in one piece."""

    async def script(exchange: Exchange) -> None:
        text, place = "é" * (size // 2), '"content":"hello"'
        if exchange.request.json.get("stream"):
            parts = [event.replace(place.encode(), b"@") for event in chat_events(exchange.request, TURN)]
            await sse_reply([part.replace(b"@", place.replace("hello", text).encode()) for part in parts])(exchange)
        else:
            body = chat_body(exchange.request, TURN)
            body["choices"][0]["message"]["content"] = text
            await exchange.json(json.dumps(body, ensure_ascii=False).encode())

    return script


@pytest.mark.parametrize(("stream", "session"), [(False, "s"), (True, "s"), (True, None)])
async def test_20_mb_of_a_reply_in_one_piece_are_passed_on_and_kept(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool, session: str | None
) -> None:
    running = await proxy()
    engine.reply(_big_content(20_000_000))
    response = await running.chat({"stream": stream}, session)
    assert response.status_code == 200
    if stream:
        chunks = events(response.content)
        assert DONE in chunks
        content = joined(chunks, "content")
    else:
        content = response.json()["choices"][0]["message"]["content"]
    assert content == "é" * 10_000_000
    if session is not None:
        (file,) = running.files(".json")
        record = orjson.loads(file.read_bytes())
        assert record["messages"][-1]["content"] == content
        assert (record["is_valid"], record["generation_token_ids"]) == (True, TURN.token_ids)


async def test_a_line_of_more_than_64_mib_ends_the_stream_with_an_error(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    piece = b"x" * MIB

    async def endless(exchange: Exchange) -> None:
        await exchange.stream_headers()
        await exchange.send(b"data: ")
        while True:
            await exchange.send(piece)

    engine.reply(endless)
    chunks = events((await running.chat({"stream": True}, "s")).content)
    assert "one event of the stream is larger than 67108864 bytes" in chunks[-1]["error"]["message"]
    await engine.until(lambda: engine.aborted == 1)
    assert await running.fates("s") == {"failed": 1}
