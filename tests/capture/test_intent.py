"""When two requests count as the same."""

import json
from typing import Any

import pytest

from switchyard_py.capture.intent import request_digest
from switchyard_py.engines.vllm import generative
from switchyard_py.rawjson import split_object

REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}


def digest(body: bytes | dict[str, Any]) -> str:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request_digest(generative(split_object(text)))


@pytest.mark.parametrize(
    "more",
    [
        {"stream": True},
        {"stream": False},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"proxy_x_session_id": "s"},
        {"request_id": "attempt-2"},
        {"aws_access_key_id": "AKIA"},
    ],
)
def test_how_the_reply_travels_makes_no_other_request(more: dict[str, Any]) -> None:
    assert digest({**REQUEST, **more}) == digest(REQUEST)


def test_the_order_of_fields_makes_no_other_request() -> None:
    assert digest(dict(reversed(REQUEST.items()))) == digest(REQUEST)


@pytest.mark.parametrize(
    "body",
    [
        {**REQUEST, "model": "n"},
        {**REQUEST, "messages": [{"role": "user", "content": "hi "}]},
        {**REQUEST, "seed": None},
        {**REQUEST, "logprobs": True},
        {**REQUEST, "return_token_ids": True},
        {key: value for key, value in REQUEST.items() if key != "temperature"},
        json.dumps(REQUEST).replace("0.5", "5e-1").encode(),
        json.dumps(REQUEST).replace("hi", "h\\u0069").encode(),
    ],
)
def test_a_value_of_other_bytes_does(body: bytes | dict[str, Any]) -> None:
    assert digest(body) != digest(REQUEST)


def test_fields_do_not_run_together() -> None:
    assert len({digest(body) for body in (b'{"a":1,"b":2}', b'{"a":1}', b'{"a":"1,1:b2"}', b'{"a1,1:b":2}')}) == 4


def test_a_key_with_a_lone_surrogate_has_a_digest() -> None:
    assert digest(b'{"\\ud800":1}') != digest(b'{"\\ud801":1}')
