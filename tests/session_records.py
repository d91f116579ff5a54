"""Sessions as trainers get them, written by hand: records of given ids and messages, and the envelope around them."""

from typing import Any

from built_records import built
from wire_recordings import recording

from switchyard_py.rollouts import Criteria, Decoder, Lineage, Refusal, accept, build_lineage, read_session

Record = dict[str, Any]
Message = dict[str, Any]

TOOLS = [{"id": "run", "description": "Run it", "inputSchema": {"jsonSchema": {"type": "object"}}}]
MINUTE = "2026-03-01T12:{:02}:00.000000+00:00"


def record(
    number: int, prompt: list[int], generation: list[int], messages: list[Message], **fields: Any
) -> dict[str, Any]:
    """The record of call `number`, which took the minute of that number; `call` adds to the record's own `call`."""
    call = {
        "route": "policy",
        "kind": "main",
        "agent": {},
        "started_at": MINUTE.format(number),
        "finished_at": MINUTE.format(number + 1),
        "invalid_reasons": [],
        **fields.pop("call", {}),
    }
    return {
        "schema_version": 1,
        "uuid": f"call-{number}",
        "session_id": "s",
        "parent_session_id": None,
        "captured_at": MINUTE.format(number),
        "request_id": f"chatcmpl-{number}",
        "model": "policy",
        "messages": messages,
        "tools": [],
        "tool_choice": "auto",
        "prompt_token_ids": prompt,
        "generation_token_ids": generation,
        "generation_log_probs": [-0.5] * len(generation),
        "finish_reason": "stop",
        "is_valid": True,
        **fields,
        "call": call,
    }


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str | None, **fields: Any) -> Message:
    return {"role": "assistant", "content": text, **fields}


def calls_tool(arguments: str, call_id: str = "c1", **fields: Any) -> Message:
    function = {"name": "run", "arguments": arguments}
    return assistant(None, tool_calls=[{"id": call_id, "type": "function", "function": function}], **fields)


def result(text: str, call_id: str = "c1") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def conversation(turns: int = 2, **fields: Any) -> list[Record]:
    """The records of one linear conversation: ids of one turn are 10 * turn and up."""
    records: list[Record] = []
    ids: list[int] = []
    messages: list[Message] = []
    for turn in range(turns):
        messages = [*messages, user(f"question {turn}"), assistant(f"answer {turn}")]
        prompt, generation = [*ids, 10 * turn, 10 * turn + 1], [10 * turn + 2, 10 * turn + 3]
        records.append(record(turn, prompt, generation, messages, **fields))
        ids = prompt + generation
    return records


def recorded(*names: str) -> list[Record]:
    """Records as the proxy builds them of exchanges recorded from a real vLLM."""
    return [
        built(exchange.request_body, exchange.body) | {"uuid": f"call-{number}"}
        for number, exchange in enumerate(map(recording, names))
    ]


def envelope(records: list[Any], **fields: Any) -> dict[str, Any]:
    return {"schema_version": 1, "session_id": "s", "completions": records, **fields}


def lineage_of(
    records: list[Any], criteria: Criteria | None = None, decode: Decoder | None = None, **fields: Any
) -> Lineage:
    return build_lineage(read_session(envelope(records, **fields), "s"), criteria, decode)


def refusal_of(session: Any, session_id: str | None = "s") -> Refusal | None:
    """Why strict mode refuses an envelope, None if it accepts it."""
    try:
        accept(read_session(session, session_id))
    except Refusal as refusal:
        return refusal
    return None


def paths(lineage: Lineage) -> list[tuple[int, ...]]:
    """The calls of each chain."""
    return [chain.calls for chain in lineage.chains]


def main_path(lineage: Lineage) -> tuple[int, ...] | None:
    return None if lineage.main.chain is None else lineage.chains[lineage.main.chain].calls


def causes(lineage: Lineage) -> list[tuple[int, int, int, str]]:
    """Call, predecessor, position and cause of each diagnosis."""
    return [(each.call, each.predecessor, each.position, each.cause.value) for each in lineage.forest.diagnoses]
