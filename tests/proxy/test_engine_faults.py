"""What the agent is told, and what the account says, when the engine fails: beside `faults/test_fault_matrix`."""

from typing import Any

import orjson
import pytest
from event_stream import DONE, events, joined
from running_proxy import StartProxy
from scripted_engine import (
    Exchange,
    Script,
    ScriptedEngine,
    Turn,
    chat,
    chat_events,
    chat_stream,
    json_reply,
    sse_reply,
)

TURN = Turn(text="hello to you")
GIVEN = {"error": {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}}
BODIES: list[dict[str, Any]] = [{}, {"stream": True}]


def _is_error(error: Any, kind: str, code: object) -> None:
    assert list(error) == ["message", "type", "param", "code"]
    assert error["message"]
    assert "Error(" not in error["message"]
    assert (error["type"], error["code"]) == (kind, code)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("status", [400, 404, 408, 409, 413, 422, 429, 500, 501, 502, 503, 529])
async def test_a_refusal_keeps_its_status_its_body_and_its_retry_advice(
    proxy: StartProxy, engine: ScriptedEngine, status: int, body: dict[str, Any]
) -> None:
    running = await proxy()
    given = b'{ "error": {"message": "boom","type":"T","param":null,"code":%d, "extra": 0.10} }' % status
    advice = {"retry-after": "7", "x-ratelimit-remaining": "0", "x-should-retry": "false", "set-cookie": "a=b"}
    engine.reply(json_reply(given, status, advice))
    response = await running.chat(body, "s")
    assert response.status_code == status
    assert response.content == given
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-switchyard-error-source"] == "provider"
    for name, value in advice.items():
        assert response.headers.get(name) == (None if name == "set-cookie" else value)
    assert len(engine.generations) == 1
    assert await running.fates("s") == {"failed": 1}
    assert await running.records("s", include="all") == []


