"""Errors in the shape OpenAI's clients know, so that they raise, retry and compact as with their own provider."""

import json

import openai
import pytest
from openai_responses import read_events
from responses_calls import CALL_ID
from scripted_engine import ScriptedEngine, json_reply, sse_reply

from switchyard_py.dialects.responses import Responses
from switchyard_py.errors import EngineRefused, Kind, SwitchyardError

RESPONSES = Responses()
OVERFLOW = (
    "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens."
)
VLLM_OVERFLOW = json.dumps(
    {"error": {"message": OVERFLOW, "type": "BadRequestError", "param": "input_tokens", "code": 400}}
).encode()
TOO_LONG = EngineRefused(400, OVERFLOW, given=VLLM_OVERFLOW)


# The codes of OpenAI, which Codex tells apart; the official models know them all but the one for a long prompt.
def failure(status: int) -> str:
    """Codex gives up after `invalid_prompt` and tries again after the other."""
    return "server_error" if status >= 500 or status == 408 else "invalid_prompt"


@pytest.mark.parametrize("kind", Kind)
def test_every_error_has_the_shape_of_the_dialect(kind: Kind) -> None:
    error = SwitchyardError(kind, "why", param="input")
    told = {"message": "why", "type": kind.value.type, "param": "input", "code": kind.value.code}
    assert json.loads(RESPONSES.error_body(error, CALL_ID)) == {"error": told}
    event, failed = read_events(RESPONSES.error_event(error, CALL_ID))
    assert event == {
        "type": "error",
        "sequence_number": 0,
        "code": kind.value.code,
        "message": "why",
        "param": "input",
        "error": told,
    }
    assert failed["type"] == "response.failed"
    response = failed["response"]
    assert (response["id"], response["status"]) == ("resp_" + CALL_ID.replace("-", ""), "failed")
    assert response["error"] == {"code": failure(error.status), "message": "why"}


def test_an_engine_s_own_error_is_passed_on() -> None:
    given = b'{"error":{"message":"so \\u00e9 says the engine","code":400}}'
    assert RESPONSES.error_body(EngineRefused(400, "so é says the engine", given=given), CALL_ID) == given


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", "invalid_prompt"),
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (500, "server_error", "server_error"),
    ],
)
def test_an_engine_s_error_in_a_stream(status: int, kind: str, code: str) -> None:
    event, failed = read_events(RESPONSES.error_event(EngineRefused(status, "going\ndown"), CALL_ID))
    assert (event["error"]["type"], event["message"]) == (kind, "going\ndown")
    assert failed["response"]["error"] == {"code": code, "message": "going\ndown"}


def test_a_prompt_that_is_too_long_is_named_as_agents_expect_in_the_engine_s_words() -> None:
    told = {"message": OVERFLOW, "type": "invalid_request_error", "param": None, "code": "context_length_exceeded"}
    assert json.loads(RESPONSES.error_body(TOO_LONG, CALL_ID)) == {"error": told}
    events = RESPONSES.error_event(TOO_LONG, CALL_ID).split(b"\n\n")
    error, failed = (json.loads(event.partition(b"data: ")[2]) for event in events if event)
    assert error["error"] == told
    assert failed["response"]["error"] == {"code": "context_length_exceeded", "message": OVERFLOW}


async def test_the_official_client_raises_the_error_that_was_meant(engine: ScriptedEngine) -> None:
    async with openai.AsyncOpenAI(base_url=engine.base_url, api_key="k", max_retries=0) as client:
        engine.reply(json_reply(RESPONSES.error_body(TOO_LONG, CALL_ID), 400))
        with pytest.raises(openai.BadRequestError, match="maximum context length") as refused:
            await client.responses.create(model="m", input="hi")
        assert refused.value.code == "context_length_exceeded"
        error = SwitchyardError(Kind.UPSTREAM_ERROR, "the engine's stream ended early")
        engine.reply(sse_reply([RESPONSES.error_event(error, CALL_ID)], done=False))
        with pytest.raises(openai.APIError, match="ended early") as broken:
            async for _ in await client.responses.create(model="m", input="hi", stream=True):
                pass
        assert broken.value.code == "upstream_error"
