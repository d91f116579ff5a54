"""Body settings that would end token capture, or let a setting of the bundle contradict another one."""

from __future__ import annotations

from typing import Any

from switchyard_py.config.settings import Target

_OWNED = {
    "stream": "the agent decides whether it wants a stream",
    "n": "capture holds one choice a call",
    "messages": "the conversation is the agent's",
    "model": "the model is set by target.model",
}
_NEEDED = {
    "logprobs": "the engine then sends no log-probabilities",
    "return_token_ids": "the engine then sends no token ids",
    "top_logprobs": "the engine then sends no log-probabilities",
    "stream_options": "a streamed reply then has no token counts to check the record against",
    "messages": "the conversation is the agent's",
    "model": "the model is set by target.model",
    "stream": "the agent decides whether it wants a stream",
}


def body_fault(target: Target) -> tuple[str, str, str] | None:
    """Return (setting, key, problem) of the first body setting that cannot stand, or None."""
    for key in target.drop_body:
        for setting in ("extra_body", "force_body"):
            if key in getattr(target, setting):
                return "drop_body", key, f"is dropped here and sent by {setting}: give it in one of them"
    if not target.engine:
        return None
    for setting, body in (("extra_body", target.extra_body), ("force_body", target.force_body)):
        for key, value in body.items():
            obstacle = _sending_obstacle(key, value)
            if obstacle:
                return setting, key, f"would end token capture: {obstacle}"
    for key in target.drop_body:
        if key in _NEEDED:
            return "drop_body", key, f"would end token capture: {_NEEDED[key]}; remove it"
    return None


def _sending_obstacle(key: str, value: Any) -> str | None:
    if key in _OWNED:
        return f"{_OWNED[key]}; remove the key"
    if key in ("logprobs", "return_token_ids") and value is not True:
        return f"{_NEEDED[key]}; write true or remove the key"
    if key == "top_logprobs" and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        return f"{_NEEDED[key]}; write a whole number from 0 or remove the key"
    if key == "include_reasoning" and value is False:
        return "the engine leaves the ids out where it leaves the reasoning out; write true or remove the key"
    if key == "stream_options" and not (isinstance(value, dict) and value.get("include_usage") is True):
        return f"{_NEEDED[key]}; write {{include_usage: true}} or remove the key"
    return None
