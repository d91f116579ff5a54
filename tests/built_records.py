"""Records as the proxy builds them of a request and a reply, and what holds for every one of them."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import orjson

from switchyard_py.capture.call import Course, Generation
from switchyard_py.capture.record import build_record
from switchyard_py.config import Target
from switchyard_py.engines.vllm import DONE, Prepared, StreamHarvest, Wants, harvest_reply, invalid_reasons, prepare
from switchyard_py.rawjson import check_text, split_object

DOCS = Path(__file__).parents[1] / "docs"
SCHEMA = json.loads((DOCS / "record.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
Record = dict[str, Any]

UUID = "0196a3c2-7b10-7abc-8def-0123456789ab"
V1 = (
    "schema_version", "uuid", "session_id", "parent_session_id", "captured_at", "request_id", "model", "messages",
    "tools", "tool_choice", "token_count", "prompt_token_ids", "generation_token_ids", "generation_log_probs",
    "finish_reason", "is_valid",
)  # fmt: skip
CALL = (
    "dialect", "route", "target", "streamed", "agent", "kind", "started_at", "first_token_at", "finished_at",
    "invalid_reasons", "truncated", "constrained", "stop_reason", "retry_of", "changed", "lossy", "tool_choice",
    "sampling", "usage", "choices", "engine", "client",
)  # fmt: skip


def encoded(value: object) -> bytes:
    """The body a value stands for: JSON unless it is text already."""
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def prepared(request: object, *, captured: bool = True, **target: Any) -> Prepared:
    """The engine's request for an agent's, with the settings of the target given by name."""
    text = check_text(encoded(request))
    settings = Target(model="real-model", base_url="http://127.0.0.1/v1", **target)
    return prepare(split_object(text), text, settings.model, settings, captured=captured)


def read(record: bytes) -> Record:
    """Read a record as trainers do, after checking what holds for every record."""
    value: Record = orjson.loads(record)
    assert json.loads(record) == value
    assert tuple(value) == (*V1, "call")
    assert tuple(value["call"]) == CALL
    VALIDATOR.validate(value)
    assert b"\n" not in record
    return value


def course(**fields: Any) -> Course:
    given: dict[str, Any] = {"dialect": "chat", "route": "policy", "target": "t", "engine": "vllm", "started_at": 1.0}
    return Course(**given | fields)


def record_of(request: object, generation: Generation, reasons: list[str] | None = None, **fields: Any) -> Record:
    record = build_record(
        uuid=UUID,
        session_id="s",
        parent_session_id="p",
        captured_at=1767225600.5,
        asked=prepared(request).asked,
        generation=generation,
        course=course(**fields),
        invalid_reasons=invalid_reasons(generation) if reasons is None else reasons,
    )
    return read(record)


def built(request: object, reply: object) -> Record:
    """The record of a buffered call."""
    return record_of(request, harvest_reply(encoded(reply), Wants())[1])


def streamed(request: object, events: list[bytes]) -> Record:
    """The record of a streamed call."""
    harvest = StreamHarvest(Wants())
    for event in [*events, DONE]:
        harvest.feed(event)
    return record_of(request, harvest.end(), streamed=True)
