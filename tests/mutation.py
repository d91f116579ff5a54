"""Recorded requests and replies, spoiled in ways that a `random.Random` chooses: the same choice for the same seed.

Values are spoiled where they have a structure (a key, an item, a number), texts byte by byte.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

Ending = Literal["end", "close", "reset"]

DEEP = 3000
"""Deeper than what any JSON reader of this process takes."""


@dataclass(frozen=True)
class Raw:
    """JSON text, or something that is none, in the place of a value."""

    text: str


ODD_VALUES = [
    *map(Raw, ["null", "true", "false", "0", "1", "2", "-1", "-0", "1.0", "0.10", "1E2", "1e400", "-1e400", "1e-400"]),
    *map(Raw, ["9223372036854775807", "9223372036854775808", "18446744073709551616", "9" * 5000, "1000000000"]),
    *map(Raw, ["NaN", "-Infinity", "nul", "01", "+1", ".5", '"\\x"', '"\t"', '"open', "'", "", "//"]),
    *map(
        Raw, ['"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"\\ud83d\\ude00"', '"é"', '"\x7f"', '"\\""', '""', '" "']
    ),
    *map(Raw, ["[]", "{}", "[[]]", "[null]", "[{}]", '{"":null}', '{"a":{"b":[1]}}', "[1,2,3]", "[-1]", "[1.5]"]),
    *("x", "1", "true", "no", "stop", "length", "tool_calls", "abort", "assistant", "user", "\n\n", "x" * 5000, "."),
    *(Raw("[" * depth + "]" * depth) for depth in (100, 140, 400, DEEP)),
    Raw('{"a":' * DEEP + "1" + "}" * DEEP),
]

ODD_BYTES = [
    *(b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"\n\n"),
    *(b'"', b"\\", b"{", b"]", b",", b":", b"e999", b"null", b"data: ", b"[DONE]"),
]


def written(value: Any, chance: Random) -> bytes:
    """JSON text; now and then a key of an object is written twice, and a lone surrogate as bytes that are no UTF-8."""
    return _written(value, chance).encode(errors="surrogatepass")


def _written(value: Any, chance: Random) -> str:
    match value:
        case Raw():
            return value.text
        case dict():
            members = [json.dumps(key) + ":" + _written(item, chance) for key, item in value.items()]
            if members and chance.random() < 0.002:
                members.append(chance.choice(members))
            return "{" + ",".join(members) + "}"
        case list():
            return "[" + ",".join(_written(item, chance) for item in value) + "]"
        case _:
            return json.dumps(value, ensure_ascii=chance.random() < 0.5)


def spoil_value(value: Any, chance: Random, others: Sequence[Any] = ODD_VALUES) -> Any:
    """Change a JSON value in place, at one random spot; `others` are what may stand there instead."""
    spots = list(_spots(value))
    if not spots:
        return chance.choice(others)
    container, key = chance.choice(spots)
    match chance.randrange(7):
        case 0:
            del container[key]
        case 1:
            container[key] = [container[key]]
        case 2:
            container[key] = {str(chance.choice(list(_keys(value)) or ["x"])): container[key]}
        case 3:  # a value from elsewhere in the tree
            other, place = chance.choice(spots)
            container[key] = json.loads(json.dumps(other[place], default=lambda raw: raw.text))
        case 4 if isinstance(container, list):
            container.insert(key, container[key])
        case 4:
            container[key + chance.choice(("", "s", "\0", "é", ' "'))] = container.pop(key)
        case _:
            container[key] = chance.choice(others)
    return value


def _spots(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    rest = [value]
    while rest:
        item = rest.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else []
        found += [(item, key) for key in keys]
        rest += [item[key] for key in keys]
    return found


def _keys(value: Any) -> set[str]:
    return {key for _, key in _spots(value) if isinstance(key, str)}


def spoil_bytes(data: bytes, chance: Random) -> bytes:
    """Change a text at one random spot."""
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.choice((1, 1, 2, 8, 100)))
    match chance.randrange(6):
        case 0 if at < len(data):
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:at] + data[at:end] * 2 + data[end:]
        case 3:
            return data[:at]
        case _:
            return data[:at] + chance.choice(ODD_BYTES) + data[at:]


@dataclass(frozen=True)
class Reply:
    """What an engine sends: a head, its body in pieces, and how it ends."""

    status: int
    headers: tuple[tuple[str, str], ...]
    pieces: tuple[bytes, ...]
    ending: Ending

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


def spoiled_body(body: Any, chance: Random) -> bytes:
    """A buffered reply with one to three changes."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        body = spoil_value(body, chance)
    data = written(body, chance)
    return spoil_bytes(data, chance) if chance.random() < 0.2 else data


