"""What a client of OpenAI's Responses makes of a reply: the official models read every event, a state machine their
order."""

import json
from typing import Any

import pydantic
from openai.types.responses import Response, ResponseStreamEvent

from switchyard_py.upstream import SSEReader

Event = dict[str, Any]

_EVENT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseStreamEvent)
_ENDS = ("response.completed", "response.incomplete")
# Of each kind of part: the name of its events, and the key of its text there and in the part itself.
_PARTS = {
    "reasoning_text": ("response.reasoning_text", "text"),
    "output_text": ("response.output_text", "text"),
    "refusal": ("response.refusal", "refusal"),
}
_ARGUMENTS = "response.function_call_arguments"


def read_response(body: bytes) -> Event:
    """A buffered reply, after the official model has read it strictly and found nothing it does not know."""
    _assert_known(Response.model_validate_json(body, strict=True))
    return dict(json.loads(body))


def read_events(body: bytes) -> list[Event]:
    """The events of a stream, each read by the official models likewise, numbered from 0."""
    reader = SSEReader()
    found = reader.feed(body)
    assert reader.end() == b""
    events = []
    for number, event in enumerate(found):
        assert event.data is not None
        value = json.loads(event.data)
        assert event.event == value["type"].encode()
        assert value["sequence_number"] == number
        # SDKs raise on this one, so they never read it as an event.
        known = {key: field for key, field in value.items() if key != "error"}
        model = _EVENT.validate_json(json.dumps(known), strict=True)
        assert model.type == value["type"]
        _assert_known(model)
        events.append(value)
    return events


def assembled(events: list[Event]) -> Event:
    """The response a whole stream ends with, after its events have been found to spell it.

    The stream begins with `response.created` and `response.in_progress`, has one item open at a time, numbered from 0,
    and ends with the response, completed or incomplete.
    """
    created, in_progress, *middle, end = events
    assert [created["type"], in_progress["type"]] == ["response.created", "response.in_progress"]
    assert created["response"] == in_progress["response"]
    assert end["type"] in _ENDS
    response = dict(end["response"])
    assert end["type"] == f"response.{response['status']}"
    begun: Event = {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    assert created["response"] == response | begun
    assert _items(middle) == response["output"]
    return response


def _items(events: list[Event]) -> list[Event]:
    items: list[Event] = []
    while events:
        added, events = events[0], events[1:]
        assert added["type"] == "response.output_item.added"
        assert added["output_index"] == len(items)
        until = next(at for at, event in enumerate(events) if event["type"] == "response.output_item.done")
        item = events[until]["item"]
        place = {"output_index": len(items), "item_id": item["id"]}
        spelled = _call if item["type"] == "function_call" else _content
        fields = spelled(events[:until], place)
        assert added["item"] == item_begun(item)
        assert {key: item[key] for key in fields} == fields
        assert events[until]["output_index"] == len(items)
        items.append(item)
        events = events[until + 1 :]
    return items


def item_begun(item: Event) -> Event:
    """What `response.output_item.added` says of an item."""
    empty: Event = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
    rest = {key: value for key, value in item.items() if key != "encrypted_content"}
    return rest | empty | {"status": "in_progress"}


def _call(events: list[Event], place: Event) -> Event:
    *deltas, done = events
    text = _text(deltas, f"{_ARGUMENTS}.delta", place)
    assert done.items() >= ({"type": f"{_ARGUMENTS}.done", "arguments": text} | place).items()
    return {"arguments": text}


def _content(events: list[Event], place: Event) -> Event:
    place = place | {"content_index": 0}
    added, *deltas, text_done, part_done = events
    assert added["type"] == "response.content_part.added"
    name, key = _PARTS[added["part"]["type"]]
    text = _text(deltas, f"{name}.delta", place)
    assert added.items() >= place.items()
    assert added["part"][key] == ""
    assert text_done.items() >= ({"type": f"{name}.done", key: text} | place).items()
    part = added["part"] | {key: text}
    assert part_done.items() >= ({"type": "response.content_part.done", "part": part} | place).items()
    return {"content": [part]}


def _text(deltas: list[Event], name: str, place: Event) -> str:
    for delta in deltas:
        assert delta.items() >= ({"type": name} | place).items()
        assert delta["delta"]
    return "".join(delta["delta"] for delta in deltas)


def _assert_known(value: object) -> None:
    if isinstance(value, pydantic.BaseModel):
        assert not value.model_extra, value.model_extra
        for name in type(value).model_fields:
            _assert_known(getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            _assert_known(item)
