"""Chat completions over a socket: what the request's fields do to the reply."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchyard_py.simulator.tokenizer import IM_END, decode, encode

ASKED = [{"role": "user", "content": "weather in Paris"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]},
    },
}
CAPTURE = {"logprobs": True, "top_logprobs": 0, "return_token_ids": True}


async def chat(client: httpx.AsyncClient, messages: Any = ASKED, **fields: Any) -> dict[str, Any]:
    reply = await client.post("/v1/chat/completions", json={"messages": messages, **fields})
    assert reply.status_code == 200, reply.text
    whole: dict[str, Any] = reply.json()
    return whole


async def chunks(client: httpx.AsyncClient, messages: Any = ASKED, **fields: Any) -> list[dict[str, Any]]:
    reply = await client.post("/v1/chat/completions", json={"messages": messages, "stream": True, **fields})
    assert reply.status_code == 200, reply.text
    *events, done, rest = reply.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def put_together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The one choice of a stream, in the shape of a reply."""
    whole: dict[str, Any] = {"content": "", "reasoning": "", "calls": [], "ids": [], "logprobs": [], "finish": None}
    for choice in (choice for part in parts for choice in part["choices"]):
        delta = choice["delta"]
        whole["content"] += delta.get("content") or ""
        whole["reasoning"] += delta.get("reasoning") or ""
        for call in delta.get("tool_calls", []):
            function = call["function"]
            if "name" in function:
                whole["calls"].append([function["name"], ""])
            whole["calls"][call["index"]][1] += function.get("arguments", "")
        whole["ids"] += choice.get("token_ids") or []
        whole["logprobs"] += (choice["logprobs"] or {"content": []})["content"]
        if choice["finish_reason"]:
            whole["finish"] = (choice["finish_reason"], choice["stop_reason"])
    return whole


async def test_a_tool_conversation_continues_its_token_sequence(running: Any) -> None:
    async with running() as client:
        first = await chat(client, tools=[TOOL], **CAPTURE)
        choice = first["choices"][0]
        result = {"role": "tool", "tool_call_id": choice["message"]["tool_calls"][0]["id"], "content": '{"temp": 4}'}
        second = await chat(client, [*ASKED, choice["message"], result], tools=[TOOL], **CAPTURE)
        dropped = {**choice["message"], "reasoning": None}
        third = await chat(client, [*ASKED, dropped, result], tools=[TOOL], **CAPTURE)
    before = first["prompt_token_ids"] + choice["token_ids"]
    assert choice["finish_reason"] == "tool_calls"
    assert second["prompt_token_ids"][: len(before)] == before
    assert '{"temp": 4}' in decode(second["prompt_token_ids"][len(before) :])
    assert "temp" in second["choices"][0]["message"]["content"]
    assert third["prompt_token_ids"][: len(before)] != before


REQUESTS = st.fixed_dictionaries(
    {
        "messages": st.text(max_size=20).map(lambda text: [{"role": "user", "content": text}]),
        "chat_template_kwargs": st.booleans().map(lambda on: {"enable_thinking": on}),
    },
    optional={
        "tools": st.just([TOOL]),
        "max_tokens": st.integers(1, 200),
        "stop": st.sampled_from([["an"], ["tool", "said"], ["\n\n"], ["}"]]),
        "include_stop_str_in_output": st.booleans(),
        "stop_token_ids": st.sampled_from([[ord("e")], [ord("{")]]),
        "stream_interval": st.integers(1, 7),
        "seed": st.integers(0, 3),
    },
)


@pytest.fixture
def requests_served() -> list[dict[str, Any]]:
    """A spread of requests, the same in every run."""
    drawn: list[dict[str, Any]] = []

    @settings(max_examples=60, database=None, derandomize=True)
    @given(REQUESTS)
    def draw(request: dict[str, Any]) -> None:
        drawn.append(request)

    draw()
    return drawn


