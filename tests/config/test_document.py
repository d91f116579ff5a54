"""YAML as JSON-like values, and references to the environment."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchyard_py.config import ConfigError
from switchyard_py.config.document import expand_document, path_text, read_document

FILE = Path("bundle.yaml")


def read(tmp_path: Path, text: str | bytes) -> Any:
    path = tmp_path / "bundle.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_document(path)


def expand(value: Any, **environ: str) -> Any:
    return expand_document(FILE, value, environ)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"\xff", "is not UTF-8 (byte 0): save it as UTF-8"),
        (b"a: \x00", "invalid YAML: special characters are not allowed at character 3"),
        (b"a: b: c", "line 1, column 5: invalid YAML: mapping values are not allowed here"),
        (
            b"a: 1\nb: [",
            "line 2, column 5: invalid YAML: while parsing a flow node, expected the node content, but found",
        ),
        (b"a: 1\nb: 2\na: 3", "line 3, column 1: invalid YAML: duplicate key a, already given in line 1"),
        (b"a: {b: 1, b: 2}", "line 1, column 11: invalid YAML: duplicate key b, already given in line 1"),
        (b"? [a]\n: 1", "line 1, column 3: invalid YAML: a key must be text"),
        (b"a: !!python/name:os.system x", "line 1, column 4: invalid YAML: could not determine a constructor"),
        (b"a: !!int x", "invalid YAML: a value does not fit its type or !!tag"),
        (b"[" * 1000, "invalid YAML: nested too deeply"),
        (b"a: [1}", "line 1, column 6: invalid YAML: while parsing a flow sequence, expected ',' or ']', but got '}'"),
        (
            b"a: 1\n---\nb: 2",
            "line 2, column 1: invalid YAML: expected a single document in the stream, but found another document",
        ),
    ],
)
def test_a_file_that_is_no_document(tmp_path: Path, text: bytes, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"bundle.yaml: {expected}")):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01", "2024-01-01"),
        ("1e-3", 0.001),
        ("-2.5E2", -250.0),
        ("=", "="),
        ("0.10", 0.1),
        ("1_000", 1000),
        ("'1e-3'", "1e-3"),
        ("null", None),
    ],
)
def test_plain_values_read_as_in_json(tmp_path: Path, text: str, value: Any) -> None:
    assert read(tmp_path, f"a: {text}") == {"a": value}


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbfa: 1") == {"a": 1}


def test_a_key_beside_a_merge_may_repeat_a_merged_one(tmp_path: Path) -> None:
    text = (
        "base: &b {model: m, timeout: 1}\nmore: &m {<<: *b, timeout: 2}\nroute: {<<: *m, model: n}\nagain: {<<: *m}\n"
    )
    document = read(tmp_path, text)
    assert document["route"] == {"model": "n", "timeout": 2}
    assert document["again"] == {"model": "m", "timeout": 2}


@pytest.mark.parametrize("text", ["a: &x {b: *x}", "&x [*x, *x]"])
def test_a_value_that_contains_itself_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        expand_document(FILE, read(tmp_path, text), {})


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${A}", "1"),
        ("x${A}${B}y", "x12y"),
        ("${A:-d}", "1"),
        ("${NONE:-d}", "d"),
        ("${NONE:-}", ""),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("${NONE:-http://h:1/{x}", "http://h:1/{x"),
        ("${NESTED}", "${A}"),
        ("$A $ $$ $HOME {A} a$", "$A $ $$ $HOME {A} a$"),
        ("$${A}", "$1"),
        ("${NONE:-$}{A}", "${A}"),
    ],
)
def test_references_expand_once(text: str, expanded: str) -> None:
    environ = {"A": "1", "B": "2", "EMPTY": "", "NESTED": "${A}"}
    assert expand({"k": ["x", text]}, **environ) == {"k": ["x", expanded]}


def test_keys_and_other_values_do_not_expand() -> None:
    document = {"${A}": 1, "b": [True, None, 1.5]}
    assert expand(document, A="x") == document


def test_a_missing_variable_is_named_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"^bundle\.yaml: a\[0\]\.b: the environment variable NOPE is not set: "):
        expand({"a": [{"b": "x ${NOPE}"}]})


@pytest.mark.parametrize(
    "text", ["${", "${}", "${1A}", "${oc.env:X}", "${A", "${A:?no}", "${A-b}", "${A:-${B}}", "${Ä}"]
)
def test_a_reference_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="begins no reference: write"):
        expand([text], A="1", B="2", X="3", Ä="4")


def test_text_that_json_cannot_carry_is_refused() -> None:
    for text in ("\ud800", "${BAD}"):
        with pytest.raises(ConfigError, match="is not valid Unicode text"):
            expand({"a": text}, BAD="\udcff")


_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
_literals = st.text(st.characters(codec="utf-8")).filter(lambda text: "${" not in text)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(_literals.filter(lambda text: not text.endswith("$")), _names, _literals)), _literals)
def test_expansion_replaces_references_and_nothing_else(parts: list[tuple[str, str, str]], end: str) -> None:
    environ = {name: value for _, name, value in parts}
    text = "".join(literal + "${" + name + "}" for literal, name, _ in parts) + end
    expected = "".join(literal + environ[name] for literal, name, _ in parts) + end
    assert expand(text, **environ) == expected


@settings(deadline=None, max_examples=50)
@given(_names, _literals.filter(lambda text: "}" not in text), st.none() | _literals)
def test_a_default_stands_in_for_nothing(name: str, default: str, value: str | None) -> None:
    environ = {} if value is None else {name: value}
    assert expand("${" + name + ":-" + default + "}", **environ) == (value or default)


def test_paths_are_written_as_a_reader_would() -> None:
    assert path_text(()) == ""
    assert path_text(("routes", "policy", "aliases", 0)) == "routes.policy.aliases[0]"
    assert path_text(("routes", "qwen2.5 7b", "Qwen/Qwen3-8B", "模型")) == "routes.'qwen2.5 7b'.Qwen/Qwen3-8B.模型"
