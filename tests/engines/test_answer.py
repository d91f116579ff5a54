"""An answer in the other form says the same: against a real vLLM's recordings and a scripted engine's two forms."""

import itertools
import json
from typing import Any

import pytest
from built_records import prepared
from engine_server import Request
from scripted_engine import Turn, chat_body, chat_events
from wire_recordings import recordings

from switchyard_py.capture.call import Generation
from switchyard_py.engines.vllm import (
    Chunk,
    StreamHarvest,
    Wants,
    WhitespaceHold,
    answer_chunks,
    buffered_answer,
    harvest_reply,
)
from switchyard_py.upstream import SSEReader

REPLIES = {each.name: each for each in recordings() if not each.is_stream and each.status == 200}
STREAMS = {
    each.name: each
    for each in recordings()
    if each.is_stream and each.captured and "engine_death" not in each.name and b"[DONE]" in each.body
}
WISHES: list[dict[str, Any]] = [
    {"logprobs": True, "top_logprobs": 1},
    {"return_token_ids": True},
    {"include_reasoning": False},
    {"stream_options": {"include_usage": True}},
]
ASKED = [
    {key: value for wish in chosen for key, value in wish.items()}
    for count in range(len(WISHES) + 1)
    for chosen in itertools.combinations(WISHES, count)
]
TURNS = {
    "text": [Turn(text="hello you")],
    "empty": [Turn()],
    "reasoning": [Turn(reasoning="well then", text="hello")],
    "calls": [Turn(reasoning="well", tool_calls=[("run", {"a": 1}), ("look", "{}")])],
    "text and call": [Turn(text="I run it.", tool_calls=[("run", {"a": 1})])],
    "length": [Turn(text="hello", finish_reason="length")],
    "stop string": [Turn(text="hello", stop_reason="###")],
    "two choices": [Turn(text="one"), Turn(reasoning="hm", tool_calls=[("run", "{}")])],
}


def request(turns: list[Turn], asked: dict[str, Any], *, stream: bool) -> tuple[Request, Wants]:
    """The request as it reaches the engine, and what the agent wants of the reply."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": len(turns), **asked}
    if stream:
        body["stream"] = True
    else:
        body.pop("stream_options", None)
    ready = prepared(body)
    return Request("POST", "/v1/chat/completions", [("x-request-id", "r")], ready.body, 1, 0.0), ready.wants


def engine_stream(turns: list[Turn], asked: dict[str, Any]) -> tuple[bytes, Wants]:
    sent, wants = request(turns, asked, stream=True)
    return b"".join(chat_events(sent, *turns)) + b"data: [DONE]\n\n", wants


def engine_reply(turns: list[Turn], asked: dict[str, Any]) -> bytes:
    """A buffered reply as the agent sees it."""
    sent, wants = request(turns, asked, stream=False)
    return harvest_reply(json.dumps(chat_body(sent, *turns)).encode(), wants)[0]


def seen(data: bytes, wants: Wants) -> tuple[list[dict[str, Any]], Generation]:
    """What an agent sees of an engine's stream, and what was generated."""
    harvest, whitespace, chunks = StreamHarvest(wants), WhitespaceHold(wants), list[Chunk]()
    for event in SSEReader().feed(data):
        if event.data is not None:
            chunks += [shown for chunk in harvest.feed(event.data) for shown in whitespace.feed(chunk)]
    return parsed(chunks), harvest.end()


def parsed(chunks: list[Chunk]) -> list[dict[str, Any]]:
    return [json.loads(chunk.encode()) for chunk in chunks]


def comparable(value: Any) -> Any:
    """Without what differs by nature: the time, and keys that are null, of which buffered replies have many."""
    if isinstance(value, dict):
        return {key: comparable(each) for key, each in value.items() if each is not None and key != "created"}
    return [comparable(each) for each in value] if isinstance(value, list) else value