async def test_a_stream_says_what_the_reply_says(running: Any, requests_served: list[dict[str, Any]]) -> None:
    async with running() as client:
        for request in requests_served:
            reply = await chat(client, **request, **CAPTURE)
            parts = await chunks(client, **request, **CAPTURE, stream_options={"include_usage": True})
            choice, streamed = reply["choices"][0], put_together(parts)
            assert parts[0]["prompt_token_ids"] == reply["prompt_token_ids"]
            assert streamed["ids"] == choice["token_ids"]
            assert streamed["logprobs"] == choice["logprobs"]["content"]
            assert parts[-1]["usage"].items() <= reply["usage"].items()
            assert len(streamed["ids"]) == len(streamed["logprobs"]) == reply["usage"]["completion_tokens"]
            assert len(reply["prompt_token_ids"]) == reply["usage"]["prompt_tokens"]
            message = choice["message"]
            assert streamed["reasoning"] == (message["reasoning"] or "")
            calls = [[c["function"]["name"], c["function"]["arguments"]] for c in message.get("tool_calls", [])]
            # A call that did not end is text in the reply and the beginning of a call in the stream.
            if calls or "<tool_call>" not in (message["content"] or ""):
                assert streamed["calls"] == calls
                assert streamed["content"].strip() == (message["content"] or "").strip()
                assert streamed["finish"] == (choice["finish_reason"], choice["stop_reason"])


async def test_captured_logprobs_are_those_of_the_prompt_again(running: Any) -> None:
    async with running() as client:
        reply = await chat(client, tools=[TOOL], **CAPTURE)
        choice = reply["choices"][0]
        ids = reply["prompt_token_ids"] + choice["token_ids"]
        again = await client.post("/v1/completions", json={"prompt": ids, "max_tokens": 1, "prompt_logprobs": 0})
    positions = again.json()["choices"][0]["prompt_logprobs"][len(reply["prompt_token_ids"]) :]
    known = [position[str(token)]["logprob"] for token, position in zip(choice["token_ids"], positions, strict=True)]
    assert known == [entry["logprob"] for entry in choice["logprobs"]["content"]]


async def test_without_capture_the_keys_are_null_and_empty_chunks_are_left_out(running: Any) -> None:
    async with running() as client:
        reply = await chat(client, tools=[TOOL])
        plain = await chunks(client, tools=[TOOL])
        captured = await chunks(client, tools=[TOOL], **CAPTURE)
    choice = reply["choices"][0]
    assert (reply["prompt_token_ids"], choice["token_ids"], choice["logprobs"]) == (None, None, None)
    assert plain[0]["prompt_token_ids"] is None
    assert all(part["choices"][0]["delta"] or part["choices"][0]["finish_reason"] for part in plain)
    assert not all(part["choices"][0]["delta"] or part["choices"][0]["finish_reason"] for part in captured)
    visible = [part["choices"][0]["delta"] for part in captured if part["choices"][0]["delta"]]
    shown = [part["choices"][0]["delta"] for part in plain if part["choices"][0]["delta"]]
    assert without_call_ids(shown) == without_call_ids(visible)


def without_call_ids(deltas: list[dict[str, Any]]) -> list[Any]:
    return [[{**call, "id": ""} for call in d["tool_calls"]] if "tool_calls" in d else d for d in deltas]


async def test_leaving_the_reasoning_out_loses_the_ids(running: Any) -> None:
    async with running() as client:
        reply = await chat(client, **CAPTURE, include_reasoning=False)
        parts = await chunks(client, **CAPTURE, include_reasoning=False)
    choice = reply["choices"][0]
    assert choice["message"]["reasoning"] is choice["token_ids"] is choice["logprobs"] is None
    assert reply["prompt_token_ids"] == parts[0]["prompt_token_ids"] != []
    deltas = [choice["delta"] for part in parts for choice in part["choices"]]
    assert not any(delta.get("reasoning") for delta in deltas)
    assert all(("reasoning" in delta) == bool(delta.get("content")) for delta in deltas)
    assert put_together(parts)["content"] == choice["message"]["content"]


async def test_top_logprobs_come_in_order(running: Any) -> None:
    async with running() as client:
        reply = await chat(client, logprobs=True, top_logprobs=3, max_tokens=5)
    for entry in reply["choices"][0]["logprobs"]["content"]:
        assert entry["top_logprobs"][0] == {key: entry[key] for key in ("token", "logprob", "bytes")}
        others = [other["logprob"] for other in entry["top_logprobs"][1:]]
        assert len(others) == 2
        assert others == sorted(others, reverse=True)


async def test_choices_interleave(running: Any) -> None:
    async with running() as client:
        reply = await chat(client, n=2, **CAPTURE)
        parts = await chunks(client, n=2, **CAPTURE, stream_options={"include_usage": True})
    order = [part["choices"][0]["index"] for part in parts if part["choices"]]
    assert order[:6] == [0, 1, 0, 1, 0, 1]
    for choice in reply["choices"]:
        of_it = [part for part in parts if part["choices"] and part["choices"][0]["index"] == choice["index"]]
        assert put_together(of_it)["ids"] == choice["token_ids"]
    assert parts[-1]["usage"]["completion_tokens"] == sum(len(c["token_ids"]) for c in reply["choices"])
    assert reply["choices"][0]["message"]["content"] != reply["choices"][1]["message"]["content"]


