"""Input items become chat messages: nothing lost, nothing twice, nothing added, in the agent's order."""

import json
import re
from base64 import b64decode, b64encode
from itertools import count, groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_responses import assembled, read_events, read_response
from responses_calls import HELLO, Call, translated
from scripted_engine import Turn

from switchyard_py.dialects.responses import Responses
from switchyard_py.errors import RequestRefused

Items = list[dict[str, Any]]
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}
PICTURE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
ONE, OTHER = "0196a3c27b107abc8def0123456789ab", "0196a3c27b107abc8def0123456789ac"


def chat(*items: dict[str, Any], instructions: Any = None, memory: dict[str, str] | None = None) -> Items:
    """The chat messages of a conversation."""
    request = {"model": "m", "input": list(items), "instructions": instructions}
    sent: Items = translated(request, memory)["messages"]
    return sent


def text(words: str, kind: str = "text", **more: Any) -> dict[str, Any]:
    return {"type": kind, "text": words, **more}


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **more}


def user(words: Any) -> dict[str, Any]:
    return {"role": "user", "content": words}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def reasoning(*words: str, **more: Any) -> dict[str, Any]:
    content = [text(word, "reasoning_text") for word in words]
    return {"type": "reasoning", "summary": [], "content": content, **more}


def called(call_id: str, name: str = "f", arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def call_of(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def returned(call_id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def test_a_string_is_what_the_user_says() -> None:
    assert translated({"input": "hi"})["messages"] == HELLO
    assert translated({"input": "hi", "instructions": "be brief"})["messages"] == [
        {"role": "system", "content": "be brief"},
        *HELLO,
    ]


@pytest.mark.parametrize("more", [{}, {"type": "message"}, {"type": None, "status": "completed", "id": "msg_1"}])
def test_messages_with_and_without_type(more: dict[str, Any]) -> None:
    assert chat({"role": "user", "content": "hi", **more}) == HELLO
    assert chat({"role": "user", "content": [text("hi", "input_text")], **more}) == HELLO


def test_what_comes_before_the_conversation_is_one_system_message() -> None:
    # Codex sends two developer messages of three parts; some chat templates accept one system message, in front.
    sent = chat(
        said("developer", [text("b", "input_text")]),
        said("system", [text("", "input_text"), text("c", "input_text"), text("d", "input_text")]),
        said("user", "hi"),
        said("developer", "e"),
        said("user", "go on"),
        instructions="a",
    )
    assert sent == [
        {"role": "system", "content": [text(each) for each in "abcd"]},
        *HELLO,
        {"role": "system", "content": "e"},
        user("go on"),
    ]


@pytest.mark.parametrize("nothing", ["", [], [text("", "input_text")], None])
def test_empty_instructions_are_none(nothing: Any) -> None:
    assert chat(said("user", "hi"), instructions=nothing) == HELLO


def test_pictures_and_text_keep_their_order() -> None:
    by_url = {"type": "input_image", "image_url": "http://x/y.png"}
    (sent,) = chat(said("user", [text("one", "input_text"), PICTURE, text("two", "text"), by_url]))
    link = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
    assert sent["content"] == [text("one"), PICTURE_PART, text("two"), link]


def test_an_empty_turn_of_the_user_is_kept() -> None:
    assert chat(said("user", []), said("user", "")) == [user(""), user("")]


def test_items_of_one_turn_are_one_message() -> None:
    sent = chat(
        said("user", "hi"),
        reasoning("hm", id=f"rs_{ONE}_0"),
        said("assistant", [text("I look", "output_text", annotations=[])], id=f"msg_{ONE}_1"),
        called("c1", "f", '{"b": 1, "a": 2}', id=f"fc_{ONE}_2", status="completed"),
        called("c2", "g", id=f"fc_{ONE}_3"),
        returned("c1", "one"),
        returned("c2", [text("two", "input_text")]),
        said("user", "go on"),
    )
    calls = [call_of("c1", "f", '{"b": 1, "a": 2}'), call_of("c2", "g")]
    assert sent == [
        *HELLO,
        assistant("I look", reasoning="hm", tool_calls=calls),
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        user("go on"),
    ]


def test_without_ids_a_turn_is_over_when_another_begins() -> None:
    texts = [said("assistant", words) for words in ("two", "four", "five")]
    turns = chat(reasoning("one"), texts[0], reasoning("three"), *texts[1:])
    assert turns == [assistant("two", reasoning="one"), assistant("four", reasoning="three"), assistant("five")]
    (turn,) = chat(reasoning("one"), called("c"), said("assistant", "two"))
    assert turn == assistant("two", reasoning="one", tool_calls=[call_of("c")])


def test_ids_tell_which_response_an_item_is_of() -> None:
    (turn,) = chat(
        reasoning("one ", id=f"rs_{ONE}_0"),
        said("assistant", "two "),
        reasoning("three", id=f"rs_{ONE}_2"),
        said("assistant", "four", id=f"msg_{ONE}_3"),
    )
    assert turn == assistant("two four", reasoning="one three")
    turns = chat(reasoning("one", id=f"rs_{ONE}_0"), reasoning("two", id=f"rs_{OTHER}_0"))
    assert turns == [assistant(None, reasoning="one"), assistant(None, reasoning="two")]
    # Ids of others tell nothing.
    assert len(chat(reasoning("one", id="rs_1"), called("c", id="fc_2"), called("d", id=f"fc_{ONE}"))) == 1


def test_a_refusal_in_the_history_is_text() -> None:
    assert chat(said("assistant", [{"type": "refusal", "refusal": "no"}])) == [assistant("no")]


def test_a_turn_without_text_has_null_for_it_as_the_engine_s_replies_have() -> None:
    assert chat(called("c"))[0]["content"] is None
    assert chat(reasoning("hm"))[0]["content"] is None
    assert chat(said("assistant", "")) == chat(said("assistant", [text("", "output_text")])) == [assistant("")]


@pytest.mark.parametrize(
    "item",
    [
        reasoning("hm"),
        reasoning("hm", encrypted_content=None),
        reasoning("hm", encrypted_content="gAAAAA"),
        reasoning("h", "m"),
        reasoning("hm") | {"summary": [text("short", "summary_text")]},
        {"type": "reasoning", "summary": [text("hm", "summary_text")]},
        {"type": "reasoning", "summary": [text("h", "summary_text"), text("m", "summary_text")], "content": []},
        {"type": "reasoning", "summary": [], "encrypted_content": "switchyard:aG0="},
        reasoning("other", encrypted_content="switchyard:aG0="),
    ],
)
def test_reasoning_goes_back_to_the_engine(item: dict[str, Any]) -> None:
    assert chat(item, said("assistant", "so")) == [assistant("so", reasoning="hm")]


def test_reasoning_nobody_can_read_is_no_turn() -> None:
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAA"}
    assert chat(foreign, said("user", "hi")) == HELLO
    assert chat(foreign, called("c")) == [assistant(None, tool_calls=[call_of("c")])]


@pytest.mark.parametrize("broken", ["aG0", "a!", b64encode(b'"').decode(), b64encode(b"\xff").decode()])
def test_encrypted_content_that_was_changed_is_refused(broken: str) -> None:
    with pytest.raises(RequestRefused, match="not what this proxy wrote") as caught:
        chat(reasoning("hm", encrypted_content=f"switchyard:{broken}"))
    assert caught.value.param == "input[0].encrypted_content"


def test_functions_of_a_namespace_keep_their_engine_s_names() -> None:
    (turn,) = chat(called("c", "spawn", namespace="agents"), called("d", "spawn", namespace=None))
    assert [call["function"]["name"] for call in turn["tool_calls"]] == ["agents__spawn", "spawn"]


def test_arguments_go_back_as_they_were_generated() -> None:
    def arguments(memory: dict[str, str]) -> str:
        (turn,) = chat(called("c", arguments='{"a":1}'), memory=memory)
        given: str = turn["tool_calls"][0]["function"]["arguments"]
        return given

    assert arguments({"c": '{ "a" : 1.0 }'}) == '{ "a" : 1.0 }'
    assert arguments({"c": '{ "a" : 2 }'}) == '{"a":1}'
    assert arguments({}) == '{"a":1}'


def test_the_output_of_a_call_may_have_pictures() -> None:
    (sent,) = chat(returned("c", [text("see", "input_text"), PICTURE]))
    assert sent == {"role": "tool", "tool_call_id": "c", "content": [text("see"), PICTURE_PART]}


@pytest.mark.parametrize(
    ("item", "where", "says"),
    [
        (said("user", [{"type": "input_image", "file_id": "f"}]), ".content[0]", "no store of files"),
        (said("user", [{"type": "input_file", "file_id": "f"}]), ".content[0]", "input_file"),
        (said("user", [{"type": "input_text"}]), ".content[0].text", "must be a string"),
        (said("assistant", [PICTURE]), ".content[0]", "which no turn of the engine has"),
        (said("assistant", None), ".content", "a string or an array"),
        (called("c") | {"call_id": None}, ".call_id", "must be a string"),
        (called("c") | {"name": 5}, ".name", "must be a string"),
        (called("c", namespace=5), ".namespace", "must be a string"),
        (called("c") | {"arguments": {}}, ".arguments", "must be a string"),
        (returned("c", None), ".output", "a string or an array"),
        (returned("c", "o") | {"call_id": None}, ".call_id", "must be a string"),
        (reasoning("hm") | {"content": [{}]}, ".content[0].text", "must be a string"),
        (reasoning() | {"summary": 5}, ".summary", "must be an array"),
        ({"type": "item_reference", "id": "msg_1"}, "", "Send the item itself"),
        ({"type": "web_search_call", "id": "ws_1"}, "", "web_search_call"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""}, "", "custom_tool_call"),
    ],
)
def test_what_the_engine_cannot_be_given_is_refused(item: dict[str, Any], where: str, says: str) -> None:
    with pytest.raises(RequestRefused, match=says) as caught:
        chat(item)
    assert caught.value.param == f"input[0]{where}"


def test_texts_keep_the_agent_s_spelling() -> None:
    body = (
        b'{"input":[{"role":"user","content":"\\u00e9\\/"},{"type":"function_call","call_id":"c\\u0031","name":"f",'
        b'"arguments":"{}"},{"type":"function_call_output","call_id":"c\\u0031","output":"\\ud800"}]}'
    )
    sent = bytes(Responses().inquire(Responses().read(body), {}).fields["messages"])
    assert b'"content":"\\u00e9\\/"' in sent
    assert b'"id":"c\\u0031"' in sent
    assert b'{"role":"tool","tool_call_id":"c\\u0031","content":"\\ud800"}' in sent


@pytest.mark.parametrize(
    "turn",
    [
        Turn(reasoning="Look it up.", tool_calls=[("f", '{"a": 1.0, "b":[ ]}'), ("agents__g", {})]),
        Turn(reasoning="Hm.", text="I look.", tool_calls=[("f", {})]),
        Turn(text="Plain é \U0001f600."),
        Turn(reasoning="All thought.", finish_reason="length"),
        Turn(),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("resent", ["all", "encrypted", "no_ids"])
def test_a_reply_that_is_sent_back_reaches_the_engine_as_it_left_it(turn: Turn, stream: bool, resent: str) -> None:
    function = {"type": "function", "name": "g"}
    tools = [{"type": "namespace", "name": "agents", "description": "d", "tools": [function]}]
    asked = Call(stream=stream, tools=tools, include=["reasoning.encrypted_content"])
    response = (
        assembled(read_events(b"".join(asked.streamed([asked.engine_stream(turn)]))))
        if stream
        else read_response(asked.buffered(asked.engine_reply(turn)))
    )
    (sent,) = chat(*(_resent(item, resent) for item in response["output"]))
    generated = {key: turn.message.get(key) for key in ("role", "content", "reasoning", "tool_calls")}
    assert sent == {key: value for key, value in generated.items() if value or key == "content"}


def _resent(item: dict[str, Any], how: str) -> dict[str, Any]:
    """An item as agents send it back: whole, without readable reasoning, or without ids."""
    if how == "encrypted" and item["type"] == "reasoning":
        return {key: value for key, value in item.items() if key not in ("content", "status")}
    return {key: value for key, value in item.items() if how == "all" or key not in ("id", "status")}


def conversations() -> st.SearchStrategy[Items]:
    """Conversations of every form; each text in them, `<number>`, stands there once."""
    body = st.one_of(st.none(), st.lists(st.sampled_from(["input_text", "input_image"]), max_size=3))
    own = st.one_of(st.none(), st.lists(st.sampled_from(["output_text", "refusal"]), max_size=3))
    item = st.one_of(
        st.tuples(st.sampled_from(["user", "system", "developer"]), body),
        st.tuples(st.just("assistant"), own),
        st.tuples(st.sampled_from(["reasoning", "summary", "encrypted"]), st.none()),
        st.tuples(st.sampled_from(["function_call", "namespaced_call"]), st.none()),
        st.tuples(st.just("function_call_output"), body),
    )
    return st.lists(item, min_size=1, max_size=8).map(_numbered)


def _numbered(kinds: list[tuple[str, Any]]) -> Items:
    numbers = count()

    def say() -> str:
        return f"<{next(numbers)}>"

    def content(body: Any) -> Any:
        return say() if body is None else [part(kind) for kind in body]

    def part(kind: str) -> dict[str, Any]:
        return {"type": kind, {"input_image": "image_url", "refusal": "refusal"}.get(kind, "text"): say()}

    def item(kind: str, body: Any) -> dict[str, Any]:
        match kind:
            case "reasoning":
                return reasoning(say(), say())
            case "summary":
                return {"type": "reasoning", "summary": [text(say(), "summary_text")]}
            case "encrypted":
                hidden = b64encode(say().encode()).decode()
                return {"type": "reasoning", "summary": [], "encrypted_content": f"switchyard:{hidden}"}
            case "function_call":
                return called(say(), say(), json.dumps({say(): say()}))
            case "namespaced_call":
                return {"namespace": say(), **called("c", say())}
            case "function_call_output":
                return returned(say(), content(body))
        return said(kind, content(body))

    return [item(kind, body) for kind, body in kinds]


@given(conversations())
def test_every_text_reaches_the_engine_once_and_in_order(items: Items) -> None:
    sent = chat(*items, instructions="<first>")
    assert _said(sent) == ["<first>", *_said(items)]


def _said(items: Items) -> list[str]:
    """The texts in order; of what the assistant said at a stretch sorted, as chat has its calls after its texts."""
    found = []
    for own, stretch in groupby(items, key=_is_own):
        texts = [each for item in stretch for each in _texts(item)]
        found += sorted(texts) if own else texts
    return found


def _is_own(item: dict[str, Any]) -> bool:
    return item.get("role") == "assistant" or item.get("type") in ("reasoning", "function_call")


def _texts(item: dict[str, Any]) -> list[str]:
    hidden = item.get("encrypted_content")
    shown = [b64decode(hidden.removeprefix("switchyard:")).decode()] if hidden else []
    # The keys of a message in the order of the item's.
    keys = ("tool_call_id", "call_id", "content", "output")
    ordered = {key: item[key] for key in keys if key in item} | item
    return shown + re.findall(r"<\w+>", json.dumps(ordered))
