"""Requests of the real Codex and OpenHands to `/v1/responses`, whose long texts were cut when they were recorded."""

import json
from pathlib import Path
from typing import Any

_RECORDED = json.loads((Path(__file__).parent / "data" / "responses_requests.json").read_text())
_CUT = " ..."

REQUESTS: dict[str, Any] = {
    each["name"]: each["body"] | {"tools": _RECORDED["tools"][each["body"]["tools"]]} for each in _RECORDED["requests"]
}


def full_size(value: Any, size: int) -> Any:
    """A request as long as the agent sends it: each text that was cut has `size` characters again."""
    if isinstance(value, str) and value.endswith(_CUT):
        return value.removesuffix(_CUT) + "n é\n" * ((size - len(value)) // 4)
    if isinstance(value, list):
        return [full_size(item, size) for item in value]
    if isinstance(value, dict):
        return {key: full_size(item, size) for key, item in value.items()}
    return value
