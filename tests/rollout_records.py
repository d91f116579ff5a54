"""Records as rollouts read them, of tokens and messages, and the forest of several."""

from typing import Any

from switchyard_py.rollouts.forest import Forest

Record = dict[str, Any]

SESSION = "s"


def call(
    messages: list[Record], prompt: list[int], generation: list[int], log_probs: list[float], **fields: Any
) -> Record:
    """A record that every rule accepts, but for what is given; `uuid` is put in by `forest_of`."""
    return {
        "schema_version": 1,
        "session_id": SESSION,
        "request_id": "chatcmpl-1",
        "model": "served",
        "messages": messages,
        "tools": [{"id": "bash", "description": "run", "inputSchema": {"jsonSchema": {"type": "object"}}}],
        "tool_choice": "auto",
        "prompt_token_ids": prompt,
        "generation_token_ids": generation,
        "generation_log_probs": log_probs,
        "finish_reason": "stop",
        "is_valid": True,
        **fields,
    }


def envelope(records: list[Record]) -> Record:
    """The session of records in call order, named `u0`, `u1` and so on."""
    named = [{"uuid": f"u{number}", **record} for number, record in enumerate(records)]
    return {"schema_version": 1, "session_id": SESSION, "completions": named}


def forest_of(records: list[Record]) -> Forest:
    forest = Forest(SESSION)
    for record in envelope(records)["completions"]:
        forest.add(record)
    return forest
