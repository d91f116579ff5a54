"""What an engine repeats of the credentials it was shown."""

import json
from typing import Any

import pytest

from switchyard_py.config import Target
from switchyard_py.routing.credentials import hide_credentials, hide_credentials_in_error
from switchyard_py.upstream import UpstreamRequest


def target(**settings: Any) -> Target:
    return Target(**{"model": "m", "base_url": "http://h:8000/v1", **settings})


@pytest.mark.parametrize(
    ("settings", "said", "shown"),
    [
        ({"api_key": "sk-secret-1"}, "Incorrect key: sk-secret-1.", "Incorrect key: ***."),
        ({"api_key": "sk-secret-1"}, "got 'Bearer sk-secret-1', sk-secret-1", "got 'Bearer ***', ***"),
        ({"api_key": "sk-secret-1"}, r"key:\nsk-secret-1\n", r"key:\n***\n"),
        ({"extra_headers": {"x-gateway": "gateway-key"}}, "x-gateway: gateway-key", "x-gateway: ***"),
        ({"extra_headers": {"Authorization": "Basic dXNlcjpw"}}, "token dXNlcjpw is old", "token *** is old"),
        ({"base_url": "http://user:pass-word@h/v1"}, "no http://user:pass-word@h", "no http://user:***@h"),
        ({"base_url": "http://user:p%40ss-word@h/v1"}, "p%40ss-word or p@ss-word", "*** or ***"),
        ({"base_url": "http://user:pass-word@h/v1"}, "Basic dXNlcjpwYXNzLXdvcmQ=", "Basic ***"),
        ({"api_key": "sk-secret", "extra_headers": {"x-a": "sk-secret-long"}}, "sk-secret-long", "***"),
        ({"api_key": "a.b.c.d.e"}, "a.b.c.d.e aXbXcXdXe", "*** aXbXcXdXe"),
        # Too short for a secret: words of ordinary texts.
        ({"api_key": "EMPTY", "extra_headers": {"x-a": "model"}}, "EMPTY model", "EMPTY model"),
        ({}, "nothing to hide", "nothing to hide"),
    ],
)
def test_credentials_are_hidden_however_they_are_quoted(settings: dict[str, Any], said: str, shown: str) -> None:
    assert hide_credentials(said, target(**settings)) == shown
    assert hide_credentials(said.encode(), target(**settings)) == shown.encode()


@pytest.mark.parametrize("ascii_only", [False, True])
def test_credentials_are_hidden_in_json_text_too(ascii_only: bool) -> None:
    secret = 'quote"back\\slash-é'
    body = json.dumps({"error": {"message": f"unknown: {secret}"}}, ensure_ascii=ascii_only)
    assert (
        json.loads(hide_credentials(body, target(extra_headers={"x-a": secret})))["error"]["message"] == "unknown: ***"
    )


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    assert hide_credentials(b"\xff\x00 sk-secret-1 \xc3", target(api_key="sk-secret-1")) == b"\xff\x00 *** \xc3"


def test_only_what_may_be_an_error_is_looked_at() -> None:
    told = target(api_key="sk-secret-1")
    answer = b'{"choices":[{"message":{"content":"sk-secret-1"}}]}'
    assert hide_credentials_in_error(answer, told) is answer
    assert hide_credentials_in_error(b'{"error":"sk-secret-1"}', told) == b'{"error":"***"}'
    large = b'{"error":"' + b"x" * 2**20 + b'sk-secret-1"}'
    assert hide_credentials_in_error(large, told) is large


def test_a_request_to_an_engine_shows_nothing_of_itself() -> None:
    request = UpstreamRequest("POST", "http://u:password@h", [("authorization", "Bearer sk-secret-1")], b"sk-secret-1")
    assert "secret" not in repr(request)
    assert "password" not in repr(request)
