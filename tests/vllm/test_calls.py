"""Each kind of call, buffered and streamed, against a real vLLM.

Three things hold for each: its record is what it should be; the captured log-probs are the ones vLLM gives for the
captured ids when it is asked again; and the agent gets, byte for byte, what vLLM would have sent without capture.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from event_stream import DONE, arguments, deltas, events, joined
from running_proxy import StartProxy

WEATHER = {
    "name": "get_weather",
    "description": "Weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
}
SYSTEM = {"role": "system", "content": "You are a helper."}
# The model is trained to think and greet on the first, to think and call on the second.
HELLO: dict[str, Any] = {"messages": [SYSTEM, {"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 60}
TOOL: dict[str, Any] = {
    "messages": [SYSTEM, {"role": "user", "content": "weather in Paris for 2 days"}],
    "tools": [{"type": "function", "function": WEATHER}],
    "temperature": 0,
    "max_tokens": 150,
}
STRICT = [{"type": "function", "function": {**WEATHER, "strict": True}}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
SAMPLED = {"temperature": 1.0, "seed": 7, "max_tokens": 20}
CALL = r'<tool_call>\n\{"name": "get_weather", "arguments": \{"city": "(Paris|Rome)", "days": [123]\}\}\n</tool_call>'
BROKEN = r'<tool_call>\n\{"name": "get_weather", "arguments": \{"city": Paris\}\n</tool_call>'

# fp32 on one machine: the same sums in another order.
LOG_PROB_TOLERANCE = 1e-5
# vLLM puts two tokens into one chunk when its front end lags behind its engine, with or without a proxy.
ATTEMPTS = 6
SECOND_CHOICE = '{"index":1'


@dataclass(frozen=True)
class Call:
    """A request, and what its record must say."""

    body: dict[str, Any]
    finish_reason: str = "stop"
    streamed_finish_reason: str | None = None
    constrained: bool = False
    invalid_reasons: list[str] = field(default_factory=list)


def grammar(regex: str) -> dict[str, Any]:
    """vLLM's own constraint; thinking is off because it would apply only after it."""
    return {**NO_THINKING, "structured_outputs": {"regex": regex}}


CALLS = {
    "plain": Call({**HELLO, **NO_THINKING}),
    "reasoning": Call(HELLO),
    "sampled": Call({**HELLO, **SAMPLED, "max_tokens": 40, "top_p": 0.9}),
    "length": Call({**HELLO, "max_tokens": 5}, "length"),
    "stop string": Call({**HELLO, "stop": ["a"]}),
    "stop string shown": Call({**HELLO, "stop": ["a"], "include_stop_str_in_output": True}),
    "stop token": Call({**HELLO, "stop_token_ids": [2047]}),
    "second eos": Call({**HELLO, **NO_THINKING, "logit_bias": {"2039": 100}}),
    "two choices": Call({**HELLO, **SAMPLED, "n": 2}, "length", invalid_reasons=["more_than_one_choice"]),
    "tool auto": Call(TOOL, "tool_calls"),
    "tool required": Call({**TOOL, "tool_choice": "required"}, "tool_calls", constrained=True),
    "tool named": Call({**TOOL, "tool_choice": NAMED}, constrained=True),
    "tool none": Call({**TOOL, "tool_choice": "none"}),
    "tool strict": Call({**TOOL, "tools": STRICT, "tool_choice": "required"}, "tool_calls", constrained=True),
    "tool cut": Call({**TOOL, "max_tokens": 40}, "length"),
    "text, then tool": Call({**TOOL, **grammar("hi all\n" + CALL)}, "tool_calls", constrained=True),
    "two tools": Call({**TOOL, **grammar(f"({CALL}\n?){{2}}")}, "tool_calls", constrained=True),
    "first tool only": Call(
        {**TOOL, **grammar(f"({CALL}\n?){{2}}"), "parallel_tool_calls": False}, "tool_calls", constrained=True
    ),
    "tool broken": Call({**TOOL, **grammar(BROKEN)}, "stop", "tool_calls", constrained=True),
    "half characters": Call({**HELLO, **grammar("日本[é☃]{2}")}, constrained=True),
    "json": Call({**HELLO, "response_format": {"type": "json_object"}, "max_tokens": 20}, "length", constrained=True),
    "reasoning hidden": Call({**HELLO, "include_reasoning": False}),
    "reasoning hidden, ids": Call({**HELLO, "include_reasoning": False, "logprobs": True, "return_token_ids": True}),
    "reasoning hidden, tool": Call({**TOOL, "include_reasoning": False}, "tool_calls"),
    "log-probs": Call({**HELLO, "logprobs": True}),
    "top log-probs": Call({**TOOL, "logprobs": True, "top_logprobs": 2}, "tool_calls"),
    "token ids": Call({**TOOL, "return_token_ids": True}, "tool_calls"),
    "ids and log-probs": Call({**TOOL, "return_token_ids": True, "logprobs": True}, "tool_calls"),
    "ids of two choices": Call(
        {**HELLO, **SAMPLED, "n": 2, "return_token_ids": True}, "length", invalid_reasons=["more_than_one_choice"]
    ),
    "tokens as ids": Call({**HELLO, "logprobs": True, "return_tokens_as_token_ids": True}),
    "prompt text": Call({**HELLO, "return_prompt_text": True}),
    # So large that the proxy takes it apart beside its event loop.
    "unknown field": Call({**HELLO, "padding": "x" * 40_000}),
}

