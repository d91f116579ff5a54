"""Errors in the shape Anthropic's clients know, so that they raise, retry and compact as with their own provider."""

import json

import anthropic
import pytest
from messages_calls import HELLO, translated
from scripted_engine import ScriptedEngine, json_reply

from switchyard_py.dialects.messages.errors import error_body, error_event
from switchyard_py.errors import EngineRefused, Kind, RequestRefused, ShuttingDown, SwitchyardError

OVERFLOW = (
    "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens."
)
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}


@pytest.mark.parametrize("kind", Kind)
def test_every_error_has_the_shape_of_the_dialect(kind: Kind) -> None:
    error = SwitchyardError(kind, "why")
    body = json.loads(error_body(error, "req-1"))
    assert body == {
        "type": "error",
        "error": {
            "type": TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error"),
            "message": "why",
        },
        "request_id": "req-1",
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (408, "invalid_request_error"),
        (409, "invalid_request_error"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (501, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_an_engine_s_error_keeps_its_words(status: int, kind: str) -> None:
    error = EngineRefused(status, "so é says the engine", given=b'{"error":{"message":"so \\u00e9 says the engine"}}')
    body = json.loads(error_body(error, "r"))
    assert body["error"] == {"type": kind, "message": "so é says the engine"}


def test_a_prompt_that_is_too_long_is_named_as_agents_expect_in_the_engine_s_words() -> None:
    told = json.loads(error_body(EngineRefused(400, OVERFLOW), "r"))["error"]
    assert told == {"type": "invalid_request_error", "message": f"prompt is too long: {OVERFLOW}"}
    other = json.loads(error_body(RequestRefused(Kind.INVALID_BODY, OVERFLOW), "r"))["error"]
    assert other["message"] == OVERFLOW


def test_a_thread_is_refused_in_the_words_on_which_sdks_send_the_whole_conversation() -> None:
    with pytest.raises(RequestRefused) as refused:
        translated({"model": "m", "max_tokens": 1, "messages": HELLO, "thread": {"type": "create"}})
    told = json.loads(error_body(refused.value, "r"))["error"]
    assert (refused.value.status, told["type"]) == (400, "invalid_request_error")
    assert told["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert translated({"model": "m", "max_tokens": 1, "messages": HELLO, "thread": None})


def test_an_error_in_a_stream_is_one_event() -> None:
    error = ShuttingDown("going\ndown")
    event = error_event(error, "r")
    assert event == b"event: error\ndata: " + error_body(error, "r") + b"\n\n"
    assert event.count(b"\n") == 3


async def test_the_official_client_raises_the_error_that_was_meant(engine: ScriptedEngine) -> None:
    async with anthropic.AsyncAnthropic(base_url=engine.url, api_key="k", max_retries=0) as client:
        for status, expected in ((400, anthropic.BadRequestError), (429, anthropic.RateLimitError)):
            error = EngineRefused(status, OVERFLOW)
            engine.reply(json_reply(error_body(error, "r"), error.status))
            with pytest.raises(expected, match="maximum context length") as caught:
                await client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
            assert isinstance(caught.value, anthropic.APIStatusError)
            assert isinstance(caught.value.body, dict)
            assert caught.value.body["request_id"] == "r"
