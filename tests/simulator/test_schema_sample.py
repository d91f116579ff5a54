from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from switchyard_py.simulator.schema_sample import UnsatisfiableSchemaError, sample_value

SCALARS = st.one_of(
    st.builds(
        lambda low, size: {"type": "string", "minLength": low, "maxLength": low + size}, *[st.integers(0, 9)] * 2
    ),
    st.builds(lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size}, *[st.integers(0, 99)] * 2),
    st.builds(lambda low: {"type": "number", "exclusiveMinimum": low}, st.floats(-1e6, 1e6)),
    st.builds(lambda high: {"type": "number", "exclusiveMaximum": high}, st.integers(-99, 99)),
    st.builds(lambda step: {"type": "integer", "multipleOf": step, "minimum": 3}, st.integers(1, 9)),
    st.lists(st.one_of(st.text(max_size=3), st.integers()), min_size=1, max_size=3).map(lambda e: {"enum": e}),
    st.one_of(st.text(max_size=3), st.none()).map(lambda value: {"const": value}),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {}, True, {"type": ["null", "integer"]}]),
    st.sampled_from([{"type": "string", "pattern": p} for p in ("^[a-z]{3}$", r"\d+", "x|y")]),
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
    return st.one_of(
        names.map(lambda p: {"type": "object", "properties": p, "required": list(p), "additionalProperties": False}),
        st.builds(lambda item, least: {"type": "array", "items": item, "minItems": least}, inner, st.integers(0, 3)),
        st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
        st.builds(
            lambda a, b: {"allOf": [{"properties": {"a": a}, "required": ["a"]}, {"properties": {"b": b}}]},
            inner,
            inner,
        ),
    )


SCHEMAS = st.recursive(SCALARS, containers, max_leaves=6)


@given(SCHEMAS)
def test_sample_satisfies_its_schema(schema: Any) -> None:
    Draft202012Validator(schema).validate(sample_value(schema))


@given(SCHEMAS)
def test_references_are_followed(part: Any) -> None:
    schema = {"$defs": {"a/b": part}, "properties": {"x": {"$ref": "#/$defs/a~1b"}}, "required": ["x"]}
    Draft202012Validator(schema).validate(sample_value(schema))


CASES: list[dict[str, Any]] = [
    {"type": "object", "minProperties": 2, "properties": {"a": {"type": "integer"}}},
    {"type": "array", "prefixItems": [{"const": 1}, {"const": "x"}], "minItems": 3, "items": {"type": "null"}},
    {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    {"allOf": [{"type": "number", "minimum": 2}, {"type": "integer", "maximum": 5}, {"minimum": 4}]},
    {"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]},
    {"allOf": [{"properties": {"a": {"minimum": 2}}}, {"properties": {"a": {"maximum": 2}}, "required": ["a"]}]},
    {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 2},
    {"type": "number", "minimum": 0.25, "maximum": 0.5},
    {"type": "string", "format": "date"},
    {"minLength": 3},
    {"required": ["x"]},
    {"anyOf": [{"type": "integer", "minimum": 3, "maximum": 2}, {"type": "null"}]},
    {
        "$defs": {
            "node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}
        },
        "$ref": "#/$defs/node",
        "required": ["next"],
    },
]


@pytest.mark.parametrize("schema", CASES, ids=str)
def test_keyword(schema: dict[str, Any]) -> None:
    Draft202012Validator(schema).validate(sample_value(schema))


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"allOf": [False]},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.com/schema"},
        {"allOf": [{"type": "integer"}, {"type": "string"}]},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"$ref": "#"},
        {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "string", "minLength": []},
        {"type": "object", "required": 3},
    ],
    ids=str,
)
def test_schema_without_a_value_is_refused(schema: Any) -> None:
    with pytest.raises(UnsatisfiableSchemaError):
        sample_value(schema)


def test_an_optional_value_is_sampled_not_null() -> None:
    assert sample_value({"anyOf": [{"type": "null"}, {"type": "integer"}]}) == 1
