"""Every rule of strict mode, and agreement with the strict reader the other tests use."""

import pickle
from copy import deepcopy
from typing import Any

import consumer
import orjson
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from session_records import TOOLS, assistant, calls_tool, conversation, envelope, recorded, refusal_of, result, user

from switchyard_py.rollouts import Refusal, Rule, accept, normalise, read_session

NOT_A_RECORD: tuple[Any, ...] = (None, 3, "record", [])
NO_CONTENT: tuple[Any, ...] = (1, {}, ["text"])
MISSING = object()


def changed(number: int, **fields: Any) -> list[Any]:
    """A good session of which one record has other fields."""
    records = conversation()
    for key, value in fields.items():
        if value is MISSING:
            del records[number][key]
        else:
            records[number][key] = value
    return records


def with_message(message: Any) -> list[Any]:
    """A good session with one message more in the prompts of both records."""
    records = conversation()
    for each in records:
        each["messages"] = [message, *each["messages"]]
    return records


ENVELOPES: list[tuple[Rule, Any]] = [
    (Rule.E1, None), (Rule.E1, []), (Rule.E1, "text"),
    (Rule.E2, envelope(conversation(), schema_version=2)),
    (Rule.E2, envelope(conversation(), schema_version="1")),
    (Rule.E2, {"session_id": "s", "completions": conversation()}),
    (Rule.E3, envelope(conversation(), session_id="S")),
    (Rule.E3, envelope(conversation(), session_id="s ")),
    (Rule.E3, envelope(conversation(), session_id=None)),
    (Rule.E4, envelope([])),
    (Rule.E4, {**envelope([]), "completions": None}),
    (Rule.E4, {"schema_version": 1, "session_id": "s"}),
]  # fmt: skip

RECORDS: list[tuple[Rule, int, list[Any]]] = [
    *((Rule.R1, 1, [conversation()[0], other]) for other in NOT_A_RECORD),
    (Rule.R1, 1, changed(1, schema_version=2)),
    (Rule.R1, 1, changed(1, session_id="other")),
    (Rule.R2, 0, changed(0, uuid="")),
    (Rule.R2, 0, changed(0, uuid=7)),
    (Rule.R2, 1, changed(1, uuid="call-0")),
    (Rule.R3, 1, changed(1, is_valid=False)),
    (Rule.R3, 1, changed(1, is_valid=1)),
    (Rule.R3, 1, changed(1, is_valid=MISSING)),
    (Rule.R4, 1, changed(1, request_id="")),
    (Rule.R4, 1, changed(1, request_id=None)),
    (Rule.R4, 1, changed(1, model=MISSING)),
    *((Rule.R5, 1, changed(1, prompt_token_ids=ids)) for ids in (None, [], [1.0], [True], ["1"], MISSING)),
    *((Rule.R5, 1, changed(1, generation_token_ids=ids)) for ids in (None, [], [1, False], [None], MISSING)),
    *((Rule.R6, 1, changed(1, generation_log_probs=values)) for values in (None, [], [-1], [-1, True], [-1, None])),
    (Rule.R6, 1, changed(1, generation_log_probs=MISSING)),
    (Rule.R7, 1, changed(1, messages=[])),
    (Rule.R7, 1, changed(1, messages=None)),
    (Rule.R7, 1, changed(1, messages=[user("question")])),
    (Rule.R7, 1, changed(1, messages=[user("question"), "answer"])),
    (Rule.R8, 1, changed(1, tools=None)),
    (Rule.R8, 0, changed(0, tools=MISSING)),
    (Rule.R8, 1, changed(1, tools={})),
    *((Rule.R8, 0, conversation(tools=[tool])) for tool in ("run", {}, {"id": None}, {"id": "a", "description": 1})),
    (Rule.R8, 0, conversation(tools=[{"id": "run", "inputSchema": []}])),
    (Rule.R8, 0, conversation(tools=[{"id": "run", "inputSchema": {"jsonSchema": "{}"}}])),
    (Rule.R9, 1, changed(1, model="other")),
    (Rule.R9, 1, changed(1, tools=TOOLS)),
    (Rule.R9, 1, changed(1, tool_choice=MISSING)),
    (Rule.R10, 1, changed(1, prompt_token_ids=[0, 1, 2, 4, 10, 11])),
    (Rule.R10, 1, changed(1, prompt_token_ids=[0, 1, 2])),
    (Rule.R11, 1, changed(1, messages=[user("question 0"), assistant("answer"), user("question 1"), assistant("")])),
    (Rule.R11, 1, changed(1, messages=[user("question 0"), assistant("answer 0"), assistant("")])),
    (Rule.R11, 1, changed(1, messages=[user("question 0"), assistant("")])),
    *(
        (
            Rule.R11,
            1,
            changed(
                1, messages=[user("question 0"), assistant("answer 0"), user("1"), {"role": role}, assistant("")]
            ),
        )
        for role in ("system", "developer", "assistant")
    ),
    *((Rule.N1, 0, with_message({"role": role, "content": ""})) for role in ("function", None, 1)),
    (Rule.N1, 0, with_message("text")),
    *((Rule.N2, 0, with_message({"role": "user", "content": content})) for content in NO_CONTENT),
    (Rule.N2, 0, with_message({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]})),
    (Rule.N3, 0, with_message(assistant(None, tool_calls="run"))),
    (Rule.N3, 0, with_message(assistant(None, tool_calls=["run"]))),
    (Rule.N3, 0, with_message(assistant(None, tool_calls=[{"id": "c", "function": None}]))),
    (Rule.N3, 0, with_message(assistant(None, tool_calls=[{"function": {"name": "run", "arguments": ""}}]))),
    (Rule.N3, 0, with_message(assistant(None, tool_calls=[{"id": "c", "function": {"name": "", "arguments": ""}}]))),
    (Rule.N3, 0, with_message(assistant(None, tool_calls=[{"id": "c", "function": {"name": "run"}}]))),
    (Rule.N4, 0, with_message({"role": "tool", "content": "done"})),
    (Rule.N4, 0, with_message(result("done", ""))),
]  # fmt: skip

