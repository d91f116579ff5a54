"""A conversation becomes chat messages: nothing lost, nothing twice, nothing added, in the agent's order."""

import json
import re
from itertools import count
from typing import Any

import pytest
from anthropic_events import assembled, read_events, read_message
from hypothesis import given
from hypothesis import strategies as st
from messages_calls import HELLO, buffered, engine_reply, engine_stream, streamed, translated
from scripted_engine import Turn

from switchyard_py.dialects.messages import Messages
from switchyard_py.dialects.messages.request import to_chat
from switchyard_py.errors import RequestRefused

ChatMessages = list[dict[str, Any]]
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PICTURE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def chat(*turns: dict[str, Any], system: Any = None, memory: dict[str, str] | None = None) -> ChatMessages:
    """The chat messages of a conversation."""
    sent: ChatMessages = translated({"model": "m", "messages": list(turns), "system": system}, memory)["messages"]
    return sent


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("be brief", "be brief"),
        ([text("be brief", cache_control={"type": "ephemeral"})], "be brief"),
        ([text("a"), text("b")], [text("a"), text("b")]),
    ],
)
def test_the_system_prompt_comes_first(given: Any, sent: Any) -> None:
    assert chat(user("hi"), system=given) == [{"role": "system", "content": sent}, *HELLO]


@pytest.mark.parametrize("nothing", ["", [], [text("")]])
def test_an_empty_system_prompt_is_none(nothing: Any) -> None:
    assert chat(user("hi"), system=nothing) == HELLO


def test_a_system_turn_stays_in_its_place() -> None:
    # Claude Code sends it as a list in one call and as a string in the next.
    as_list = chat(user("hi"), {"role": "system", "content": [text("now", cache_control={"type": "ephemeral"})]})
    as_string = chat(user("hi"), {"role": "system", "content": "now"})
    assert as_list == as_string == [*HELLO, {"role": "system", "content": "now"}]


def test_an_empty_turn_of_the_user_is_kept() -> None:
    assert chat(user([]), user("")) == [user(""), user("")]


def test_pictures_and_text_keep_their_order() -> None:
    by_url = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}
    (sent,) = chat(user([text("one"), PICTURE, text("two"), by_url]))
    link = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
    assert sent["content"] == [text("one"), PICTURE_PART, text("two"), link]


def test_documents_and_search_results_are_their_texts() -> None:
    plain = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "D"}}
    nested = {"type": "document", "context": "C", "source": {"type": "content", "content": [text("N"), PICTURE]}}
    found = {"type": "search_result", "title": "S", "source": "http://x", "content": [text("F")]}
    (sent,) = chat(user([plain, nested, found]))
    texts = [*map(text, "TDCN"), PICTURE_PART, text("S"), text("http://x"), text("F")]
    assert sent["content"] == texts


def test_tool_results_become_messages_of_their_own() -> None:
    sent = chat(
        user(
            [
                {"type": "tool_result", "tool_use_id": "a", "content": "one", "is_error": False},
                {"type": "tool_result", "tool_use_id": "b", "content": [text("two")], "is_error": True},
                text("and now"),
                {"type": "tool_result", "tool_use_id": "c", "content": [text("three"), PICTURE]},
                {"type": "tool_result", "tool_use_id": "d"},
                text("go"),
                text("on"),
            ]
        )
    )
    assert sent == [
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": "two", "is_error": True},
        user("and now"),
        {"role": "tool", "tool_call_id": "c", "content": [text("three"), PICTURE_PART]},
        {"role": "tool", "tool_call_id": "d", "content": ""},
        user([text("go"), text("on")]),
    ]


def test_a_tool_found_by_search_is_named() -> None:
    found = [{"type": "tool_reference", "tool_name": "Monitor"}]
    (sent,) = chat(user([{"type": "tool_result", "tool_use_id": "a", "content": found}]))
    assert sent["content"] == [{"type": "tool_reference", "name": "Monitor"}]


def test_a_turn_of_the_assistant() -> None:
    (sent,) = chat(
        assistant(
            [
                {"type": "thinking", "thinking": "hm", "signature": "someone else's"},
                {"type": "redacted_thinking", "data": "AAAA"},
                text("I look"),
                text("."),
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"b": 1, "a": 2}, "cache_control": {}},
            ]
        )
    )
    call = {"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}}
    assert sent == {"role": "assistant", "content": "I look.", "reasoning": "hm", "tool_calls": [call]}


def test_a_turn_without_text_has_null_for_it_as_the_engine_s_replies_have() -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    assert chat(assistant([call]))[0]["content"] is None
    assert chat(assistant([{"type": "thinking", "thinking": "hm", "signature": ""}]))[0]["content"] is None
    for nothing in ([], [text("")], [{"type": "thinking", "thinking": "", "signature": "s"}]):
        assert chat(assistant(nothing)) == [assistant("")]
    assert chat(assistant("said")) == [assistant("said")]


def test_arguments_go_back_as_they_were_generated() -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}

    def arguments(memory: dict[str, str]) -> str:
        (sent,) = chat(assistant([call]), memory=memory)
        text: str = sent["tool_calls"][0]["function"]["arguments"]
        return text

    assert arguments({"t": '{ "a" : 1.0 }'}) == '{ "a" : 1.0 }'
    assert arguments({"t": '{ "a" : 2 }'}) == '{"a": 1}'
    assert arguments({}) == '{"a": 1}'


