"""Parts every reply of the engine shares: usage, log-probability entries, ids and fixed names."""

import time
import uuid
from collections.abc import Sequence
from typing import Any

from switchyard_py.simulator.generation import Token
from switchyard_py.simulator.logprobs import prompt_logprobs
from switchyard_py.simulator.tokenizer import token_text

VERSION = "0.32.0"
"""The vLLM version whose wire this is."""

SYSTEM_FINGERPRINT = f"vllm-{VERSION}-simulate"


def random_id() -> str:
    """Sixteen hex digits, as the engine names what has no name."""
    return uuid.uuid4().hex[:16]


def now() -> int:
    """Unix time in seconds."""
    return int(time.time())


def token_label(token: int, text: str, *, as_id: bool) -> str:
    """How log-probabilities name a token: its text, or its id where the request wants ids."""
    return f"token_id:{token}" if as_id else text


def chat_logprobs(tokens: Sequence[Token], top: int, *, as_ids: bool) -> dict[str, Any]:
    """The `logprobs` of a chat choice or chunk; a part of a character has no text and no bytes."""
    content: list[dict[str, Any]] = []
    for token in tokens:
        entries = [
            {
                "token": token_label(candidate.token, text, as_id=as_ids),
                "logprob": candidate.logprob,
                "bytes": list(text.encode()),
            }
            for candidate, text in zip(token.candidates, _candidate_texts(token), strict=True)
        ]
        content.append({**entries[0], "top_logprobs": entries[:top]})
    return {"content": content}


def completion_logprobs(tokens: Sequence[Token], offset: int, *, as_ids: bool) -> dict[str, Any]:
    """The `logprobs` of a text completion, in the legacy shape; `offset` is where the first token's text begins."""
    report: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
    for token in tokens:
        texts = _candidate_texts(token)
        labels = [
            token_label(candidate.token, text, as_id=as_ids)
            for candidate, text in zip(token.candidates, texts, strict=True)
        ]
        report["text_offset"].append(offset)
        report["tokens"].append(token_label(token.token, token.text, as_id=as_ids))
        # The first token of a prompt follows nothing: it has no log-probability.
        known = [candidate.logprob for candidate in token.candidates]
        report["token_logprobs"].append(known[0] if known else None)
        report["top_logprobs"].append(dict(zip(labels, known, strict=True)) if known else None)
        offset += len(token.text)
    return report


def prompt_logprobs_report(prompt: Sequence[int], top: int | None) -> list[dict[str, Any] | None] | None:
    """The `prompt_logprobs` of a prompt; None unless asked for, and at the first position."""
    if top is None:
        return None
    return [
        None
        if candidates is None
        else {
            str(c.token): {"logprob": c.logprob, "rank": c.rank, "decoded_token": token_text(c.token)}
            for c in candidates
        }
        for candidates in prompt_logprobs(prompt, top)
    ]


def chat_usage(prompt: int, completion: int, reasoning: int, *, details: bool) -> dict[str, Any]:
    """The usage of a chat reply; `details` reports (no) cached tokens."""
    cached = {"cached_tokens": 0, "created_cache_tokens": 0, "multimodal_tokens": None} if details else None
    return _usage(prompt, completion, cached, {"reasoning_tokens": reasoning})


def completion_usage(prompt: int, completion: int, *, details: bool) -> dict[str, Any]:
    """The usage of a text completion."""
    cached = {"cached_tokens": 0, "created_cache_tokens": None, "multimodal_tokens": None} if details else None
    return _usage(prompt, completion, cached, None)


def without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    """A copy without null members, as chunks are written."""
    return {
        key: without_nulls(item) if isinstance(item, dict) else item for key, item in value.items() if item is not None
    }


def _usage(
    prompt: int, completion: int, cached: dict[str, Any] | None, detail: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": cached,
        "completion_tokens_details": detail,
    }


def _candidate_texts(token: Token) -> list[str]:
    return [token.text if index == 0 else token_text(c.token) for index, c in enumerate(token.candidates)]
