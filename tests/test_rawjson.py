"""JSON cut into slices keeps every byte, and is accepted and refused as the standard library would strictly do."""

import json
import math
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from switchyard_py.rawjson import (
    MAX_DEPTH,
    InvalidJSON,
    check_text,
    decode,
    encode,
    join_array,
    join_object,
    split_array,
    split_object,
    split_objects,
    storable,
)

Member = tuple[str, str]

SPELLINGS = st.sampled_from(
    [
        "0.10", "1E2", "-0", "1e400", "-1e400", "1.0", "9" * 25, "9" * 400, "9" * 5000, "18446744073709551616", "null",
        "true", '"\\ud800"', '"a\\udfffb"', '"\\ud83d\\ude00"', '"\\/\\u00e9\\u00E9\u00e9"', '"\U0001f600"', '""',
        '"\\\\"', '"\\""', "[]", "{}", "[ 1 ,2 ]", '{"z":1,"a":{"z":2}}', '{ "k" : [ null ] }', '{"d":1,"d":2}',
    ]
)  # fmt: skip
NESTED = st.recursive(
    SPELLINGS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + " , ".join(items) + "]")
        | st.lists(st.tuples(st.sampled_from(['"a"', '"\\u0062"', '"\\ud800"', '"a"']), inner), max_size=3).map(
            lambda pairs: "{" + ",".join(f"{key}: {value}" for key, value in pairs) + "}"
        )
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ['"a"', '"b.c-d_0"', '""', '"\\u00e9"', '"\u00fc"', '"q\\"q"', '"\\\\"', '"\\ud800"', '"\U0001f600"', '"\\n"']
)
SPACE = st.sampled_from(["", " ", "\n\t", "\r\n  "])


@st.composite
def objects(draw: st.DrawFn) -> tuple[bytes, list[Member]]:
    """The text of an object and its members, as (key, value) spellings."""
    members = draw(st.lists(st.tuples(KEYS, NESTED), max_size=6))
    text = "{"
    for number, (key, value) in enumerate(members):
        text += "," * bool(number) + draw(SPACE) + key + draw(SPACE) + ":" + draw(SPACE) + value + draw(SPACE)
    return (draw(SPACE) + text + draw(SPACE) + "}" + draw(SPACE)).encode(), members


@given(objects())
def test_splitting_and_joining_keeps_keys_order_and_the_bytes_of_values(
    given_object: tuple[bytes, list[Member]],
) -> None:
    text, members = given_object
    last = dict(members)
    assert [bytes(value) for value in split_object(text).values()] == [value.encode() for value in last.values()]
    joined = join_object(split_object(text), text)
    assert joined == b"{" + b",".join(f"{key}:{value}".encode() for key, value in last.items()) + b"}"
    assert bytes(join_object(split_object(joined), joined)) == joined


@given(st.lists(NESTED, max_size=6), SPACE)
def test_splitting_and_joining_an_array_keeps_the_bytes_of_its_items(items: list[str], space: str) -> None:
    text = (space + "[" + ",".join(space + item + space for item in items) + "]" + space).encode()
    assert [bytes(item) for item in split_array(text)] == [item.encode() for item in items]
    assert join_array(split_array(text)) == ("[" + ",".join(items) + "]").encode()


def test_the_last_of_equal_keys_counts_at_the_place_of_the_first() -> None:
    assert join_object(split_object(b'{"a":1,"b":2,"a":3}')) == b'{"a":3,"b":2}'
    with_surrogate = b'{"a":1,"b":"\\ud800","a":3}'
    assert join_object(split_object(with_surrogate)) == b'{"a":3,"b":"\\ud800"}'


def test_a_key_is_spelled_as_it_was_whatever_values_look_like() -> None:
    for text in ('{"é":"\\u00e9"}', '{"\\u00e9" : "é"}', '{"\\ud800":"é"}'):
        assert join_object(split_object(text.encode()), text.encode()) == text.replace(" ", "").encode()


def test_objects_of_an_array_are_split_each() -> None:
    text = b'[{"a": 0.10, "b":1}, {"c":"\\ud800"}]'
    assert [{key: bytes(value) for key, value in each.items()} for each in split_objects(text)] == [
        {"a": b"0.10", "b": b"1"},
        {"c": b'"\\ud800"'},
    ]
    for wrong in (b"{}", b"[1]", b'[{"a":1},2]', b"null"):
        with pytest.raises(InvalidJSON):
            split_objects(wrong)