# Meaningful only in a stream.
STREAM_OPTIONS = {
    "usage": Call({**HELLO, "stream_options": {"include_usage": True}}),
    "usage of two choices": Call(
        {**HELLO, **SAMPLED, "n": 2, "stream_options": {"include_usage": True}},
        "length",
        invalid_reasons=["more_than_one_choice"],
    ),
    "continuous usage": Call(
        {**TOOL, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}, "tool_calls"
    ),
    "only continuous usage": Call({**HELLO, "stream_options": {"continuous_usage_stats": True}}),
    "several tokens a chunk": Call({**HELLO, "stream_interval": 4}),
}

REFUSED = {
    "prompt too long": {"messages": [{"role": "user", "content": "word " * 5000}]},
    "max_tokens too large": {**HELLO, "max_tokens": 5000},
    "unknown tool named": {**TOOL, "tool_choice": {"type": "function", "function": {"name": "nothing"}}},
    "negative temperature": {**HELLO, "temperature": -1},
    "messages missing": {"messages": None},
}

EVERY_CALL = pytest.mark.parametrize(
    ("call", "streamed"),
    [
        *(pytest.param(call, False, id=name) for name, call in CALLS.items()),
        *(pytest.param(call, True, id=f"{name}, streamed") for name, call in (CALLS | STREAM_OPTIONS).items()),
    ],
)
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["buffered", "streamed"])
MeasureError = Callable[[list[int], dict[str, Any]], Awaitable[float]]


@EVERY_CALL
async def test_the_record_holds_the_tokens_of_the_engine(
    proxy: StartProxy,
    log_prob_error: MeasureError,
    call: Call,
    streamed: bool,
) -> None:
    running = await proxy()
    response = await running.chat({**call.body, "stream": streamed}, "s")
    assert response.status_code == 200, response.text
    (record,) = await running.records("s")
    assert record["call"]["invalid_reasons"] == call.invalid_reasons
    assert record["is_valid"] is (call.invalid_reasons == [])
    assert record["finish_reason"] == ((streamed and call.streamed_finish_reason) or call.finish_reason)
    assert record["call"]["constrained"] is call.constrained
    assert record["call"]["truncated"] is (call.finish_reason == "length")
    assert record["call"]["engine"]["version"] == "0.32.0"
    assert record["request_id"] == f"chatcmpl-{record['uuid']}"
    for choice in [record, *record["call"]["choices"]]:
        assert choice["generation_token_ids"]
        assert len(choice["generation_token_ids"]) == len(choice["generation_log_probs"])
        if not call.constrained:
            assert await log_prob_error(record["prompt_token_ids"], choice) < LOG_PROB_TOLERANCE


@EVERY_CALL
async def test_the_agent_gets_what_the_engine_would_have_sent(
    proxy: StartProxy, vllm: httpx.AsyncClient, call: Call, streamed: bool
) -> None:
    # By default, white space before a streamed tool call is dropped; the tool loop below tells why.
    running = await proxy(stream_whitespace="as_engine")
    body = {**call.body, "stream": streamed}
    for _ in range(ATTEMPTS):
        direct = await vllm.post("/v1/chat/completions", json={"model": "tiny", **body})
        proxied = await running.chat(body, "s")
        expected, seen = _events(direct), _events(proxied)
        if seen == expected:
            break
    assert seen == expected
    assert proxied.status_code == direct.status_code == 200
    assert proxied.headers["content-type"] == direct.headers["content-type"]


@STREAMED
@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
async def test_a_refusal_reaches_the_agent_in_the_words_of_the_engine(
    proxy: StartProxy, vllm: httpx.AsyncClient, body: dict[str, Any], streamed: bool
) -> None:
    running = await proxy()
    asked = {**body, "stream": streamed}
    direct = await vllm.post("/v1/chat/completions", json={"model": "tiny", **asked})
    proxied = await running.chat(asked, "s")
    assert (proxied.status_code, proxied.content) == (direct.status_code, direct.content)
    assert proxied.status_code == 400
    assert proxied.headers["x-switchyard-error-source"] == "provider"
    assert await running.fates("s") == {"failed": 1}


