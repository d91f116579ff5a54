"""JSON that is split into slices instead of being parsed, so that what nobody decodes keeps every byte.

An agent's request and an engine's reply pass through with their own spelling of numbers, escapes and key order: only
the keys somebody has to read are decoded.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, cast

import msgspec
import orjson

Slice = msgspec.Raw | bytes
"""The JSON text of one value, without surrounding white space; a view into the text it was cut from."""

MAX_DEPTH = 128
"""Deepest nesting accepted: orjson writes 254 levels, and a record wraps a request in a few of its own."""

NULL = b"null"
TRUE = b"true"

_SPACE = re.compile(r"[ \t\n\r]*")
# Keys recur call after call; whoever sends ever new ones cannot fill the memory.
_PLAIN_KEYS: dict[str, bytes] = {}
_MOST_PLAIN_KEYS = 4096
_PLAIN_KEY = re.compile(r"[\w.\-]*", re.ASCII)
# What tells nesting, and every character that can follow a backslash.
_NO_STRUCTURE_OR_ESCAPE = bytes(byte for byte in range(256) if byte not in b'[]{}"\\/bfnrtu')
_NO_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_STEP = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]
_BOM = b"\xef\xbb\xbf"
# The types are module constants because msgspec builds a decoder for each new one.
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class InvalidJSON(ValueError):
    """Text that is not JSON as RFC 8259 has it, or nested deeper than `MAX_DEPTH`; the message says what and where."""


def check_text(text: bytes) -> bytes:
    """Return `text` without a byte order mark after checking what splitting does not: UTF-8 and depth.

    Raises:
        InvalidJSON: the text is not UTF-8 or is nested deeper than `MAX_DEPTH`.
    """
    text = check_utf8(text)
    if is_deeper(text, MAX_DEPTH):
        raise InvalidJSON(f"it is nested deeper than {MAX_DEPTH} levels")
    return text


def check_utf8(text: bytes) -> bytes:
    """Return `text` without a byte order mark.

    Raises:
        InvalidJSON: the text is not UTF-8.
    """
    text = text.removeprefix(_BOM)
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise InvalidJSON(f"it is not valid UTF-8: byte {error.start} is 0x{text[error.start]:02x}") from None
    return text


def split_object(text: Slice) -> dict[str, Slice]:
    """Cut a JSON object into its top-level keys and the slices of their values; the last of equal keys counts.

    Raises:
        InvalidJSON: the text is not a JSON object.
    """
    try:
        return cast(dict[str, Slice], _OBJECT.decode(text))
    except msgspec.ValidationError:
        raise InvalidJSON("it is not a JSON object") from None
    except (msgspec.DecodeError, RecursionError):
        # msgspec refuses lone surrogates, which RFC 8259 allows: the standard library's scanner finds the same slices.
        return dict(_scan_object(bytes(text)))


def split_array(text: Slice) -> list[Slice]:
    """Cut a JSON array into the slices of its items.

    Raises:
        InvalidJSON: the text is not a JSON array.
    """
    try:
        return cast(list[Slice], _ARRAY.decode(text))
    except msgspec.ValidationError:
        raise InvalidJSON("it is not a JSON array") from None
    except (msgspec.DecodeError, RecursionError):
        return list(_scan_array(bytes(text)))


def split_objects(text: Slice) -> list[dict[str, Slice]]:
    """Cut a JSON array of objects, each into its keys.

    Raises:
        InvalidJSON: the text is not an array, or an item is not an object.
    """
    try:
        return cast(list[dict[str, Slice]], _OBJECTS.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return [split_object(item) for item in split_array(text)]


def join_object(fields: Mapping[str, Slice], source: bytes = b"") -> bytes:
    """Write an object from slices; an unusual key is spelled as in `source`, the text they were cut from."""
    parts: list[Slice] = []
    mark = b"{"
    for key, value in fields.items():
        parts += (mark, _PLAIN_KEYS.get(key) or _spell(key, source), value)
        mark = b","
    return b"".join(parts) + b"}" if parts else b"{}"


def join_array(items: Iterable[Slice]) -> bytes:
    """Write an array from slices."""
    return b"[" + b",".join(items) + b"]"


def decode(text: Slice | None) -> Any:
    """The Python value of a slice (None for a missing one), without losing an integer or a lone surrogate.

    Raises:
        InvalidJSON: the text is not JSON. Numbers beyond a double become infinities.
    """
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            return json.loads(bytes(text), parse_int=_integer)
        except (ValueError, RecursionError) as error:
            raise InvalidJSON(f"it is not valid JSON: {error}") from None


def encode(value: object) -> bytes:
    """Compact JSON of a Python value; text and integers that orjson refuses are written by the standard library."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()