FLAWLESS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A JSON text of an object with a few bytes changed, removed or put in."""
    text = bytearray(
        json.dumps({"k": draw(FLAWLESS), "l": [1, "\ud800", 0.5]}, ensure_ascii=draw(st.booleans())).encode(
            errors="replace"
        )
    )
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        new = draw(st.sampled_from([b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".", b"e", b" ",
                                    b"\x00", b"\x1f", b"\x7f", b"\xff", b"\xc3", b"\\u12", b"\\ud800", b"NaN", b"null",
                                    b"Infinity", b"\x0b", b"//", b"'"]))  # fmt: skip
        text[at : at + draw(st.integers(0, 1))] = new
    return bytes(text)


def strictly_valid(text: bytes) -> bool:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        return isinstance(json.loads(text.decode(), parse_constant=refuse), dict)
    except ValueError:
        return False


@given(mutated())
@example(b'{"a":"\\ud800"} {}')
@example(b'{"a":"\\ud800",}')
@example(b'{"a":"\\ud800","b":NaN}')
@example(b'{"a":"\\ud800" "b":1}')
@example(b'{"a":"\\ud800",b:1}')
@example(b'{"a":"\\ud800","b"')
@example(b'{"a":"\\ud800","b":')
@example(b'{"a":01}')
@example(b'{"a":"\x01"}')
@example(b'{"a":"\xed\xa0\x80"}')
def test_what_is_no_json_object_is_refused_and_nothing_else(text: bytes) -> None:
    try:
        fields = split_object(check_text(text))
    except InvalidJSON:
        assert not strictly_valid(text)
    else:
        assert strictly_valid(text)
        assert join_object(fields, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not a JSON object"),
        (b'{"a":', "ends early"),
        (b"null", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'"{}"', "not a JSON object"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b'{"a":1}}', "something follows"),
        (b'{"a" 1}', "':' is expected at character 5"),
        (b'{"a":1 "b":2}', "',' or '}' is expected at character 7"),
        (b"{a:1}", "a key is expected at character 1"),
        (b'{"a":"\xff"}', "not valid UTF-8: byte 6 is 0xff"),
        (b"\x1f\x8b\x08\x00\x00", "not valid UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "not valid UTF-8"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where(text: bytes, says: str) -> None:
    with pytest.raises(InvalidJSON) as caught:
        split_object(check_text(text))
    assert says in str(caught.value)


def nested(depth: int, inner: bytes = b"1") -> bytes:
    """An object that is nested `depth` levels deep, counting itself."""
    return b'{"a":' + b"[" * (depth - 1) + inner + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize("inner", [b"1", b'"\\ud800"'])
def test_nesting_is_accepted_up_to_the_limit(inner: bytes) -> None:
    for depth in (100, MAX_DEPTH):
        text = nested(depth, inner)
        assert join_object(split_object(check_text(text))) == text
        assert orjson.loads(storable(text)[0])
    for depth in (MAX_DEPTH + 1, 300, 100_000):
        with pytest.raises(InvalidJSON, match="nested deeper than 128 levels"):
            check_text(nested(depth, inner))


def test_brackets_inside_strings_are_no_nesting() -> None:
    text = b'{"a":"' + b"[{" * 400 + b'","b":"\\"[[[\\\\","c":[' + b"[]," * 300 + b"[]]}"
    assert check_text(text) == text


def test_the_depth_of_a_hostile_text_is_found_in_linear_time() -> None:
    # A string that never ends, full of escaped quotes, each of which could be taken for the begin of another string.
    with pytest.raises(InvalidJSON):
        split_object(check_text(b'{"a":[' + b"[]," * 200 + b'"' + b'\\"' * 400_000))


def test_a_byte_order_mark_is_dropped() -> None:
    assert check_text(b"\xef\xbb\xbf{}") == b"{}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"99999999999999999999999", 99999999999999999999999),
        (b'"\\ud800"', "\ud800"),
        (b'{"a":1e400}', {"a": math.inf}),
        (b"9" * 5000, math.inf),
        (b"-" + b"9" * 5000, -math.inf),
        (b"0.10", 0.1),
        (None, None),
    ],
)
def test_decoding_loses_no_integer_and_no_surrogate(text: bytes | None, value: object) -> None:
    assert decode(text) == value


def test_decoding_what_is_no_json_is_refused() -> None:
    for text in (b"", b"{", b"[" * 100_000, b'"\x01"'):
        with pytest.raises(InvalidJSON):
            decode(text)


def test_encoding_writes_what_orjson_refuses() -> None:
    assert encode({"a": "\u00e9"}) == '{"a":"\u00e9"}'.encode()
    assert encode(2**70) == b"1180591620717411303424"
    assert json.loads(encode("\ud800")) == "\ud800"


@given(NESTED)
@example('"\\ud800\\ud800"')
@example("9" * 5000)
@example("[" + "9" * 309 + ",1e308]")
def test_what_is_stored_is_readable_by_orjson_and_unchanged_unless_it_says_so(text: str) -> None:
    stored, lossy = storable(text.encode())
    value = orjson.loads(stored)
    if lossy:
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(text)
    else:
        assert value == orjson.loads(text)
        assert stored == without_space(text).encode()


def without_space(text: str) -> str:
    """The strategies put white space only between tokens."""
    return "".join(text.split())


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ('{"a":"x\\ud800y"}', '{"a":"x\ufffdy"}'),
        ('{"\\udfff":1}', '{"\ufffd":1}'),
        ('["\\ud83d\\ude00\\ud83d"]', '["\U0001f600\ufffd"]'),
        ("[1e400,-1e999, 0.10]", '["1e400","-1e999",0.1]'),
        ("[" + "9" * 400 + "]", '["' + "9" * 400 + '"]'),
        ('{"big":123456789012345678901234567890,"s":"\\udc00"}', '{"big":123456789012345678901234567890,"s":"\ufffd"}'),
    ],
)
def test_what_had_to_be_replaced_is_replaced_as_documented(text: str, stored: str) -> None:
    assert storable(text.encode()) == (stored.encode(), True)


def test_slices_are_views_into_their_text() -> None:
    large = b'{"a":"' + b"x" * 100_000 + b'"}'
    value: Any = split_object(large)["a"]
    assert isinstance(value, msgspec.Raw)
    assert storable(value) == (bytes(value), False)
