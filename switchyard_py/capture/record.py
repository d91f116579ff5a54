"""Build the stored JSON of one call: schema v1 of the reference, field for field and in its order, plus `call`.

Request and reply arrive as slices of JSON text and are written as they are, made compact: a record repeats what the
agent sent and the engine answered, number for number. Text that orjson would refuse to read is replaced, and
`call.lossy` says so.
"""

import re
from datetime import UTC, datetime
from typing import Any

from orjson import Fragment

from switchyard_py.capture.call import Asked, Choice, Course, Generation
from switchyard_py.rawjson import NULL, InvalidJSON, Slice, decode, encode, split_array, split_object, storable
from switchyard_py.store import SCHEMA_VERSION

_FINGERPRINT_VERSION = re.compile(r"vllm-(\d[\w.+]*)")
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


def timestamp(seconds: float) -> str:
    """UTC ISO-8601 with microseconds and `+00:00`, as the reference writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def build_record(
    *,
    uuid: str,
    session_id: str,
    parent_session_id: str | None,
    captured_at: float,
    asked: Asked,
    generation: Generation,
    course: Course,
    invalid_reasons: list[str],
) -> bytes:
    """The record as compact JSON that orjson reads. `is_valid` is true iff there are no `invalid_reasons`."""
    choice = generation.choices[0] if generation.choices else Choice()
    call = _call(asked, generation, choice, course, invalid_reasons)
    begin = {
        "schema_version": SCHEMA_VERSION,
        "uuid": uuid,
        "session_id": session_id,
        "parent_session_id": parent_session_id,
        "captured_at": timestamp(captured_at),
        "request_id": _json(generation.id),
        "model": _json(generation.model),
        "messages": [*(_json(entry) for entry in _items(asked.messages) if _is_object(entry)), _assistant(choice)],
        "tools": [_tool(split_object(entry)) for entry in _items(asked.tools) if _is_object(entry)],
        "tool_choice": _tool_choice(asked.tool_choice),
        "token_count": _text(_token_count(generation)),
    }
    tokens = {
        "prompt_token_ids": _json(generation.prompt_ids),
        "generation_token_ids": _token_ids(choice),
        "generation_log_probs": choice.log_probs,
    }
    end = {
        "finish_reason": _json(choice.finish_reason),
        "is_valid": not invalid_reasons,
        "call": call,
    }
    first, first_lossy = storable(encode(begin))
    middle, middle_lossy = (encode(tokens), False) if not invalid_reasons else storable(encode(tokens))
    last, last_lossy = storable(encode(end))
    if first_lossy or middle_lossy or last_lossy:
        call["lossy"] = True
        last, _ = storable(encode(end))
    # Three objects in one: tens of thousands of ids that were proved to be integers are not read once more.
    return b",".join((first[:-1], middle[1:-1], last[1:]))


def _json(value: Slice | None) -> Fragment | None:
    """A slice as it goes into the record, byte for byte."""
    return None if value is None else Fragment(bytes(value))


def _text(value: object) -> Fragment:
    """A value whose text came from outside and may have lone surrogates."""
    return Fragment(encode(value))


def _assistant(choice: Choice) -> dict[str, Any]:
    return {"role": "assistant", **{key: _json(value) for key, value in choice.message.items()}}


def _items(value: Slice | None) -> list[Slice]:
    """The items of an array, none for anything else."""
    try:
        return split_array(value or b"[]")
    except InvalidJSON:
        return []


def _is_object(value: Slice) -> bool:
    return bytes(memoryview(value)[:1]) == b"{"


def _tool(tool: dict[str, Slice]) -> dict[str, Any]:
    """A tool as `{id, description, inputSchema: {jsonSchema}}`, from OpenAI's nested or a flat form."""
    nested = tool.get("function")
    function = split_object(nested) if nested is not None and _is_object(nested) else tool
    schema = function.get("parameters", function.get("input_schema", NULL))
    stored: dict[str, Any] = {
        "id": _json(function.get("name", function.get("id"))),
        "description": _json(function.get("description", b'""')),
    }
    if bytes(schema) != NULL:
        stored["inputSchema"] = {"jsonSchema": _json(schema)}
    return stored


def _tool_choice(choice: Slice | None) -> Fragment | str | None:
    if choice is None or bytes(choice) == NULL:
        return "auto"
    return _json(split_object(choice).get("type", NULL) if _is_object(choice) else choice)


def _token_count(generation: Generation) -> dict[str, Any]:
    usage = decode(generation.usage)
    counts = usage if isinstance(usage, dict) else {}
    return {key: counts.get(key, 0) for key in _COUNTS}


def _token_ids(choice: Choice) -> list[int] | Fragment | None:
    ids = choice.token_ids
    return ids if ids is None or isinstance(ids, list) else _json(ids)


def _call(
    asked: Asked, generation: Generation, choice: Choice, course: Course, invalid_reasons: list[str]
) -> dict[str, Any]:
    fingerprint = decode(generation.system_fingerprint)
    version = _FINGERPRINT_VERSION.match(fingerprint) if isinstance(fingerprint, str) else None
    return {
        "dialect": course.dialect,
        "route": course.route,
        "target": course.target,
        "streamed": course.streamed,
        "agent": _text(course.agent),
        "kind": course.kind,
        "started_at": timestamp(course.started_at),
        "first_token_at": course.first_token_at and timestamp(course.first_token_at),
        "finished_at": course.finished_at and timestamp(course.finished_at),
        "invalid_reasons": invalid_reasons,
        "truncated": _truncated(asked, generation, choice),
        "constrained": asked.constrained,
        "stop_reason": _json(choice.stop_reason),
        "retry_of": course.retry_of,
        "changed": _text(asked.changed + course.changed_in_reply),
        "lossy": False,
        "tool_choice": _json(asked.tool_choice),
        "sampling": {key: _json(value) for key, value in asked.sampling.items()},
        "usage": _json(generation.usage),
        "choices": [_further_choice(each) for each in generation.choices[1:]],
        "engine": {
            "name": course.engine,
            "version": version and version[1].split("-")[0],
            # The wire does not tell which of raw and processed log-probs the engine was started with.
            "logprobs_mode": None,
            "weight_versions": _json(choice.weight_versions),
        },
        "client": {"request_id": course.client_request_id, "user_agent": course.user_agent},
    }


def _truncated(asked: Asked, generation: Generation, choice: Choice) -> bool:
    if decode(choice.finish_reason) == "length":
        return True
    completion_tokens = _token_count(generation)["completion_tokens"]
    if asked.token_limit is None or not isinstance(completion_tokens, int):
        return False
    return "tool_calls" in choice.message and completion_tokens >= asked.token_limit


def _further_choice(choice: Choice) -> dict[str, Any]:
    return {
        "message": _assistant(choice),
        "generation_token_ids": _token_ids(choice),
        "generation_log_probs": choice.log_probs,
        "finish_reason": _json(choice.finish_reason),
        "stop_reason": _json(choice.stop_reason),
    }
