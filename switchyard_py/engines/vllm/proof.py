"""Whether a generation is proved complete: only then may a trainer take it for what the engine sampled.

Each reason is a word of the record's `call.invalid_reasons`; an empty list means the record is valid. vLLM counts
every sampled token, also the one that ended the reply, in `usage.completion_tokens` and in `token_ids` alike (checked
over 150 recorded replies of vLLM 0.32).
"""

import math
from typing import Annotated

import msgspec

from switchyard_py.capture.call import Choice, Generation
from switchyard_py.engines.vllm.message import is_null
from switchyard_py.rawjson import InvalidJSON, Slice, decode

TOKEN_IDS = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]])
"""Decodes a list of token ids; readers of JSON would take integers beyond 64 bits for floats."""

# vLLM calls a generation that it broke off one of these; it turns the second into a 500 where it can.
_BROKEN_OFF = ("abort", "error")


def invalid_reasons(generation: Generation) -> list[str]:
    """The reasons why a finished reply is not proved complete, none if it is."""
    choice = generation.choices[0]
    reasons = [f"no_{name}" for name in ("id", "model") if not _is_text(getattr(generation, name))]
    if len(generation.choices) > 1:
        reasons.append("more_than_one_choice")
    if decode(choice.finish_reason) in _BROKEN_OFF:
        reasons.append("aborted")
    elif not _is_text(choice.finish_reason):
        reasons.append("finish_reason_malformed")
    prompt_tokens = _count_prompt(generation.prompt_ids, reasons)
    if generation.prompts_differ:
        reasons.append("prompt_token_ids_differ")
    sampled_tokens = _count_sampled(choice, reasons)
    _check_usage(generation.usage, prompt_tokens, sampled_tokens if len(generation.choices) == 1 else None, reasons)
    return list(dict.fromkeys(reasons))


def _count_prompt(ids: Slice | None, reasons: list[str]) -> int | None:
    if is_null(ids):
        reasons.append("no_prompt_token_ids")
        return None
    try:
        numbers = TOKEN_IDS.decode(ids or b"")
    except msgspec.DecodeError:
        reasons.append("prompt_token_ids_malformed")
        return None
    if not numbers:
        reasons.append("no_prompt_token_ids")
    return len(numbers)


def _count_sampled(choice: Choice, reasons: list[str]) -> int | None:
    reasons += choice.flaws
    ids, log_probs = choice.token_ids, choice.log_probs
    if not ids:
        reasons.append("no_generation_token_ids")
    if not log_probs:
        reasons.append("no_generation_log_probs")
    elif not all(value is not None and math.isfinite(value) for value in log_probs):
        reasons.append("generation_log_probs_malformed")
    if not isinstance(ids, list):
        return None
    if ids and log_probs and len(ids) != len(log_probs):
        reasons.append("log_probs_differ_from_ids")
    return len(ids)


def _check_usage(usage: Slice | None, prompt: int | None, sampled: int | None, reasons: list[str]) -> None:
    try:
        counts = decode(usage)
    except InvalidJSON:
        counts = None
    if not isinstance(counts, dict):
        reasons.append("no_usage")
        return
    for key, seen in (("prompt_tokens", prompt), ("completion_tokens", sampled)):
        if type(counts.get(key)) is not int:
            reasons.append("no_usage")
        elif seen is not None and counts[key] != seen:
            reasons.append(f"{key}_differ_from_usage")


def _is_text(value: Slice | None) -> bool:
    text = decode(value)
    return isinstance(text, str) and bool(text)
