"""A strict reader of sessions, written from the rules trainers apply and sharing no code with the proxy.

It refuses whatever NeMo Gym's reader of captured sessions refuses: E1 to E4 judge the envelope, R1 to R11 the records.
"""

import math
from typing import Any

import orjson

ROLES = ("system", "developer", "user", "assistant", "tool")
Normal = dict[str, Any]


class Refused(Exception):
    """The session cannot be trained on; the text starts with the name of the rule."""


def accept(body: bytes, session_id: str) -> list[dict[str, Any]]:
    """Return the records of a session that can be trained on as one conversation. Raises Refused."""
    try:
        envelope = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(f"E1 not JSON: {error}") from None
    _must(isinstance(envelope, dict), "E1 the envelope is an object")
    _must(envelope.get("schema_version") == 1, "E2 schema_version is 1")
    _must(envelope.get("session_id") == session_id, "E3 session_id is the one asked for")
    records = envelope.get("completions")
    _must(isinstance(records, list) and len(records) > 0, "E4 completions is a non-empty list")
    for record in records:
        _check_record(record, session_id)
    _must(len({record["uuid"] for record in records}) == len(records), "R2 uuids are unique")
    for key in ("model", "tools", "tool_choice"):
        _must(all(record.get(key) == records[0].get(key) for record in records), f"R9 {key} stays the same")
    _check_ids(records)
    _check_messages(records)
    return list(records)


def _check_record(record: Any, session_id: str) -> None:
    _must(isinstance(record, dict) and record.get("schema_version") == 1, "R1 schema_version is 1")
    _must(record.get("session_id") == session_id, "R1 session_id is the one asked for")
    _must(_is_text(record.get("uuid")), "R2 uuid is a text")
    _must(record.get("is_valid") is True, "R3 is_valid is true")
    _must(_is_text(record.get("request_id")) and _is_text(record.get("model")), "R4 request_id and model are texts")
    for key in ("prompt_token_ids", "generation_token_ids"):
        ids = record.get(key)
        _must(isinstance(ids, list) and bool(ids) and all(type(each) is int for each in ids), f"R5 {key} are integers")
    log_probs = record.get("generation_log_probs")
    _must(isinstance(log_probs, list) and all(map(_is_finite, log_probs)), "R6 log-probs are finite numbers")
    _must(len(log_probs) == len(record["generation_token_ids"]), "R6 there is one log-prob for each id")
    messages = record.get("messages")
    _must(isinstance(messages, list) and bool(messages), "R7 messages is a non-empty list")
    _must(messages[-1].get("role") == "assistant", "R7 the last message is the assistant's")
    _must(isinstance(record.get("tools"), list), "R8 tools is a list")


def _check_ids(records: list[dict[str, Any]]) -> None:
    seen: list[int] = []
    for record in records:
        prompt = record["prompt_token_ids"]
        _must(prompt[: len(seen)] == seen, "R10 the prompt begins with all ids before it")
        seen = prompt + record["generation_token_ids"]


def _check_messages(records: list[dict[str, Any]]) -> None:
    history: list[Normal] = []
    for number, record in enumerate(records):
        *prompt, reply = map(normal, record["messages"])
        _must(prompt[: len(history)] == history, "R11 the prompt begins with the whole history")
        added = prompt[len(history) :]
        if number:
            _must(bool(added), "R11 something is added between two calls")
            _must(
                all(message["role"] in ("user", "tool") for message in added), "R11 only user and tool roles are added"
            )
        history = [*prompt, reply]


def normal(message: Any) -> Normal:
    """A message as it is compared: role, text, tool calls and the id a tool message answers. Raises Refused."""
    _must(isinstance(message, dict) and message.get("role") in ROLES, "R11 the role is known")
    result: Normal = {"role": message["role"], "content": _text_of(message.get("content"))}
    if message["role"] == "assistant" and message.get("tool_calls"):
        result["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    if message["role"] == "tool":
        _must(_is_text(message.get("tool_call_id")), "R11 a tool message names its call")
        result["tool_call_id"] = message["tool_call_id"]
    return result


def _call(call: Any) -> Normal:
    function = call.get("function") or {}
    _must(_is_text(call.get("id")) and _is_text(function.get("name")), "R11 a tool call has id and name")
    _must(isinstance(function.get("arguments"), str), "R11 arguments are a text")
    return {"id": call["id"], "name": function["name"], "arguments": function["arguments"]}


def _text_of(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    _must(isinstance(content, list), "R11 content is a text or a list")
    _must(all(isinstance(part.get("text"), str) for part in content), "R11 every part of content has a text")
    return "".join(part["text"] for part in content)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _must(holds: bool, rule: str) -> None:
    if not holds:
        raise Refused(rule)
