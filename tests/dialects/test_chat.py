"""The chat dialect reads a request without losing a byte of it, and writes errors and streams as SDKs expect them."""

import json

import pytest

from switchyard_py.dialects.chat import Chat, ChatStream
from switchyard_py.dialects.dialect import asked_model
from switchyard_py.engines.vllm import Chunk, Part
from switchyard_py.errors import EngineRefused, Kind, RequestRefused, SwitchyardError
from switchyard_py.rawjson import join_object, split_object

CHAT = Chat()


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}],"a":1e400,"b":' + b"9" * 5000 + b"}",
        b'{"messages":[[]],"deep":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"messages":null}',
        b'{"messages":"[]"}',
        b"{}",
    ],
)
def test_a_request_is_cut_into_its_fields(body: bytes) -> None:
    assert join_object(CHAT.read(body)) == body
    assert CHAT.read(b"\xef\xbb\xbf" + body) == CHAT.read(body)


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        (b"", "invalid_body", "not a JSON object"),
        (b"[]", "invalid_body", "not a JSON object"),
        (b"null", "invalid_body", "not a JSON object"),
        (b'"text"', "invalid_body", "not a JSON object"),
        (b'{"a":NaN}', "invalid_body", "NaN"),
        (b'{"a":"\xff"}', "invalid_body", "not valid UTF-8"),
        (b"\x1f\x8b\x08\x00\x00\x00", "invalid_body", "not valid UTF-8"),
        (b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", "invalid_body", "deeper than 128 levels"),
        (b'{"messages":[]}', "empty_messages", "non-empty"),
        (b'{"messages":[ \n]}', "empty_messages", "non-empty"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(body: bytes, code: str, says: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        CHAT.read(body)
    assert (caught.value.status, caught.value.code) == (400, code)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"model":"a/b"}', "a/b"),
        (b'{"model":"\\u00e9"}', "é"),
        (b'{"model":""}', None),
        (b'{"model":5}', None),
        (b'{"model":null}', None),
        (b"{}", None),
    ],
)
def test_the_model_asked_for_is_a_text(body: bytes, model: str | None) -> None:
    assert asked_model(CHAT.read(body)) == model


def test_an_error_has_the_shape_of_the_dialect() -> None:
    error = RequestRefused(Kind.EMPTY_MESSAGES, "why", param="messages")
    shape = {"message": "why", "type": "invalid_request_error", "param": "messages", "code": "empty_messages"}
    assert json.loads(CHAT.error_body(error, "id")) == {"error": shape}
    assert CHAT.error_event(error, "id") == b"data: " + CHAT.error_body(error, "id") + b"\n\n"


def test_an_engine_s_own_error_is_passed_on_as_it_is_and_on_one_line_as_an_event() -> None:
    given = b'{"error":\r\n {"message": "0.10",\n "code":400}}'
    error = EngineRefused(400, "0.10", given=given)
    assert CHAT.error_body(error, "id") == given
    event = CHAT.error_event(error, "id")
    assert event.count(b"\n") == 2
    assert json.loads(event.removeprefix(b"data: ")) == json.loads(given)
    reshaped = EngineRefused(503, "busy")
    assert json.loads(CHAT.error_body(reshaped, "id"))["error"]["message"] == "busy"
    assert isinstance(reshaped, SwitchyardError)


def chunk(delta: bytes, finish: bytes = b"null") -> Chunk:
    fields = split_object(b'{"index":0,"delta":{},"finish_reason":%b}' % finish)
    part = Part(0, fields, split_object(delta), None, finished=finish != b"null")
    return Chunk(split_object(b'{"id":"c","choices":[]}'), [part])


def written(delta: bytes, finish: bytes = b"null") -> bytes:
    return b'data: {"id":"c","choices":[{"index":0,"delta":%b,"finish_reason":%b}]}\n\n' % (delta, finish)


def test_a_stream_is_written_live_and_its_tail_in_one_piece() -> None:
    stream = ChatStream()
    call = b'{"tool_calls":[{"index":0,"function":{"arguments":%b}}]}'
    assert stream.live(chunk(b'{"content":"0.10\\u00e9"}')) == written(b'{"content":"0.10\\u00e9"}')
    assert stream.live(chunk(call % b'"{"')) == b""
    assert stream.live(chunk(call % b'"}"')) == written(call % b'"{"')
    assert stream.live(chunk(b"{}", b'"tool_calls"')) == b""
    assert stream.live(Chunk(split_object(b'{"choices":[],"usage":{}}'))) == b""
    assert stream.tail() == (
        written(call % b'"}"')
        + written(b"{}", b'"tool_calls"')
        + b'data: {"choices":[],"usage":{}}\n\n'
        + b"data: [DONE]\n\n"
    )


def test_a_chunk_the_engine_wrote_over_several_lines_is_one_line() -> None:
    assert ChatStream().live(chunk(b'{"a":[1,\n2,\r\n{"b":\r3}]}')) == written(b'{"a":[1, 2,  {"b": 3}]}')