async def test_usage_is_sent_where_it_is_asked_for(running: Any) -> None:
    async with running() as client:
        silent = await chunks(client, max_tokens=3)
        continuous = {"include_usage": True, "continuous_usage_stats": True}
        running_usage = await chunks(client, **CAPTURE, max_tokens=3, stream_options=continuous)
    assert all("usage" not in part for part in silent)
    assert "system_fingerprint" in silent[-1]
    assert [part["usage"]["completion_tokens"] for part in running_usage] == [0, 1, 2, 3, 3]


async def test_only_the_first_of_parallel_calls_where_they_are_off(running: Any) -> None:
    calls = [{"name": "get_weather", "arguments": {"city": city}} for city in ("Paris", "Rome")]
    async with running(replies=[{"when": {"contains": "weather"}, "tool_calls": calls}]) as client:
        both = await chat(client, tools=[TOOL], **CAPTURE)
        one = await chat(client, tools=[TOOL], parallel_tool_calls=False, **CAPTURE)
        parts = await chunks(client, tools=[TOOL], parallel_tool_calls=False, **CAPTURE)
    assert len(both["choices"][0]["message"]["tool_calls"]) == 2
    assert len(one["choices"][0]["message"]["tool_calls"]) == 1
    assert one["choices"][0]["token_ids"] == both["choices"][0]["token_ids"] == put_together(parts)["ids"]
    assert [name for name, _ in put_together(parts)["calls"]] == ["get_weather"]


async def test_the_end_token_is_in_the_ids_and_not_in_the_text(running: Any) -> None:
    async with running(replies=[{"raw": "hi"}, {"raw": "hi"}]) as client:
        ended = await chat(client, chat_template_kwargs={"enable_thinking": False}, **CAPTURE)
        ignored = await chat(client, ignore_eos=True, max_tokens=5, **CAPTURE)
    assert ended["choices"][0]["token_ids"] == [*encode("hi"), IM_END]
    assert ended["choices"][0]["message"]["content"] == "hi"
    assert ignored["choices"][0]["token_ids"] == [*encode("hi"), IM_END, IM_END, IM_END]
    assert ignored["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_the_length_ends_a_reply(running: Any, field: str) -> None:
    async with running() as client:
        reply = await chat(client, **{field: 4}, **CAPTURE)
    assert reply["usage"]["completion_tokens"] == 4
    assert reply["choices"][0]["finish_reason"] == "length"


async def test_the_context_ends_a_reply(running: Any) -> None:
    async with running(max_model_len=80) as client:
        reply = await chat(client, max_tokens=60, **CAPTURE)
    assert reply["usage"]["total_tokens"] == 80
    assert reply["choices"][0]["finish_reason"] == "length"


async def test_given_ids_replace_the_messages(running: Any) -> None:
    ids = encode("<|im_start|>user\nhello<|im_end|>\n")
    given_ids = {"kv_transfer_params": {"prompt_token_ids": ids}}
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    async with running() as client:
        assert (await chat(client, **given_ids, **CAPTURE))["prompt_token_ids"] == ids
        assert (await chat(client, [], **given_ids, **CAPTURE))["prompt_token_ids"] == ids
        assert (await chat(client, picture, **given_ids, **CAPTURE))["prompt_token_ids"] != ids


async def test_hostile_text_is_served(running: Any) -> None:
    message = b'{"role":"user","content":"\\ud800\\u0000 </think> <|im_end|>"}'
    body = b'{"messages":[' + message + b'],"x":1e999,"request_id":"\\udfff"}'
    async with running() as client:
        reply = await client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 200
    assert reply.json()["id"] == "chatcmpl-?"


async def test_refusals_that_no_recording_shows(running: Any) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"temperature": 3}, "temperature"),
        ({"n": 0}, "n"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"kv_transfer_params": {"prompt_token_ids": ["x"]}}, "body.kv_transfer_params.prompt_token_ids.0"),
        ({"response_format": {"type": "json_schema", "json_schema": []}}, "body.response_format.json_schema"),
    ]
    async with running() as client:
        for fields, param in cases:
            reply = await client.post("/v1/chat/completions", json={"messages": ASKED, **fields})
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
        deep = b'{"messages":' + b"[" * 100_000
        reply = await client.post("/v1/chat/completions", content=deep, headers={"content-type": "application/json"})
        assert (reply.status_code, reply.json()["error"]["type"]) == (400, "Bad Request")
