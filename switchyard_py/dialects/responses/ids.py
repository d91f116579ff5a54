"""Ids of a response and its items: they are made of the call's id, so that items tell which response they are of."""

import re
from uuid import UUID

from switchyard_py.dialects.answer import REFUSAL, TEXT, THINKING, Key

_PREFIXES = {THINKING: "rs", TEXT: "msg", REFUSAL: "msg"}
_ITEM_ID = re.compile(r"(?:rs|msg|fc)_([0-9a-f]{32})_\d+")


def common_part(call_id: str) -> str:
    """What all ids of the response to a call have in common; the call's id is a UUID."""
    return UUID(call_id).hex


def item_id(common: str, index: int, key: Key) -> str:
    """The id of the item at `index` of the output."""
    return f"{_PREFIXES[key] if isinstance(key, str) else 'fc'}_{common}_{index}"


def origin(item: object) -> str | None:
    """The common part of an item's id; None for an id that is not ours."""
    found = _ITEM_ID.fullmatch(item) if isinstance(item, str) else None
    return found and found[1]
