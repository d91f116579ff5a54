"""Each reason for which a reply is not proved complete, triggered alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from wire_oracle import with_usage
from wire_recordings import recording, recordings

from switchyard_py.capture.call import Generation
from switchyard_py.engines.vllm import DONE, StreamHarvest, Wants, harvest_reply, invalid_reasons
from switchyard_py.upstream import SSEReader

Reply = dict[str, Any]


def reply() -> Reply:
    """A buffered reply that is complete in every respect."""
    return {
        "id": "chatcmpl-1",
        "model": "m",
        "prompt_token_ids": [1, 2, 3],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        "choices": [choice()],
    }


def choice() -> Reply:
    return {
        "index": 0,
        "message": {"role": "assistant", "content": "x"},
        "token_ids": [4, 5],
        "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -9999.0}]},
        "finish_reason": "stop",
    }


def reasons(body: Reply) -> list[str]:
    return invalid_reasons(harvest_reply(json.dumps(body).encode(), Wants())[1])


def streamed_reasons(body: Reply) -> list[str]:
    """The same reply as a stream of one chunk for each choice."""
    harvest = StreamHarvest(Wants())
    for each in body["choices"]:
        part = {key: value for key, value in each.items() if key != "message"} | {"delta": each.get("message") or {}}
        harvest.feed(json.dumps(body | {"choices": [part]}).encode())
    harvest.feed(DONE)
    return invalid_reasons(harvest.end())


def test_a_complete_reply_has_no_reason() -> None:
    assert reasons(reply()) == streamed_reasons(reply()) == []


Change = Callable[[Reply], object]


def top(**fields: Any) -> Change:
    return lambda body: body.update(fields)


def first(**fields: Any) -> Change:
    return lambda body: body["choices"][0].update(fields)


def usage(**counts: Any) -> Change:
    return lambda body: body["usage"].update(counts)


def log_probs(*values: Any) -> Change:
    return first(logprobs={"content": [{"logprob": value} for value in values]})


CHANGES: list[tuple[str, Change, list[str]]] = [
    ("no id", lambda body: body.pop("id"), ["no_id"]),
    ("empty id", top(id=""), ["no_id"]),
    ("id is a number", top(id=5), ["no_id"]),
    ("no model", lambda body: body.pop("model"), ["no_model"]),
    ("empty model", top(model=""), ["no_model"]),
    ("aborted", first(finish_reason="abort"), ["aborted"]),
    ("broken off by an error", first(finish_reason="error"), ["aborted"]),
    ("empty finish reason", first(finish_reason=""), ["finish_reason_malformed"]),
    ("finish reason is a number", first(finish_reason=3), ["finish_reason_malformed"]),
    ("finish reason is a list", first(finish_reason=["stop"]), ["finish_reason_malformed"]),
    ("no prompt ids", top(prompt_token_ids=None), ["no_prompt_token_ids"]),
    ("empty prompt", top(prompt_token_ids=[], usage={"prompt_tokens": 0, "completion_tokens": 2}),
     ["no_prompt_token_ids"]),
    ("prompt ids are no list", top(prompt_token_ids="1 2 3"), ["prompt_token_ids_malformed"]),
    ("prompt ids are floats", top(prompt_token_ids=[1.0, 2, 3]), ["prompt_token_ids_malformed"]),
    ("prompt ids are bools", top(prompt_token_ids=[True, 2, 3]), ["prompt_token_ids_malformed"]),
    ("negative prompt id", top(prompt_token_ids=[-1, 2, 3]), ["prompt_token_ids_malformed"]),
    ("prompt id beyond 64 bits", top(prompt_token_ids=[2**63, 2, 3]), ["prompt_token_ids_malformed"]),
    ("prompt ids in the choice only",
     lambda body: body["choices"][0].update(prompt_token_ids=body.pop("prompt_token_ids")), ["no_prompt_token_ids"]),
    ("prompt count differs", usage(prompt_tokens=4), ["prompt_tokens_differ_from_usage"]),
    ("no ids", first(token_ids=None), ["no_generation_token_ids"]),
    ("ids are strings", first(token_ids=["4", "5"]), ["generation_token_ids_malformed"]),
    ("ids are floats", first(token_ids=[4.0, 5]), ["generation_token_ids_malformed"]),
    ("negative id", first(token_ids=[-4, 5]), ["generation_token_ids_malformed"]),
    ("id beyond 64 bits", first(token_ids=[4, 2**63]), ["generation_token_ids_malformed"]),
    ("no log-probs", first(logprobs=None), ["no_generation_log_probs"]),
    ("log-prob is null", log_probs(-0.5, None), ["generation_log_probs_malformed"]),
    ("log-prob is a bool", log_probs(-0.5, True), ["generation_log_probs_malformed"]),
    ("log-prob is beyond a double", log_probs(-0.5, -(10**400)), ["generation_log_probs_malformed"]),
    ("log-prob is a text", log_probs(-0.5, "-1"), ["generation_log_probs_malformed"]),
    ("log-prob entry is a number", first(logprobs={"content": [-0.5, -1]}), ["generation_log_probs_malformed"]),
    ("fewer log-probs than ids", log_probs(-0.5), ["log_probs_differ_from_ids"]),
    ("more log-probs than ids", log_probs(-0.5, -1, -2), ["log_probs_differ_from_ids"]),
    ("ids differ from usage", usage(completion_tokens=3), ["completion_tokens_differ_from_usage"]),
    ("no usage", lambda body: body.pop("usage"), ["no_usage"]),
    ("usage is null", top(usage=None), ["no_usage"]),
    ("usage is a list", top(usage=[3, 2]), ["no_usage"]),
    ("usage without prompt count", lambda body: body["usage"].pop("prompt_tokens"), ["no_usage"]),
    ("usage with a count of null", usage(completion_tokens=None), ["no_usage"]),
    ("usage with a count of a bool", usage(completion_tokens=True), ["no_usage"]),
    ("usage with a count of a float", usage(completion_tokens=2.0), ["no_usage"]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_each_flaw_has_its_reason_and_no_other(change: Change, expected: list[str]) -> None:
    body = reply()
    change(body)
    assert reasons(body) == streamed_reasons(body) == expected


def test_a_stream_that_reports_two_prompts_is_incomplete() -> None:
    harvest = StreamHarvest(Wants())
    role = reply() | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    for prompt in ([1, 2, 3], [1, 2, 3], [7, 8, 9], [1, 2, 3]):
        harvest.feed(json.dumps(role | {"prompt_token_ids": prompt}).encode())
    last = choice() | {"delta": {"content": "x"}}
    harvest.feed(json.dumps(reply() | {"choices": [last]}).encode())
    harvest.feed(DONE)
    generation = harvest.end()
    assert json.loads(bytes(generation.prompt_ids or b"")) == [1, 2, 3]
    assert invalid_reasons(generation) == ["prompt_token_ids_differ"]


STRANGE_DELTAS: dict[str, Reply] = {
    "content is a list": {"content": [{"type": "text", "text": "x"}]},
    "reasoning is a number": {"reasoning": 5},
    "calls are an object": {"tool_calls": {"index": 0}},
    "a call is a list": {"tool_calls": [[]]},
    "index is a text": {"tool_calls": [{"index": "0", "function": {"name": "f", "arguments": "{}"}}]},
    "function is a text": {"tool_calls": [{"index": 0, "function": "f"}]},
    "arguments are an object": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": {"a": 1}}}]},
    "name is a number": {"tool_calls": [{"index": 0, "function": {"name": 5, "arguments": "{}"}}]},
    "a call of the old form": {"function_call": {"name": "f", "arguments": "{}"}},
}


@pytest.mark.parametrize("delta", STRANGE_DELTAS.values(), ids=STRANGE_DELTAS)
def test_a_stream_that_says_what_its_record_cannot_repeat_is_incomplete(delta: Reply) -> None:
    assert streamed_reasons(reply() | {"choices": [choice() | {"message": delta}]}) == ["message_malformed"]


def test_a_stream_may_say_more_than_records_hold() -> None:
    delta: Reply = {"content": "x", "refusal": None, "annotations": [], "audio": {"id": "a"}, "tool_calls": None}
    assert streamed_reasons(reply() | {"choices": [choice() | {"message": delta}]}) == []


@pytest.mark.parametrize("message", [None, {}])
def test_a_buffered_reply_without_a_message_is_incomplete(message: object) -> None:
    body = reply()
    body["choices"][0]["message"] = message
    assert reasons(body) == ["no_message"]
    del body["choices"][0]["message"]
    assert reasons(body) == ["no_message"]


def test_a_message_that_says_nothing_is_a_message() -> None:
    body = reply()
    body["choices"][0]["message"] = {"role": "assistant", "content": None, "reasoning": None}
    assert reasons(body) == []


def test_an_empty_generation_is_incomplete() -> None:
    body = reply()
    first(token_ids=[], logprobs={"content": []})(body)
    usage(completion_tokens=0)(body)
    assert reasons(body) == streamed_reasons(body) == ["no_generation_token_ids", "no_generation_log_probs"]


def test_several_choices_are_incomplete_whatever_their_count() -> None:
    body = reply()
    body["choices"].append(choice() | {"index": 1})
    usage(completion_tokens=4)(body)
    assert reasons(body) == streamed_reasons(body) == ["more_than_one_choice"]


def test_all_reasons_are_named_once() -> None:
    body = {
        "choices": [{"message": None, "finish_reason": "abort", "token_ids": ["x"], "logprobs": {"content": [None]}}]
    }
    assert reasons(body) == [
        "no_id",
        "no_model",
        "aborted",
        "no_prompt_token_ids",
        "no_message",
        "generation_token_ids_malformed",
        "generation_log_probs_malformed",
        "no_usage",
    ]


def harvested(stream: bytes) -> Generation:
    harvest = StreamHarvest(Wants())
    for event in SSEReader().feed(stream):
        if event.data is not None:
            harvest.feed(event.data)
    return harvest.end()


@pytest.mark.parametrize(
    "name", [each.name for each in recordings() if each.name.startswith("abort") and each.is_stream]
)
def test_an_aborted_stream_is_incomplete_though_its_tokens_are_all_there(name: str) -> None:
    assert invalid_reasons(harvested(with_usage(recording(name).body))) == ["aborted"]


def test_a_stream_without_usage_is_incomplete() -> None:
    assert invalid_reasons(harvested(recording("chat_stream").body)) == ["no_usage"]