def test_arguments_that_are_not_remembered_keep_the_agent_s_bytes() -> None:
    body = (
        b'{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t\\u0031","name":"f",'
        b'"input":{"b": 1.0e0,"a":12345678901234567890123,"b":"\\u00e9"}}]}]}'
    )
    sent = bytes(to_chat(Messages().read(body), {})["messages"])
    expected = json.dumps('{"b": 1.0e0,"a":12345678901234567890123,"b":"\\u00e9"}')
    assert sent.endswith(
        b'{"id":"t\\u0031","type":"function","function":{"name":"f","arguments":%b}}]}]' % expected.encode()
    )


@pytest.mark.parametrize(
    ("turn", "where", "says"),
    [
        (user([{"type": "image", "source": {"type": "file", "file_id": "f"}}]), "[0].source", "no store of files"),
        (user([{"type": "image"}]), "[0].source", "must be an object"),
        (user([{"type": "document", "source": {"type": "base64", "data": ""}}]), "[0].source", "no other documents"),
        (user([{"type": "container_upload", "file_id": "f"}]), "[0]", "container_upload"),
        (user([{"type": "tool_result", "content": ""}]), "[0].tool_use_id", "must be a string"),
        (user([{"type": "tool_result", "tool_use_id": "t", "content": 5}]), "[0].content", "must be an array"),
        (assistant([{"type": "server_tool_use", "id": "s"}]), "[0]", "server_tool_use"),
        (assistant([PICTURE]), "[0]", "which no turn of the engine has"),
        (assistant([{"type": "tool_use", "name": "f", "input": {}}]), "[0].id", "must be a string"),
    ],
)
def test_what_the_engine_cannot_be_given_is_refused(turn: dict[str, Any], where: str, says: str) -> None:
    with pytest.raises(RequestRefused, match=says) as caught:
        chat(turn)
    assert caught.value.param == f"messages[0].content{where}"


@pytest.mark.parametrize(
    "turn",
    [
        Turn(reasoning="Look it up.", tool_calls=[("f", '{"a": 1.0, "b":[ ]}'), ("g", {})]),
        Turn(reasoning="Hm.", text="I look.", tool_calls=[("f", {})]),
        Turn(text="Plain."),
        Turn(reasoning="All thought.", finish_reason="length"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_is_sent_back_reaches_the_engine_as_it_left_it(turn: Turn, stream: bool) -> None:
    reply = (
        assembled(read_events(b"".join(streamed([engine_stream(turn)]))))
        if stream
        else read_message(buffered(engine_reply(turn)))
    )
    memory = {call["id"]: call["function"]["arguments"] for call in turn.calls}
    (sent,) = chat(assistant(reply["content"]), memory=memory)
    said = {key: value for key, value in turn.message.items() if key in ("role", "content", "reasoning", "tool_calls")}
    assert sent == {key: value for key, value in said.items() if value or key == "content"}


def conversations() -> st.SearchStrategy[ChatMessages]:
    """Conversations of every form; each text in them, `<number>`, stands there once."""
    words = st.none()
    block = st.sampled_from(["text", "image", "document"])
    body = st.one_of(words, st.lists(block, max_size=4))
    result = st.tuples(st.just("tool_result"), body)
    turn = st.one_of(
        st.tuples(st.sampled_from(["user", "assistant", "system"]), words),
        st.tuples(st.just("system"), st.lists(st.just("text"), max_size=3)),
        st.tuples(st.just("user"), st.lists(st.one_of(block, result), max_size=5)),
        st.tuples(st.just("assistant"), st.lists(st.sampled_from(["thinking", "text", "tool_use"]), max_size=5)),
    )
    return st.lists(turn, min_size=1, max_size=6).map(_numbered)


def _numbered(turns: list[tuple[str, Any]]) -> ChatMessages:
    numbers = count()

    def say() -> str:
        return f"<{next(numbers)}>"

    def content(body: Any) -> Any:
        return say() if body is None else [block(kind) for kind in body]

    def block(kind: Any) -> dict[str, Any]:
        match kind:
            case ("tool_result", body):
                return {"type": "tool_result", "tool_use_id": say(), "content": content(body)}
            case "text":
                return text(say())
            case "image":
                return {"type": "image", "source": {"type": "url", "url": say()}}
            case "document":
                return {"type": "document", "source": {"type": "text", "data": say()}}
            case "thinking":
                return {"type": "thinking", "thinking": say(), "signature": "s"}
        return {"type": "tool_use", "id": say(), "name": say(), "input": {say(): say()}}

    return [{"role": role, "content": content(body)} for role, body in turns]


@given(conversations())
def test_every_text_reaches_the_engine_once_and_in_order(turns: ChatMessages) -> None:
    # Within one turn of the assistant, chat has thinking, text and calls apart from each other.
    kinds = ("thinking", "text", "tool_use")
    keys = ("role", "reasoning", "tool_call_id", "content", "tool_calls")
    given = [
        turn | {"content": sorted(turn["content"], key=lambda block: kinds.index(block["type"]))}
        if turn["role"] == "assistant" and isinstance(turn["content"], list)
        else turn
        for turn in turns
    ]
    sent = [{key: message[key] for key in keys if key in message} for message in chat(*turns)]
    assert _texts(sent) == _texts(given)


def _texts(value: object) -> list[str]:
    return re.findall(r"<\d+>", json.dumps(value))