def storable(text: Slice) -> tuple[bytes, bool]:
    """`text` made compact and readable by orjson; the flag tells whether something had to be replaced.

    Lone surrogates become U+FFFD, numbers beyond a double become strings of their own spelling.

    Raises:
        InvalidJSON: the text is nested so deep that it cannot be read again.
    """
    try:
        orjson.loads(memoryview(text))
        return msgspec.json.format(text, indent=-1), False
    except (ValueError, RecursionError):
        try:
            value = json.loads(bytes(text), parse_int=_integer_or_text, parse_float=_finite_or_text, parse_constant=str)
            plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except RecursionError:
            raise InvalidJSON("it is nested too deep") from None
        return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode(), True


def _integer(number: str) -> int | float:
    # int() refuses more than 4300 digits.
    value = float(number)
    return int(number) if math.isfinite(value) else value


def _integer_or_text(number: str) -> int | str:
    return int(number) if math.isfinite(float(number)) else number


def _finite_or_text(number: str) -> float | str:
    value = float(number)
    return value if math.isfinite(value) else number


def _spell(key: str, source: bytes) -> bytes:
    if _PLAIN_KEY.fullmatch(key):
        spelled = b'"%b":' % key.encode()
        if len(_PLAIN_KEYS) < _MOST_PLAIN_KEYS:
            _PLAIN_KEYS[key] = spelled
        return spelled
    escaped = json.dumps(key).encode()
    is_escaped = re.search(re.escape(escaped) + rb"[ \t\n\r]*:", source)
    return (escaped if is_escaped else encode(key)) + b":"


def is_deeper(text: bytes, levels: int) -> bool:
    """Whether a JSON text is nested deeper, at the speed of `bytes` methods: a loop over 400 KB takes milliseconds."""
    structure = text.translate(None, _NO_STRUCTURE_OR_ESCAPE)
    if structure.count(b"[") + structure.count(b"{") <= levels:
        return False
    without_escapes = structure.replace(rb"\\", b"").replace(rb"\"", b"")
    # Strings without brackets go first, which are most; of the rest every second stretch between quotes is one.
    stretches = without_escapes.translate(None, _NO_STRUCTURE).replace(b'""', b"").split(b'"')
    return max(accumulate(map(_STEP.__getitem__, b"".join(stretches[::2]))), default=0) > levels


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Numbers stay text here: int() refuses more than 4300 digits.
_scan_value = json.JSONDecoder(  # type: ignore[attr-defined]
    parse_int=str, parse_float=str, parse_constant=_refuse_constant
).scan_once


def _scan_object(text: bytes) -> Iterable[tuple[str, bytes]]:
    for key, value in _scan(text, "{", "}"):
        yield cast(str, key), value


def _scan_array(text: bytes) -> Iterable[bytes]:
    for _, value in _scan(text, "[", "]"):
        yield value


def _scan(text: bytes, opening: str, closing: str) -> Iterable[tuple[str | None, bytes]]:
    """Yield the members of one object (key, slice) or array (None, slice) by the standard library's scanner."""
    source = text.decode()
    at = _skip(source, 0)
    try:
        if source[at : at + 1] != opening:
            raise InvalidJSON(f"it is not a JSON {'object' if opening == '{' else 'array'}")
        at = _skip(source, at + 1)
        more = source[at] != closing
        while more:
            key = None
            if opening == "{":
                if source[at] != '"':
                    raise InvalidJSON(f"it is not valid JSON: a key is expected at character {at}")
                key, at = scanstring(source, at + 1, True)
                at = _skip(source, at)
                if source[at] != ":":
                    raise InvalidJSON(f"it is not valid JSON: ':' is expected at character {at}")
                at = _skip(source, at + 1)
            _, end = _scan_value(source, at)
            yield key, source[at:end].encode()
            at = _skip(source, end)
            if source[at] not in ("," + closing):
                raise InvalidJSON(f"it is not valid JSON: ',' or '{closing}' is expected at character {at}")
            more = source[at] == ","
            if more:
                at = _skip(source, at + 1)
        if _skip(source, at + 1) != len(source):
            raise InvalidJSON(f"it is not valid JSON: something follows its end at character {at + 1}")
    except (IndexError, StopIteration):
        raise InvalidJSON("it is not valid JSON: it ends early or a value is expected") from None
    except RecursionError:
        raise InvalidJSON(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except InvalidJSON:
        raise
    except ValueError as error:
        raise InvalidJSON(f"it is not valid JSON: {error}") from None


def _skip(source: str, at: int) -> int:
    found = _SPACE.match(source, at)
    return found.end() if found else at
