"""Tokens are counted by the engine, of the same prompt the call would have."""

import json

import anthropic
import pytest
from messages_calls import HELLO, translated

from switchyard_py.dialects.messages import Messages
from switchyard_py.dialects.messages.counting import count_tokens_reply, count_tokens_request
from switchyard_py.engines.vllm import EngineFault
from switchyard_py.errors import RequestRefused

REQUEST = {
    "model": "m",
    "system": "be brief",
    "messages": HELLO,
    "tools": [{"name": "f", "input_schema": {}}],
    "tool_choice": {"type": "any"},
    "thinking": {"type": "adaptive"},
    "chat_template_kwargs": {"a": 1},
    "proxy_x_session_id": "s",
}


def test_the_prompt_is_the_call_s() -> None:
    fields = count_tokens_request(Messages().read(json.dumps(REQUEST).encode()), {})
    sent = {key: json.loads(bytes(value)) for key, value in fields.items()}
    call = translated(REQUEST)
    assert sent.keys() == {"model", "messages", "tools", "chat_template_kwargs"}
    assert sent == {key: call[key] for key in sent}


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"thinking": {"type": "disabled"}}, {"reasoning_effort": "none", "enable_thinking": False}),
        ({"output_config": {"effort": "high"}}, {"reasoning_effort": "high", "enable_thinking": True}),
        (
            {"thinking": {"type": "disabled"}, "chat_template_kwargs": {"enable_thinking": True}},
            {"reasoning_effort": "none", "enable_thinking": True},
        ),
        ({"thinking": {"type": "disabled"}, "chat_template_kwargs": 5}, 5),
    ],
)
def test_thinking_shapes_the_prompt_as_in_the_call(fields: dict[str, object], sent: object) -> None:
    body = json.dumps({"messages": HELLO, **fields}).encode()
    asked = count_tokens_request(Messages().read(body), {})
    assert json.loads(bytes(asked["chat_template_kwargs"])) == sent


def test_a_request_that_cannot_be_served_is_refused() -> None:
    with pytest.raises(RequestRefused, match="must be an array"):
        count_tokens_request(Messages().read(b'{"messages":5}'), {})


def test_the_count_is_the_engine_s() -> None:
    reply = count_tokens_reply(b'{"count":408,"max_model_len":4096,"tokens":[1,2],"token_strs":null}')
    assert anthropic.types.MessageTokensCount.model_validate_json(reply, strict=True).input_tokens == 408


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"count":"5"}', b'{"count":null}'])
def test_a_reply_without_a_count_is_the_engine_s_fault(body: bytes) -> None:
    with pytest.raises(EngineFault, match="no count"):
        count_tokens_reply(body)
