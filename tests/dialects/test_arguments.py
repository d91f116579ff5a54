"""Arguments go back to the engine as it generated them exactly where the agent still means the same value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchyard_py.dialects.arguments import faithful_arguments, same_value, value_hash

SAME = [
    ('{"a": 1}', '{"a":1}'),
    ('{"a":1,"b":2}', '{"b":2,"a":1}'),
    ('{"a":"é"}', '{"a":"\\u00e9"}'),
    ('{"a":"\\ud83d\\ude00"}', '{"a":"\U0001f600"}'),
    ('{"a":5.0}', '{"a":5}'),
    ('{"a":1e2}', '{"a":100}'),
    ('{"a":-0}', '{"a":0}'),
    ('{"a":1,"a":2}', '{"a":2}'),
    ("not json", "not json"),
    (f'{{"a":{"9" * 5000}}}', f'{{ "a":{"9" * 5000}}}'),
]
DIFFERENT = [
    ('{"a":9007199254740993}', '{"a":9007199254740992}'),
    ('{"a":18446744073709551617}', '{"a":18446744073709551616}'),
    ('{"a":0.1}', '{"a":0.10000000000000001}'),
    ('{"a":1}', '{"a":true}'),
    ('{"a":0}', '{"a":false}'),
    ('{"a":1}', '{"a":[1]}'),
    ('{"a":1}', '{"a":"1"}'),
    ('{"a":null}', "{}"),
    ('{"a":[1,2]}', '{"a":[2,1]}'),
    ('{"a":1,"a":2}', '{"a":1}'),
    ('{"a":""}', '{"a":" "}'),
    ("", "{}"),
    ('{"a":NaN}', '{"a": NaN}'),
    ('{"a":1', '{"a":1}'),
    ('{"a":1e99999999999999999999}', '{ "a":1e99999999999999999999}'),
    ("[" * 100_000, "{}"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_value(one: str, other: str) -> None:
    assert same_value(one, other)
    assert same_value(other, one)
    assert value_hash(one) == value_hash(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_another_value(one: str, other: str) -> None:
    assert not same_value(one, other)
    assert not same_value(other, one)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_any_spelling_of_a_value_is_the_same(value: object) -> None:
    one, other = json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
    assert same_value(one, other)
    assert value_hash(one) == value_hash(other)


def test_the_generated_text_is_chosen_by_the_call_s_id() -> None:
    memory = {"call_1": '{"b": 1.0, "a": 2}'}
    assert faithful_arguments("call_1", '{"a":2,"b":1}', memory) == '{"b": 1.0, "a": 2}'
    assert faithful_arguments("call_1", '{"a":3,"b":1}', memory) == '{"a":3,"b":1}'
    assert faithful_arguments("call_2", '{"a":2,"b":1}', memory) == '{"a":2,"b":1}'
    assert faithful_arguments("call_1", "{}", {"call_1": "broken"}) == "{}"
