"""Build the stored JSON of one call: schema v1 of the reference, field for field and in its order, plus `call`.

Request and reply arrive as slices of JSON text and are written as they are, made compact: a record repeats what the
agent sent and the engine answered, number for number. Text that orjson would refuse to read is replaced, and
`call.lossy` says so.
"""

import re
from datetime import UTC, datetime
from typing import Any

from switchyard_py.capture.call import Asked, Choice, Course, Generation
from switchyard_py.rawjson import (
    NULL,
    InvalidJSON,
    Slice,
    decode,
    encode,
    join_array,
    join_object,
    split_array,
    split_object,
    storable,
)

SCHEMA_VERSION = 1

_FINGERPRINT_VERSION = re.compile(r"vllm-(\d[\w.+]*)")


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
    text = _StorableText()
    choice = generation.choices[0] if generation.choices else Choice()
    fields: dict[str, Slice] = {
        "schema_version": encode(SCHEMA_VERSION),
        "uuid": encode(uuid),
        "session_id": encode(session_id),
        "parent_session_id": encode(parent_session_id),
        "captured_at": encode(timestamp(captured_at)),
        "request_id": text(generation.id),
        "model": text(generation.model),
        "messages": _messages(asked, choice, text),
        "tools": _tools(asked, text),
        "tool_choice": _tool_choice(asked, text),
        "token_count": _token_count(generation, text),
        "prompt_token_ids": text(generation.prompt_ids),
        "generation_token_ids": _token_ids(choice, text),
        "generation_log_probs": encode(choice.log_probs),
        "finish_reason": text(choice.finish_reason),
        "is_valid": encode(not invalid_reasons),
    }
    fields["call"] = _call(asked, generation, course, invalid_reasons, text)
    return join_object(fields)


class _StorableText:
    """Makes slices storable and remembers whether anything was lost on the way."""

    def __init__(self) -> None:
        self.lossy = False

    def __call__(self, value: Slice | None) -> bytes:
        if value is None:
            return NULL
        kept, lossy = storable(value)
        self.lossy |= lossy
        return kept


def _messages(asked: Asked, choice: Choice, text: _StorableText) -> bytes:
    entries = [text(entry) for entry in _items(asked.messages) if _is_object(entry)]
    return join_array([*entries, _assistant(choice, text)])


def _assistant(choice: Choice, text: _StorableText) -> bytes:
    return join_object({"role": b'"assistant"', **{key: text(value) for key, value in choice.message.items()}})


def _items(value: Slice | None) -> list[Slice]:
    """The items of an array, none for anything else."""
    try:
        return split_array(value or b"[]")
    except InvalidJSON:
        return []


def _is_object(value: Slice) -> bool:
    return bytes(memoryview(value)[:1]) == b"{"


def _tools(asked: Asked, text: _StorableText) -> bytes:
    """Every tool as `{id, description, inputSchema: {jsonSchema}}`, from OpenAI's nested or a flat form."""
    return join_array(_tool(split_object(entry), text) for entry in _items(asked.tools) if _is_object(entry))


def _tool(tool: dict[str, Slice], text: _StorableText) -> bytes:
    nested = tool.get("function")
    function = split_object(nested) if nested is not None and _is_object(nested) else tool
    schema = function.get("parameters", function.get("input_schema", NULL))
    stored: dict[str, Slice] = {
        "id": text(function.get("name", function.get("id"))),
        "description": text(function.get("description", b'""')),
    }
    if bytes(schema) != NULL:
        stored["inputSchema"] = join_object({"jsonSchema": text(schema)})
    return join_object(stored)


def _tool_choice(asked: Asked, text: _StorableText) -> bytes:
    choice = asked.tool_choice
    if choice is None or bytes(choice) == NULL:
        return b'"auto"'
    return text(split_object(choice).get("type", NULL) if _is_object(choice) else choice)


def _token_count(generation: Generation, text: _StorableText) -> bytes:
    usage = decode(generation.usage)
    counts = usage if isinstance(usage, dict) else {}
    return text(encode({key: counts.get(key, 0) for key in ("prompt_tokens", "completion_tokens", "total_tokens")}))


def _token_ids(choice: Choice, text: _StorableText) -> bytes:
    ids = choice.token_ids
    return encode(ids) if ids is None or isinstance(ids, list) else text(ids)


def _call(
    asked: Asked, generation: Generation, course: Course, invalid_reasons: list[str], text: _StorableText
) -> bytes:
    choice = generation.choices[0] if generation.choices else Choice()
    fields: dict[str, Slice] = {
        "dialect": encode(course.dialect),
        "route": encode(course.route),
        "target": encode(course.target),
        "streamed": encode(course.streamed),
        "agent": text(encode(course.agent)),
        "started_at": encode(timestamp(course.started_at)),
        "first_token_at": encode(course.first_token_at and timestamp(course.first_token_at)),
        "finished_at": encode(course.finished_at and timestamp(course.finished_at)),
        "invalid_reasons": encode(invalid_reasons),
        "truncated": encode(_truncated(asked, generation, choice)),
        "constrained": encode(asked.constrained),
        "stop_reason": text(choice.stop_reason),
        "retry_of": NULL,
        "changed": encode(asked.changed + course.changed_in_reply),
        "lossy": NULL,
        "tool_choice": text(asked.tool_choice),
        "sampling": join_object({key: text(value) for key, value in asked.sampling.items()}),
        "usage": text(generation.usage),
        "choices": join_array(_further_choice(each, text) for each in generation.choices[1:]),
        "engine": _engine(course, generation, choice, text),
        "client": encode({"request_id": course.client_request_id, "user_agent": course.user_agent}),
    }
    # Last, when every slice has been looked at.
    fields["lossy"] = encode(text.lossy)
    return join_object(fields)


def _truncated(asked: Asked, generation: Generation, choice: Choice) -> bool:
    if decode(choice.finish_reason) == "length":
        return True
    usage = decode(generation.usage)
    completion_tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if asked.token_limit is None or not isinstance(completion_tokens, int):
        return False
    return "tool_calls" in choice.message and completion_tokens >= asked.token_limit


def _further_choice(choice: Choice, text: _StorableText) -> bytes:
    fields: dict[str, Slice] = {
        "message": _assistant(choice, text),
        "generation_token_ids": _token_ids(choice, text),
        "generation_log_probs": encode(choice.log_probs),
        "finish_reason": text(choice.finish_reason),
        "stop_reason": text(choice.stop_reason),
    }
    return join_object(fields)


def _engine(course: Course, generation: Generation, choice: Choice, text: _StorableText) -> bytes:
    fingerprint: Any = decode(generation.system_fingerprint)
    found = _FINGERPRINT_VERSION.match(fingerprint) if isinstance(fingerprint, str) else None
    fields: dict[str, Slice] = {
        "name": encode(course.engine),
        "version": encode(found and found[1].split("-")[0]),
        # The wire does not tell which of raw and processed log-probs the engine was started with.
        "logprobs_mode": NULL,
        "weight_versions": text(choice.weight_versions),
    }
    return join_object(fields)
