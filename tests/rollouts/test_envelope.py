"""Envelopes read piece by piece: the same records and verdicts however their bytes are cut and spaced."""

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from session_records import conversation, envelope

from switchyard_py.rollouts import Refusal, Rule
from switchyard_py.rollouts.envelope import EnvelopeReader

# Texts that look like the places where records are cut.
TRAPS = [
    {"a": 1, "text": '},{"a":1}'},
    {"a": [{"a": 2}, {"a": 3}], "b": {"completions": [{"a": 4}]}},
    {"a": '"completions":[', "c": '\\"}]}'},
    {"b": 1},
    {},
    [],
    None,
    {"a": "]}"},
]


def chunks(text: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def read(text: bytes, size: int = 7, session_id: str | None = "s") -> tuple[list[Any], dict[str, Any], str | None]:
    reader = EnvelopeReader(chunks(text, size), session_id)
    records = list(reader.records())
    return records, reader.rest, reader.session_id


WRITERS = [orjson.dumps, lambda value: json.dumps(value, indent=2).encode(), lambda value: json.dumps(value).encode()]


@pytest.mark.parametrize("size", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("write", WRITERS)
def test_records_come_out_as_they_are(write: Any, size: int) -> None:
    rest = {"schema_version": 1, "session_id": "s", "accounting": {"begun": 8}, "sealed": False}
    first_keys = {"schema_version": 1, "session_id": "s", "completions": TRAPS, **rest}
    last = {"completions": TRAPS, **rest}
    for whole in (first_keys, last, {"accounting": {"completions": []}, **first_keys}):
        assert read(write(whole), size) == (TRAPS, rest, "s")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(TRAPS), max_size=6), st.integers(1, 40))
def test_any_records_in_any_pieces(records: list[Any], size: int) -> None:
    assert read(orjson.dumps(envelope(records)), size)[0] == records


def test_the_id_is_known_with_the_first_record() -> None:
    for keys in (["schema_version", "session_id", "completions"], ["completions", "session_id", "schema_version"]):
        whole = envelope([{"a": 1}, {"a": 2}])
        reader = EnvelopeReader([orjson.dumps({key: whole[key] for key in keys})], None)
        next(records := reader.records())
        assert reader.session_id == "s"
        assert next(records) == {"a": 2}


def test_records_come_before_the_rest_has_arrived() -> None:
    text = orjson.dumps(envelope(conversation(3)))
    taken = 0

    def counted() -> Iterator[bytes]:
        nonlocal taken
        for piece in chunks(text, 64):
            taken += len(piece)
            yield piece

    next(EnvelopeReader(counted(), "s").records())
    assert taken < len(text) / 2


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"", Rule.E1),
        (b"[]", Rule.E1),
        (b'{"schema_version":1,"session_id":"s","completions":[{"a":1},{"a":2}', Rule.E1),
        (b'{"schema_version":1,"session_id":"s","completions":[{"a":1}{"a":2}]}', Rule.E1),
        (b'{"schema_version":1,"session_id":"s","completions":[{"a":NaN},{"a":2}]}', Rule.E1),
        (b'{"schema_version":1,"session_id":"s","completions":' + b"[" * 5000 + b"]" * 5000 + b"}", Rule.E1),
        (b'{"schema_version":2,"session_id":"s","completions":[{"a":1},{"a":2}]}', Rule.E2),
        (b'{"session_id":"t","completions":[{"a":1}],"schema_version":1}', Rule.E3),
        (b'{"schema_version":1,"session_id":"s","completions":{"a":1}}', Rule.E4),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_what_is_no_envelope_is_refused(text: bytes, rule: Rule, size: int) -> None:
    with pytest.raises(Refusal) as refused:
        read(text, size)
    assert refused.value.rule is rule