def put_together(chunks: list[dict[str, Any]]) -> tuple[dict[int, dict[str, Any]], dict[str, Any]]:
    """The choices of a stream as agents collect them, and all that its chunks say besides."""
    choices: dict[int, dict[str, Any]] = {}
    besides: dict[str, Any] = {}
    for chunk in chunks:
        besides |= comparable({key: value for key, value in chunk.items() if key != "choices"})
        for each in chunk["choices"]:
            choice = choices.setdefault(each["index"], {"calls": {}, "token_ids": [], "log_probs": []})
            for key in ("role", "content", "reasoning"):
                choice[key] = choice.get(key, "") + (each["delta"].get(key) or "")
            for call in each["delta"].get("tool_calls") or []:
                collected = choice["calls"].setdefault(call["index"], {})
                function = call.pop("function")
                for key, text in {**call, **function}.items():
                    collected[key] = collected.get(key, "") + text if key == "arguments" else text
            choice["token_ids"] += each.get("token_ids") or []
            choice["log_probs"] += (each.get("logprobs") or {}).get("content") or []
            choice |= {key: each[key] for key in ("finish_reason", "stop_reason") if each.get(key) is not None}
    return choices, besides


@pytest.mark.parametrize("asked", ASKED, ids=json.dumps)
@pytest.mark.parametrize("name", TURNS)
def test_a_stream_amounts_to_the_buffered_reply(name: str, asked: dict[str, Any]) -> None:
    data, wants = engine_stream(TURNS[name], asked)
    made = json.loads(buffered_answer(seen(data, wants)[1], wants))
    assert comparable(made) == comparable(json.loads(engine_reply(TURNS[name], asked)))
    assert made["created"] > 0


@pytest.mark.parametrize("asked", ASKED, ids=json.dumps)
@pytest.mark.parametrize("name", TURNS)
def test_a_buffered_reply_streams_as_the_engine_would_have_streamed_it(name: str, asked: dict[str, Any]) -> None:
    made = parsed(answer_chunks(engine_reply(TURNS[name], asked), usage="stream_options" in asked))
    data, wants = engine_stream(TURNS[name], asked)
    assert put_together(made) == put_together(seen(data, wants)[0])
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in made)


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_says_the_same_after_both_conversions(name: str) -> None:
    wants = Wants(log_probs=True, prompt_ids=True, token_ids=True, usage=True)
    chunks, generation = seen(STREAMS[name].body, wants)
    made = parsed(answer_chunks(buffered_answer(generation, wants), usage=True))
    choices, besides = put_together(chunks)
    besides.pop("metrics", None)  # of how the engine fared, which is no part of the answer
    assert put_together(made) == (choices, besides)


@pytest.mark.parametrize("name", REPLIES)
def test_a_recorded_reply_streams_what_it_says(name: str) -> None:
    answer, _ = harvest_reply(REPLIES[name].body, Wants(log_probs=True, prompt_ids=True, token_ids=True))
    chunks = parsed(answer_chunks(answer, usage=True))
    choices, besides = put_together(chunks)
    reply = comparable(json.loads(answer))
    assert besides["usage"] == reply["usage"]
    for choice in reply["choices"]:
        streamed, message = choices[choice["index"]], choice["message"]
        assert (streamed["content"], streamed["reasoning"]) == (
            message.get("content", ""),
            message.get("reasoning", ""),
        )
        assert [call["arguments"] for call in streamed["calls"].values()] == [
            call["function"]["arguments"] for call in message.get("tool_calls", [])
        ]
        assert streamed["token_ids"] == choice.get("token_ids", [])
        assert streamed["finish_reason"] == choice["finish_reason"]


def test_tool_calls_of_no_known_form_are_passed_on() -> None:
    message = {"role": "assistant", "tool_calls": "odd"}
    answer = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    _, chunk, _ = parsed(answer_chunks(json.dumps(answer).encode(), usage=False))
    assert chunk["choices"][0]["delta"] == {"tool_calls": "odd"}


def test_log_probs_of_no_known_form_are_left_out() -> None:
    wants = Wants(log_probs=True)
    choice = {"index": 0, "delta": {"content": "a"}, "logprobs": [1], "finish_reason": "stop"}
    data = b"data: " + json.dumps({"id": "x", "choices": [choice]}).encode() + b"\n\ndata: [DONE]\n\n"
    assert json.loads(buffered_answer(seen(data, wants)[1], wants))["choices"][0]["logprobs"] is None