def spoiled_stream(stream: bytes, chance: Random) -> bytes:
    """An event stream with one to three changes, in its events, their order or their framing."""
    events = [event + b"\n\n" for event in stream.split(b"\n\n")[:-1]]
    for _ in range(chance.choice((1, 1, 2, 3))):
        events = chance.choice(_STREAM_CHANGES)(events, chance)
    data = b"".join(events)
    return spoil_bytes(data, chance) if chance.random() < 0.2 else data


_Change = Callable[[list[bytes], Random], list[bytes]]


def _spoil_event(events: list[bytes], chance: Random) -> list[bytes]:
    """A value inside of one event."""
    at = _place(events, chance)
    try:
        value = json.loads(events[at].removeprefix(b"data: "))
        event = b"data: " + written(spoil_value(value, chance), chance) + b"\n\n"
    except (ValueError, IndexError, RecursionError):  # there is none, or it was spoiled before
        return events
    return [*events[:at], event, *events[at + 1 :]]


def _drop(events: list[bytes], chance: Random) -> list[bytes]:
    at = _place(events, chance)
    return [*events[:at], *events[at + 1 :]]


def _double(events: list[bytes], chance: Random) -> list[bytes]:
    at = _place(events, chance)
    return [*events[: at + 1], *events[at:]]


def _swap(events: list[bytes], chance: Random) -> list[bytes]:
    one, other = _place(events, chance), _place(events, chance)
    swapped = list(events)
    if events:
        swapped[one], swapped[other] = events[other], events[one]
    return swapped


def _cut(events: list[bytes], chance: Random) -> list[bytes]:
    return events[: _place(events, chance)]


def _insert(events: list[bytes], chance: Random) -> list[bytes]:
    at = _place(events, chance)
    return [*events[:at], chance.choice(_FOREIGN_EVENTS), *events[at:]]


def _other_line_ends(events: list[bytes], chance: Random) -> list[bytes]:
    ends = chance.choice((b"\r\n", b"\r", b"\n\n"))
    return [event.replace(b"\n", ends) for event in events]


def _several_lines(events: list[bytes], chance: Random) -> list[bytes]:
    """Break one event's data over two lines, where JSON allows white space or where it does not."""
    at = _place(events, chance)
    if not events or b"," not in events[at]:
        return events
    places = [place + 1 for place, byte in enumerate(events[at]) if byte == ord(",")]
    place = chance.choice(places)
    return [*events[:at], events[at][:place] + b"\ndata: " + events[at][place:], *events[at + 1 :]]


def _second_choice(events: list[bytes], chance: Random) -> list[bytes]:
    return [event.replace(b'"index":0', b'"index":1') if chance.random() < 0.3 else event for event in events]


def _place(events: list[bytes], chance: Random) -> int:
    return chance.randrange(len(events)) if events else 0


_STREAM_CHANGES: list[_Change] = [
    *(_spoil_event,) * 6,
    _drop,
    _double,
    _swap,
    _cut,
    _insert,
    _other_line_ends,
    _several_lines,
    _second_choice,
]

_FOREIGN_EVENTS = [
    b": comment\n",
    b": comment\n\n",
    b"\n",
    b"event: ping\n\n",
    b"retry: 1\n\n",
    b"data\n\n",
    b"data:\n\n",
    b"data: [DONE]\n\n",
    b"data:[DONE]\n\n",
    b"data: {}\n\n",
    b"data: []\n\n",
    b"data: null\n\n",
    b'data: {"choices":[]}\n\n',
    b'data: {"error":{"message":"EngineCore died","type":"InternalServerError","param":null,"code":500}}\n\n',
    b'data: {"error":"text"}\n\n',
    b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}\n\n',
    b"event: error\ndata: x\n\n",
    b"\xef\xbb\xbf",
    b"data: \xff\n\n",
]