ACCEPTED = {
    "one record": conversation(1),
    "five records": conversation(5),
    "schema version 1.0 of a record": changed(1, schema_version=1.0),
    "negative ids": changed(1, generation_token_ids=[-1, -2]),
    "positive and whole log-probs": changed(1, generation_log_probs=[1, 0.5]),
    "an empty suffix of ids": changed(1, prompt_token_ids=[0, 1, 2, 3]),
    "no tool_choice is null": [{**conversation()[0], "tool_choice": None}, changed(1, tool_choice=MISSING)[1]],
    "tools without description or parameters": conversation(tools=[{"id": "run"}, {"id": "", "description": None}]),
    "an empty list of tool calls": with_message(assistant("", tool_calls=[])),
    "tool calls of no assistant": with_message({**user("hi"), "tool_calls": "x"}),
    "keys that are dropped": with_message({**user("hi"), "name": "n", "cache_control": {}}),
    "no content": with_message({"role": "system"}),
    "an empty list of parts": with_message({"role": "system", "content": []}),
}


@pytest.mark.parametrize(("rule", "session"), ENVELOPES)
def test_an_envelope_is_refused(rule: Rule, session: Any) -> None:
    refusal = refusal_of(orjson.dumps(session))
    assert refusal is not None
    assert (refusal.rule, refusal.record, refusal.uuid) == (rule, None, None)
    with pytest.raises(consumer.Refused, match=rule):
        consumer.accept(orjson.dumps(session), "s")


@pytest.mark.parametrize(("rule", "number", "records"), RECORDS)
def test_a_record_is_refused(rule: Rule, number: int, records: list[Any]) -> None:
    refusal = refusal_of(envelope(records))
    assert refusal is not None
    bad = records[number] if isinstance(records[number], dict) else {}
    assert (refusal.rule, refusal.record) == (rule, number)
    assert refusal.uuid == (bad.get("uuid") if isinstance(bad.get("uuid"), str) and bad["uuid"] else None)
    assert refusal.to_json() == {
        "code": rule.value,
        "rule": rule.demand,
        "record": number,
        "uuid": refusal.uuid,
        "message": refusal.message,
    }


