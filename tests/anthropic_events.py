"""What a client of Anthropic's makes of a reply: the official models read every event, a state machine their order."""

import json
from typing import Any

import pydantic
from anthropic import types

from switchyard_py.upstream import SSEReader

Event = dict[str, Any]

_EVENT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(types.RawMessageStreamEvent)
_DELTA_OF = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}


def read_message(body: bytes) -> Event:
    """A buffered reply, after the official model has read it strictly and found nothing it does not know."""
    model = types.Message.model_validate_json(body, strict=True)
    _assert_known(model)
    return dict(json.loads(body))


def read_events(body: bytes) -> list[Event]:
    """The events of a stream, each read by the official models likewise."""
    reader = SSEReader()
    found = reader.feed(body)
    assert reader.end() == b""
    events = []
    for event in found:
        assert event.data is not None
        value = json.loads(event.data)
        assert event.event == value["type"].encode()
        if value["type"] not in ("ping", "error"):
            model = _EVENT.validate_json(event.data, strict=True)
            assert model.type == value["type"]
            _assert_known(model)
        events.append(value)
    return events


def assembled(events: list[Event]) -> Event:
    """The message a whole stream spells, as a buffered reply would hold it.

    The stream begins with `message_start`, has one block open at a time, numbered from 0, and ends with
    `message_delta` and `message_stop`.
    """
    first, *rest = [event for event in events if event["type"] != "ping"]
    assert first["type"] == "message_start"
    message = dict(first["message"])
    assert (message["content"], message["stop_reason"], message["stop_sequence"]) == ([], None, None)
    blocks: list[Event] = []
    pieces: list[str] | None = None
    for event in rest[:-2]:
        if event["type"] == "content_block_start":
            assert pieces is None
            assert event["index"] == len(blocks)
            blocks.append(dict(event["content_block"]))
            pieces = []
            continue
        assert pieces is not None
        assert event["index"] == len(blocks) - 1
        if event["type"] == "content_block_stop":
            _close(blocks[-1], pieces)
            pieces = None
            continue
        assert event["type"] == "content_block_delta"
        _add(blocks[-1], pieces, event["delta"])
    assert pieces is None
    assert [event["type"] for event in rest[-2:]] == ["message_delta", "message_stop"]
    assert rest[-2]["delta"]["stop_reason"] is not None
    return {**message, "content": blocks, **rest[-2]["delta"], "usage": rest[-2]["usage"]}


def _add(block: Event, pieces: list[str], delta: Event) -> None:
    if delta["type"] == "signature_delta":
        assert (block["type"], block["signature"]) == ("thinking", "")
        block["signature"] = delta["signature"]
        return
    assert block.get("signature", "") == ""
    assert delta["type"] == _DELTA_OF[block["type"]]
    (piece,) = (value for key, value in delta.items() if key != "type")
    assert piece
    pieces.append(piece)


def _close(block: Event, pieces: list[str]) -> None:
    if block["type"] == "tool_use":
        assert block["input"] == {}
        block["input"] = _input("".join(pieces))
        return
    assert block[block["type"]] == ""
    assert pieces, "an empty block cannot be sent back"
    block[block["type"]] = "".join(pieces)
    assert block.get("signature", "signed")


def _input(text: str) -> Any:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _assert_known(value: object) -> None:
    if isinstance(value, pydantic.BaseModel):
        assert not value.model_extra, value.model_extra
        for name in type(value).model_fields:
            _assert_known(getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            _assert_known(item)
