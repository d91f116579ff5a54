"""Whatever orjson would refuse is refused, and what is accepted means the same."""

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from switchyard_py.strictjson import decode

NUMBERS = [
    *("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e308", "1e-400", "0e999999", "1.", ".5", "01", "-", "+1"),
    *("-0", "-0.0", "1e", "1E+2", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "9" * 100),
    *(
        "9" * 308,
        "-" + "9" * 308,
        "9" * 309,
        "1" + "0" * 308,
        "9" * 4300,
        "9" * 5000,
        "0." + "1" * 400,
        "1e" + "9" * 400,
    ),
]
TEXTS = [
    *(
        '"\\ud800"',
        '"\\udc00"',
        '"\\ud83d\\ude00"',
        '"\\ude00\\ud83d"',
        '"\\u12"',
        '"\\u0000"',
        '"\\x"',
        '"\\"',
        '"\n"',
    ),
    *(
        '"\x00"',
        '"\x7f"',
        '"\u2028"',
        '"' + "7" * 400 + '"',
        '"[[[[\\\\\\"]{{"',
        "'a'",
        '"é"',
        '""',
        '"',
        "tru",
        "null",
    ),
]
BYTES = [
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc3",
    b"\xef\xbb\xbf",
    b"\x00",
    b"\x0b",
    b"\xa0",
]

texts = st.recursive(
    st.sampled_from(NUMBERS + TEXTS) | st.from_type(int).map(str) | st.text(max_size=5).map(json.dumps),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(st.sampled_from(['"a"', '"b"', '"\\ud800"', "a"]), inner), max_size=4).map(
            lambda items: "{" + ",".join(f"{key}: {value}" for key, value in items) + "}"
        ),
        st.tuples(st.integers(100, 1100), inner).map(lambda pair: "[" * pair[0] + pair[1] + "]" * pair[0]),
    ),
    max_leaves=6,
).map(lambda text: text.encode(errors="surrogatepass"))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A text of which some bytes are others, are gone, or have been added."""
    text = bytearray(draw(texts))
    for _ in range(draw(st.integers(0, 2))):
        at, end = draw(st.integers(0, len(text))), draw(st.integers(0, 2))
        text[at : at + end] = draw(st.sampled_from(BYTES) | st.binary(max_size=2))
    return bytes(text)


def refuses(read: Any, text: bytes) -> bool:
    try:
        read(text)
    except ValueError:
        return True
    return False


@contextlib.contextmanager
def deep_stack() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def as_orjson(value: Any) -> Any:
    """Integers beyond 64 bits are floats for orjson."""
    if type(value) is int and not -(2**63) <= value < 2**64:
        return float(value)
    if isinstance(value, list):
        return [as_orjson(each) for each in value]
    return {key: as_orjson(each) for key, each in value.items()} if isinstance(value, dict) else value


@settings(max_examples=500, deadline=None)
@given(texts | damaged() | st.binary(max_size=8))
@example(b"9" * 309)
@example(b'{"a":1,"a":[' + b"9" * 400 + b"]}")
@example(b"[" * 1025 + b"]" * 1025)
@example(b'{"\xff":1}')
def test_what_orjson_refuses_is_refused_and_the_rest_means_the_same(text: bytes) -> None:
    if refuses(orjson.loads, text):
        assert refuses(decode, text)
    elif not refuses(decode, text):
        with deep_stack():
            assert repr(as_orjson(decode(text))) == repr(orjson.loads(text))


@pytest.mark.parametrize("text", [*NUMBERS, *TEXTS])
def test_nothing_else_is_refused(text: str) -> None:
    for whole in (text, f'{{"a":[{text},{text}]}}'):
        encoded = whole.encode()
        assert refuses(decode, encoded) == refuses(orjson.loads, encoded)


@pytest.mark.parametrize(
    ("opening", "inmost", "closing"), [("[", "", "]"), ('{"a":', "1", "}"), ('[{"a":"]}","b":', "1", "}]")]
)
def test_an_interpreter_with_a_deep_stack_reads_no_deeper_than_orjson(opening: str, inmost: str, closing: str) -> None:
    with deep_stack():
        for levels in (500, 512, 513, 1024, 1025, 3000):
            text = (opening * levels + inmost + closing * levels).encode()
            assert refuses(decode, text) == refuses(orjson.loads, text)


def test_a_shallow_stack_is_no_other_error() -> None:
    assert refuses(decode, b"[" * 100_000 + b"]" * 100_000)


def test_large_integers_keep_their_value() -> None:
    assert decode(b"[18446744073709551617,%b]" % (b"9" * 300)) == [2**64 + 1, int("9" * 300)]