@pytest.mark.parametrize("records", ACCEPTED.values(), ids=ACCEPTED)
def test_a_session_is_accepted_as_one_chain(records: list[Any]) -> None:
    assert refusal_of(envelope(records)) is None
    lineage = accept(read_session(envelope(records), "s"))
    assert [chain.calls for chain in lineage.chains] == [tuple(range(len(records)))]
    assert lineage.main.chain == 0
    consumer.accept(orjson.dumps(envelope(records)), "s")


@pytest.mark.parametrize("version", [1.0, True])
def test_versions_that_are_equal_to_1_are_accepted(version: Any) -> None:
    assert refusal_of(envelope(conversation(), schema_version=version)) is None


def test_not_json_is_refused() -> None:
    for text in (b"", b"{", b'{"schema_version":1,"session_id":"s","completions":[NaN]}', b"\xff"):
        refusal = refusal_of(text)
        assert refusal is not None
        assert refusal.rule is Rule.E1


def test_log_probs_that_are_not_finite_are_refused() -> None:
    for value in (float("nan"), float("inf"), 10**400):
        refusal = refusal_of(envelope(changed(1, generation_log_probs=[value, -1.0])))
        assert refusal is not None
        assert refusal.rule is Rule.R6


def test_a_refusal_says_where_and_what() -> None:
    refusal = refusal_of(envelope(recorded("mt_turn1", "mt_turn2_drop_reasoning")))
    assert str(refusal) == (
        "R10 record 1 (call-1): at position 259 the record before had the ids [2046, 198, 34, 602], "
        "the prompt has [2042, 198, 90, 1]"
    )


def test_a_refusal_crosses_processes() -> None:
    refusal = refusal_of(envelope(changed(1, is_valid=False)))
    copy = pickle.loads(pickle.dumps(refusal))
    assert isinstance(copy, Refusal)
    assert (str(copy), copy.to_json()) == (str(refusal), refusal and refusal.to_json())


def test_the_rules_hold_over_more_than_two_records() -> None:
    records = conversation(4)
    records[3]["messages"] = [*records[3]["messages"][:2], *deepcopy(records[3]["messages"][2:])]
    records[3]["messages"][3]["content"] = "another answer 1"
    refusal = refusal_of(envelope(records))
    assert refusal is not None
    assert (refusal.rule, refusal.record) == (Rule.R11, 3)
    assert refusal.message == "message 3 is not the assistant message of the record before"


def test_messages_are_normalised() -> None:
    parts = [{"type": "text", "text": "a", "cache_control": {}}, {"text": "b"}]
    assert normalise({"role": "user", "content": parts, "name": "n"}) == {"role": "user", "content": "ab"}
    assert normalise({"role": "system"}) == {"role": "system", "content": ""}
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "run", "arguments": "{ }", "x": 1}}
    assert normalise(assistant(None, tool_calls=[call], reasoning_content="r", refusal="no")) == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{ }"}}],
    }
    assert normalise({**result("4"), "name": "run"}) == {"role": "tool", "content": "4", "tool_call_id": "c1"}
    assert normalise(calls_tool("{}"))["tool_calls"][0]["function"]["arguments"] == "{}"


KEYS = st.sampled_from([*sorted(conversation()[0]), "nothing"])
VALUES = st.sampled_from(
    [MISSING, None, "", "text", 0, 1, 1.5, True, [], [1], [1, 2, 3], [True], [0.5, -1], {}, {"role": "user"}, "policy",
     [{"role": "user", "content": "hi"}, {"role": "assistant"}], [{"role": "assistant", "tool_calls": []}], "call-0"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 2), KEYS, VALUES), max_size=2))
def test_the_verdict_is_that_of_the_other_strict_reader(turns: int, changes: list[tuple[int, str, Any]]) -> None:
    records = conversation(turns)
    for number, key, value in changes:
        assume(key != "tools" or not value)  # the other reader converts no tools
        if value is MISSING:
            records[number % turns].pop(key, None)
        else:
            records[number % turns][key] = value
    body = orjson.dumps(envelope(records))
    try:
        consumer.accept(body, "s")
        accepted = True
    except (consumer.Refused, AttributeError):  # it stumbles over messages that are no objects
        accepted = False
    assert (refusal_of(body) is None) == accepted