async def test_a_busy_engine_that_says_no_time_is_given_one(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.default(json_reply({"error": {"message": "full"}}, 429))
    assert (await running.chat({}, "s")).headers["retry-after"] == "2"


@pytest.mark.parametrize(
    ("status", "given", "message", "kind"),
    [
        (
            400,
            b'{"detail":[{"loc":["body"],"msg":"bad"}]}',
            '{"detail":[{"loc":["body"],"msg":"bad"}]}',
            "invalid_request_error",
        ),
        (404, b'{"detail":"Not Found"}', "Not Found", "not_found_error"),
        (400, b'{"object":"error","message":"flat"}', "flat", "invalid_request_error"),
        (429, b'{"error":"slow down"}', "slow down", "rate_limit_error"),
        (500, b"Internal Server Error", "Internal Server Error", "server_error"),
        (502, b"<html>bad gateway</html>", "<html>bad gateway</html>", "server_error"),
        (503, b"", None, "server_error"),
        (500, b"\xff\xfe", "\ufffd\ufffd", "server_error"),
        (418, b"[1,2]", "[1,2]", "upstream_error"),
    ],
)
async def test_a_refusal_in_another_shape_is_given_ours(
    proxy: StartProxy, engine: ScriptedEngine, status: int, given: bytes, message: str | None, kind: str
) -> None:
    running = await proxy()
    engine.reply(json_reply(given, status))
    response = await running.chat({}, "s")
    assert response.status_code == status
    _is_error(response.json()["error"], kind, "upstream_error")
    if message is not None:
        assert response.json()["error"]["message"] == message
    assert response.headers["x-switchyard-error-source"] == "provider"


@pytest.mark.parametrize("status", [204, 302, 307, 600, 999])
async def test_another_status_is_no_answer_and_redirects_are_not_followed(
    proxy: StartProxy, engine: ScriptedEngine, status: int
) -> None:
    running = await proxy()
    engine.reply(json_reply(b"", status, {"location": f"{engine.base_url}/models"}))
    response = await running.chat({}, "s")
    assert response.status_code == 502
    assert len(engine.requests) == 1


NO_ANSWERS: dict[str, bytes] = {
    "null": b"null",
    "NaN": b'{"id":"x","choices":[{"index":0,"finish_reason":"stop","x":NaN}]}',
    "no choices": b'{"id":"x","model":"m"}',
    "empty choices": b'{"id":"x","model":"m","choices":[]}',
    "null choices": b'{"id":"x","model":"m","choices":null}',
    "choices of another type": b'{"id":"x","model":"m","choices":[1]}',
    "message of another type": b'{"id":"x","choices":[{"index":0,"message":[],"finish_reason":"stop"}]}',
    "no finish reason": b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant"},"finish_reason":null}]}',
    "too deep": b'{"choices":' + b"[" * 300 + b"]" * 300 + b"}",
}


@pytest.mark.parametrize("name", NO_ANSWERS)
async def test_a_200_that_is_no_answer_is_502_and_the_call_failed(
    proxy: StartProxy, engine: ScriptedEngine, name: str
) -> None:
    running = await proxy()
    engine.reply(json_reply(NO_ANSWERS[name]))
    response = await running.chat({}, "s")
    assert response.status_code == 502
    _is_error(response.json()["error"], "server_error", "upstream_error")
    assert await running.fates("s") == {"failed": 1}


async def test_an_error_inside_a_200_is_passed_on_as_an_error(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(json_reply(GIVEN))
    response = await running.chat({}, "s")
    assert (response.status_code, response.json()) == (502, GIVEN)
    assert response.headers["x-switchyard-error-source"] == "provider"
    assert await running.fates("s") == {"failed": 1}


def _after(count: int, *rest: bytes | dict[str, Any], done: bool = True) -> Script:
    """The first events of a stream, then something else."""

    async def script(exchange: Exchange) -> None:
        await sse_reply([*chat_events(exchange.request, TURN)[:count], *rest], done=done)(exchange)

    return script


BROKEN_STREAMS: dict[str, Script] = {
    "half closed": chat_stream(TURN, events=3, then="half_close"),
    "ended after the usage": chat_stream(TURN, events=8),
    "not an object": _after(3, b"data: [1]\n\n"),
    "no choice at all": sse_reply([{"id": "x", "choices": []}]),
    "[DONE] only": sse_reply([]),
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
async def test_a_broken_stream_ends_with_an_error_event_and_never_with_done(
    proxy: StartProxy, engine: ScriptedEngine, name: str
) -> None:
    running = await proxy()
    engine.reply(BROKEN_STREAMS[name])
    response = await running.chat({"stream": True}, "s")
    assert response.status_code == 200
    chunks = events(response.content)
    assert DONE not in chunks
    _is_error(chunks[-1]["error"], "server_error", "upstream_error")
    assert all("error" not in chunk for chunk in chunks[:-1])
    if name not in ("no choice at all", "[DONE] only"):
        assert joined(chunks, "content").startswith("hello")
    assert await running.fates("s") == {"failed": 1}
    assert await running.records("s", include="all") == []


async def test_what_was_seen_of_a_broken_stream_is_kept_with_the_reason(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    engine.reply(chat_stream(TURN, events=3, then="reset"))
    await running.chat({"stream": True}, "s")
    (file,) = running.files(".failed")
    failed = orjson.loads(file.read_bytes())
    assert failed["reason"].startswith("upstream_error: ")
    assert failed["seen"]["prompt_token_ids"] == list(TURN.prompt_token_ids)
    assert failed["seen"]["generation_token_ids"] == TURN.token_ids[:2]
    assert failed["seen"]["is_valid"] is False


# What Python can read depends on how deep it is called from: some of these depths are read at first and not later.
DEPTHS = range(850, 1000, 2)


def _deep_reply(deep: bytes) -> list[bytes]:
    """A whole stream, with something nested inside its usage."""
    role = b'{"id":"x","model":"m","prompt_token_ids":[1],"choices":[{"index":0,"delta":{"role":"assistant"}}]}'
    last = b'{"choices":[{"index":0,"delta":{"content":"hi"},"token_ids":[2],"finish_reason":"stop"}]}'
    usage = b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"x":' + deep + b"}}"
    return [b"data: " + data + b"\n\n" for data in (role, last, usage)]


@pytest.mark.parametrize("form", ["buffered", "streamed", "broken off"])
async def test_a_reply_too_deep_for_a_record_is_an_engines_fault_and_the_call_ends(
    proxy: StartProxy, engine: ScriptedEngine, form: str
) -> None:
    running = await proxy()
    for depth in DEPTHS:
        deep = b"[" * depth + b"]" * depth
        if form == "buffered":
            choice = b'{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}'
            engine.reply(json_reply(b'{"id":"x","choices":[%b],"usage":{"x":%b}}' % (choice, deep)))
        else:
            engine.reply(sse_reply(_deep_reply(deep), done=form == "streamed"))
        response = await running.chat({"stream": form != "buffered"}, str(depth))
        assert b"internal_error" not in response.content
        if b"error" in response.content:
            assert b"upstream_error" in response.content
        assert sum((await running.fates(str(depth))).values()) == 1
        assert "open" not in await running.fates(str(depth))


async def test_a_buffered_answer_where_a_stream_was_asked_for_is_passed_on(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    engine.reply(
        json_reply(
            {
                "id": "x",
                "model": "m",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
            }
        )
    )
    response = await running.chat({"stream": True}, "s")
    assert response.json()["choices"][0]["message"]["content"] == "hi"
    (record,) = await running.records("s")
    assert record["is_valid"] is False
    assert "no_generation_token_ids" in record["call"]["invalid_reasons"]


@pytest.mark.parametrize("body", BODIES)
async def test_an_uncaptured_call_meets_the_same_errors(
    proxy: StartProxy, engine: ScriptedEngine, body: dict[str, Any]
) -> None:
    running = await proxy()
    engine.reply(json_reply(GIVEN, 500), chat_stream(TURN, events=3, then="reset") if body else json_reply(b"", 204))
    response = await running.chat(body)
    assert (response.status_code, response.json()) == (500, GIVEN)
    response = await running.chat(body)
    if body:
        chunks = events(response.content)
        _is_error(chunks[-1]["error"], "server_error", "upstream_error")
        assert DONE not in chunks
    else:
        assert response.status_code == 502


async def test_a_failed_call_masks_nothing(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(json_reply(GIVEN, 503), chat(TURN))
    await running.chat({}, "s")
    await running.chat({}, "s")
    assert await running.fates("s") == {"failed": 1, "valid": 1}
    assert [record["is_valid"] for record in await running.records("s")] == [True]
