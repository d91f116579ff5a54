"""Ids of a response and its items: they are made of the call's id, so that items tell which response they are of."""

import re
from uuid import UUID

from switchyard_py.dialects.answer import REFUSAL, TEXT, THINKING, Key

_PREFIXES = {THINKING: "rs", TEXT: "msg", REFUSAL: "msg"}
_ITEM_ID = re.compile(r"(?:rs|msg|fc)_([0-9a-f]{32})_\d+")


def response_id(call_id: str) -> str:
    """The id of the response to a call, whose own id is a UUID."""
    return f"resp_{UUID(call_id).hex}"


def item_id(call_id: str, index: int, key: Key) -> str:
    """The id of the item at `index` of its output."""
    prefix = _PREFIXES[key] if isinstance(key, str) else "fc"
    return f"{prefix}_{UUID(call_id).hex}_{index}"


def origin(item: object) -> str | None:
    """What all items of one response have in common, from the id of one; None for an id that is not ours."""
    found = _ITEM_ID.fullmatch(item) if isinstance(item, str) else None
    return found and found[1]