async def test_a_refusal_inside_a_stream_ends_it(proxy: StartProxy, vllm: httpx.AsyncClient) -> None:
    # The engine looks at this number only once its reply has begun.
    running = await proxy()
    asked = {**HELLO, "logprobs": True, "top_logprobs": 21, "stream": True}
    direct = await vllm.post("/v1/chat/completions", json={"model": "tiny", **asked})
    proxied = await running.chat(asked, "s")
    assert proxied.status_code == direct.status_code == 200
    # SDKs take anything after [DONE], and the engine sends it even here, for a good end.
    assert [*events(proxied.content), DONE] == events(direct.content)
    assert await running.fates("s") == {"failed": 1}


@STREAMED
async def test_a_call_without_session_is_passed_on(proxy: StartProxy, vllm: httpx.AsyncClient, streamed: bool) -> None:
    running = await proxy()
    # One token cannot be put into one chunk with another.
    body = {**HELLO, "max_tokens": 1, "stream": streamed}
    direct = await vllm.post("/v1/chat/completions", json={"model": "tiny", **body})
    assert _events(await running.chat(body)) == _events(direct)
    assert running.files(".json") == []


async def test_concurrent_calls_keep_their_tokens_apart(proxy: StartProxy, log_prob_error: MeasureError) -> None:
    running = await proxy()
    names = [f"session-{number}" for number in range(8)]
    bodies = [
        {**HELLO, "temperature": 1.0, "max_tokens": 60, "seed": number, "stream": number % 2 == 0}
        for number in range(len(names))
    ]
    replies = await asyncio.gather(*map(running.chat, bodies, names))
    assert [reply.status_code for reply in replies] == [200] * len(names)
    for name, body in zip(names, bodies, strict=True):
        (record,) = await running.records(name)
        assert record["is_valid"]
        assert record["call"]["sampling"]["seed"] == body["seed"]
        assert await log_prob_error(record["prompt_token_ids"], record) < LOG_PROB_TOLERANCE


@STREAMED
async def test_in_a_tool_loop_a_prompt_begins_with_the_tokens_of_the_call_before(
    proxy: StartProxy, streamed: bool
) -> None:
    # White space that a stream has before a call would be doubled by the chat template of the next prompt.
    running = await proxy()
    messages = list(TOOL["messages"])
    for _ in range(2):
        answer = _message(await running.chat({**TOOL, "messages": messages, "stream": streamed}, "s"), streamed)
        messages.append(answer)
        for call in answer.get("tool_calls") or []:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "22 C"})
    first, second = await running.records("s")
    assert (first["finish_reason"], second["finish_reason"]) == ("tool_calls", "stop")
    seen = first["prompt_token_ids"] + first["generation_token_ids"]
    assert second["prompt_token_ids"][: len(seen)] == seen
    assert [record["messages"] for record in (first, second)] == [messages[:3], messages]
    assert await running.fates("s") == {"valid": 2}


def _message(response: httpx.Response, streamed: bool) -> dict[str, Any]:
    """What an agent that resends reasoning keeps of an answer."""
    if not streamed:
        given = response.json()["choices"][0]["message"]
        return {key: given[key] for key in ("role", "content", "tool_calls", "reasoning") if given.get(key)}
    chunks = events(response.content)
    texts = {key: joined(chunks, key) for key in ("content", "reasoning")}
    message: dict[str, Any] = {"role": "assistant", **texts}
    started = [call for delta in deltas(chunks) for call in delta.get("tool_calls") or [] if call.get("id")]
    for call in started:
        function = {"name": call["function"]["name"], "arguments": arguments(chunks)}
        message["tool_calls"] = [{"id": call["id"], "type": "function", "function": function}]
    return {key: value for key, value in message.items() if value}


def _events(response: httpx.Response) -> list[str]:
    """The reply's text, event by event, with what differs from call to call left out."""
    text = re.sub(r'"id":"chatcmpl-[^"]*"', '"id":"..."', response.text)
    found = re.sub(r'"created":\d+', '"created":0', text).split("\n\n")
    if not any(event.startswith(SECOND_CHOICE) for event in map(_choices, found)):
        return found
    # Which of two choices is ahead changes from call to call, so one is put behind the other.
    return sorted(found, key=lambda event: _choices(event).startswith(SECOND_CHOICE))


def _choices(event: str) -> str:
    return event.partition('"choices":[')[2]
