"""One chat message as the items of OpenAI's Responses API that NeMo Gym trains on.

An item is a JSON object with the fields, nulls included, that NeMo Gym's own converter gives it. By default it keeps
all of a message: reasoning becomes a reasoning item, pictures stay pictures, refusals refusals, texts as they are.
`as_original` does what NeMo Gym's reader of captured sessions did: reasoning and refusals are lost, `<think>` tags are
cut out of a text and become a reasoning item, and whatever is not text is refused.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal

from switchyard_py.rollouts.messages import Message, normalise, told
from switchyard_py.rollouts.refusal import Refusal, Rule

Item = dict[str, Any]

_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)


class ItemIds:
    """Ids of items: random, and the same ones again from the same seed."""

    def __init__(self, seed: int | None = None) -> None:
        self._bits: Callable[[int], int] = _random_bits if seed is None else random.Random(seed).getrandbits  # noqa: S311

    def __call__(self, kind: Literal["msg", "rs"]) -> str:
        return f"{kind}_{self._bits(128):032x}"


def _random_bits(_: int) -> int:
    return uuid.uuid4().int


def message_items(message: Message, ids: ItemIds, *, as_original: bool = False) -> list[Item]:
    """The items of a message, at least one. Raises Refusal: N1 to N4."""
    if message.get("role") == "assistant":
        return _assistant(message, ids, as_original)
    content: Any = message.get("content")
    is_rich = isinstance(content, list) and not as_original and not all(map(_has_text, content))
    parts = [_part(part) for part in content] if is_rich else []
    normal = normalise(message | {"content": None} if parts else message)
    said: str | list[Item] = parts or normal["content"]
    if normal["role"] == "tool":
        answer = {"call_id": normal["tool_call_id"], "output": said, "id": None, "status": "completed"}
        return [{"type": "function_call_output", **answer}]
    return [{"type": "message", "role": normal["role"], "content": said}]


def is_generated(item: Item) -> bool:
    """Whether a model said this, by its form: an assistant's message, a reasoning item or a function call."""
    return item["type"] in ("reasoning", "function_call") or item.get("role") == "assistant"


def tool_item(tool: Mapping[str, Any]) -> Item:
    """A record's tool, `{id, description, inputSchema: {jsonSchema}}`, as a function tool."""
    schema = tool.get("inputSchema") or {}
    names = {"name": tool["id"], "description": tool.get("description"), "parameters": schema.get("jsonSchema")}
    return {"type": "function", **names, "strict": None}


def _assistant(message: Message, ids: ItemIds, as_original: bool) -> list[Item]:
    normal = normalise(message)
    text, calls = normal["content"], normal.get("tool_calls", [])
    refusal: object = None
    if as_original:
        thoughts, text = _THINK.findall(text), _THINK.sub("", text)
    else:
        reasoning = told(message).reasoning
        thoughts, refusal = [reasoning] if reasoning else [], message.get("refusal")
    items: list[Item] = []
    if thoughts:
        summary = [{"type": "summary_text", "text": thought} for thought in thoughts]
        items.append({"type": "reasoning", "id": ids("rs"), "summary": summary, "encrypted_content": None})
    if text or refusal or not (thoughts or calls):
        said: list[Item] = []
        if text or not refusal:
            said.append({"type": "output_text", "text": text, "annotations": [], "logprobs": None})
        if refusal:
            said.append({"type": "refusal", "refusal": str(refusal)})
        items.append({"type": "message", "id": ids("msg"), "role": "assistant", "content": said, "status": "completed"})
    return items + [
        {"type": "function_call", "call_id": call["id"], **call["function"], "id": call["id"], "status": "completed"}
        for call in calls
    ]


def _part(part: Any) -> Item:
    if _has_text(part):
        return {"type": "input_text", "text": part["text"]}
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    image = part.get("image_url") if kind == "image_url" else None
    url, detail = (image.get("url"), image.get("detail")) if isinstance(image, Mapping) else (image, None)
    if not isinstance(url, str):
        raise Refusal(Rule.N2, f"a message has a part that is neither text nor a picture (type {kind!r})")
    return {"type": "input_image", "image_url": url, "detail": detail or "auto"}


def _has_text(part: object) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)
