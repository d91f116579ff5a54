"""Hostile and odd requests: what is JSON reaches the engine byte for byte, what is not is refused at once."""

import gzip
import json
from typing import Any

import orjson
import pytest
from reference_cases import reference_case
from running_proxy import StartProxy
from scripted_engine import ScriptedEngine, Turn, chat

UNKNOWN_FIELDS: dict[str, Any] = {
    key: value
    for key, value in reference_case("extra_fields_passthrough").request_json.items()
    if key not in ("model", "messages")
}
TAIL = b',"logprobs":true,"top_logprobs":0,"return_token_ids":true}'
MESSAGES = b'"messages":[{"role":"user","content":"hi"}]'


def _body(*members: bytes) -> bytes:
    return b'{"model":"policy_model",' + b",".join(members) + b"}"


HOSTILE = {
    "39 unknown fields": _body(MESSAGES, json.dumps(UNKNOWN_FIELDS, separators=(",", ":")).encode()[1:-1]),
    "key order": _body(
        b'"tools":[{"type":"function","function":{"parameters":{"zcity":{"type":"string"},"aunit":{}},"name":"w"}}]',
        b'"zzz":{"z":1,"a":{"y":2,"b":3}}',
        b'"messages":[{"role":"user","content":"hi","a":1},{"content":"x","role":"user"}]',
        b'"aaa":1',
    ),
    "lone surrogates": _body(b'"messages":[{"role":"user","content":"a\\ud800b \\udc00","x\\udfff":1}]'),
    "lone surrogate in a field": _body(MESSAGES, b'"user":"\\ud83d"'),
    "integers beyond 64 bits": _body(MESSAGES, b'"seed":123456789012345678901234567890,"x":[-9223372036854775809]'),
    "integers beyond 64 bits in a message": _body(
        b'"messages":[{"role":"user","content":"hi","n":18446744073709551616}]'
    ),
    "1e400": _body(MESSAGES, b'"temperature":1e400,"x":-1E+400'),
    "1e400 in a message": _body(b'"messages":[{"role":"user","content":"hi","n":1e400}]'),
    "0.10": _body(MESSAGES, b'"temperature":0.10,"top_p":1.0,"x":[1E2,-0,-0.0,5e-324]'),
    "escapes": _body(b'"messages":[{"role":"user","content":"\\u00e9 \xc3\xa9 \\/ \\u0000 \\ud83d\\ude00"}]'),
    "white space inside values": _body(b'"messages":[ {"role" : "user",\n\t"content": "hi"} ],"x":{ "y" : [ 1 , 2 ] }'),
    "5 MB message": _body(b'"messages":[{"role":"user","content":"%b"}]' % (b"x" * 5_000_000)),
    "depth 100": _body(MESSAGES, b'"x":' + b"[" * 98 + b"]" * 98),
    "depth 100 in a message": _body(
        b'"messages":[{"role":"user","content":"hi","x":%b}]' % (b'{"y":' * 95 + b"1" + b"}" * 95)
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
async def test_every_byte_reaches_the_engine_and_the_record_is_readable(
    proxy: StartProxy, engine: ScriptedEngine, name: str, stream: bool
) -> None:
    running = await proxy()
    engine.reply(chat(Turn(text="hello")))
    sent = HOSTILE[name][:-1] + (b',"stream":true}' if stream else b"}")
    response = await running.chat(sent, "s")
    assert response.status_code == 200, response.text
    tail = TAIL[:-1] + b',"stream_options":{"include_usage":true}}' if stream else TAIL
    assert engine.generations[0].body == sent.replace(b'"policy_model"', b'"actual-model"')[:-1] + tail
    (file,) = running.files(".json")
    record = orjson.loads(file.read_bytes())
    assert record["is_valid"] is True
    # What orjson would refuse was replaced, and the record says so.
    assert record["call"]["lossy"] is ("lone surrogates" in name or name == "1e400 in a message" or name == "1e400")
    assert orjson.loads((await running.client.get("/v1/sessions/s/completions")).content)["completions"] == [record]


async def test_lossy_replacements_in_the_record(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(Turn(text="hello")))
    await running.chat(_body(b'"messages":[{"role":"user","content":"a\\ud800b","n":1e400}]'), "s")
    (record,) = await running.records("s")
    assert record["messages"][0] == {"role": "user", "content": "a\ufffdb", "n": "1e400"}


@pytest.mark.parametrize("captured", [True, False])
async def test_without_a_session_every_byte_reaches_the_engine_as_well(
    proxy: StartProxy, engine: ScriptedEngine, captured: bool
) -> None:
    running = await proxy(captures=captured)
    engine.default(chat(Turn(text="hello")))
    for name, sent in HOSTILE.items():
        assert (await running.chat(sent, None if captured else "s")).status_code == 200, name
        assert engine.generations[-1].body == sent.replace(b'"policy_model"', b'"actual-model"'), name


async def test_a_byte_order_mark_is_dropped_and_the_last_of_equal_keys_counts(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    engine.reply(chat(Turn(text="hello")))
    response = await running.chat(b'\xef\xbb\xbf{"model":"nope","seed":1,' + _body(MESSAGES, b'"seed":2')[1:], "s")
    assert response.status_code == 200
    assert (engine.generations[0].json["model"], engine.generations[0].json["seed"]) == ("actual-model", 2)
    assert engine.generations[0].body.count(b'"seed"') == 1


REFUSED = {
    "depth 300": (_body(MESSAGES, b'"x":' + b"[" * 300 + b"]" * 300), "invalid_body"),
    "depth 100000": (b"[" * 100_000, "invalid_body"),
    "invalid UTF-8": (_body(b'"messages":[{"role":"user","content":"\xff\xfe"}]'), "invalid_body"),
    "encoded surrogate": (_body(b'"messages":[{"role":"user","content":"\xed\xa0\x80"}]'), "invalid_body"),
    "array": (b"[1,2]", "invalid_body"),
    "string": (b'"x"', "invalid_body"),
    "number": (b"5", "invalid_body"),
    "null": (b"null", "invalid_body"),
    "empty": (b"", "invalid_body"),
    "white space": (b" \n", "invalid_body"),
    "truncated": (_body(MESSAGES)[:-1], "invalid_body"),
    "two values": (_body(MESSAGES) + b"{}", "invalid_body"),
    "NaN": (_body(MESSAGES, b'"temperature":NaN'), "invalid_body"),
    "Infinity": (_body(MESSAGES, b'"temperature":-Infinity'), "invalid_body"),
    "NaN beside a lone surrogate": (_body(MESSAGES, b'"user":"\\ud800","temperature":NaN'), "invalid_body"),
    "gzip without header": (gzip.compress(_body(MESSAGES)), "invalid_body"),
    "no messages": (_body(b'"messages":[]'), "empty_messages"),
    "no messages, with space": (_body(b'"messages": [ \n ]'), "empty_messages"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_read_is_400_in_the_error_shape_and_nothing_is_sent(
    proxy: StartProxy, engine: ScriptedEngine, name: str
) -> None:
    running = await proxy()
    body, code = REFUSED[name]
    response = await running.chat(body, "s")
    assert response.status_code == 400
    assert response.headers["x-switchyard-error-source"] == "switchyard"
    assert response.headers["content-type"] == "application/json"
    (error,) = response.json().values()
    assert list(error) == ["message", "type", "param", "code"]
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    assert engine.generations == []
    assert (await running.client.get("/v1/sessions/s/completions")).status_code == 404


async def test_a_body_beyond_the_limit_is_413_and_names_the_limit(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(server={"max_body_bytes": 1000})
    response = await running.chat(_body(MESSAGES, b'"x":"%b"' % (b"x" * 1000)), "s")
    assert response.status_code == 413
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "request_too_large")
    assert "1000 bytes" in error["message"]
    assert "server.max_body_bytes" in error["message"]
    assert engine.generations == []
