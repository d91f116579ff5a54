"""Whether a call or a chain can be trained on, with every reason that speaks against it or has to be known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from switchyard_py.rollouts.call import Call

PROCESSED_LOG_PROBS = "processed_logprobs"

# What shapes the distribution that a token is drawn from; limits and stop conditions do not.
_SHAPING = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "length_penalty", "use_beam_search", "logit_bias", "allowed_token_ids", "bad_words", "min_tokens", "ignore_eos",
)  # fmt: skip


class Reason(StrEnum):
    """Why a call or chain is not trained on, or only by a trainer that knows."""

    INVALID = "invalid"
    """A record is not valid, or cannot be read."""
    LOST = "lost"
    """A call of the chain was answered and is not here: nobody can tell which tokens were generated."""
    ABORTED = "aborted"
    """The engine aborted a generation."""
    TRUNCATED = "truncated"
    """The token limit ended a reply."""
    CONSTRAINED = "constrained"
    """Log-probs were taken under a grammar: recomputed without it they differ."""
    PROCESSED_LOG_PROBS = "processed_log_probs"
    """Log-probs are those after temperature and sampling cuts."""
    MIXED_MODELS = "mixed_models"
    """The calls of a chain were answered by different models."""
    MIXED_SAMPLING = "mixed_sampling"
    """The calls of a chain were sampled with different parameters."""
    WEIGHT_VERSION_CHANGE = "weight_version_change"
    """The weights were updated within a call or between the calls of a chain."""


BLOCKING = frozenset(
    {
        Reason.INVALID,
        Reason.LOST,
        Reason.ABORTED,
        Reason.CONSTRAINED,
        Reason.PROCESSED_LOG_PROBS,
        Reason.MIXED_MODELS,
    }
)
"""Reasons that make a call or chain untrainable unless the reader says otherwise. With the others the tokens and their
log-probs are exactly what was sampled."""


@dataclass(frozen=True, slots=True)
class Criteria:
    """How to judge: which reasons block, and the engine's log-probs mode where records do not tell it."""

    blocking: frozenset[Reason] = BLOCKING
    logprobs_mode: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Trainable or not, and all reasons, in the order of `Reason`."""

    trainable: bool
    reasons: tuple[Reason, ...]


def judge_call(call: Call, criteria: Criteria) -> Verdict:
    """The verdict of one call."""
    engine = call.engine
    found = {
        Reason.LOST: call.lost,
        Reason.INVALID: not call.lost and (not call.is_valid or call.flaw is not None),
        Reason.ABORTED: call.finish_reason == "abort" or "aborted" in call.invalid_reasons,
        Reason.TRUNCATED: call.truncated,
        Reason.CONSTRAINED: call.constrained,
        Reason.PROCESSED_LOG_PROBS: (engine.get("logprobs_mode") or criteria.logprobs_mode) == PROCESSED_LOG_PROBS,
        Reason.WEIGHT_VERSION_CHANGE: len(set(_versions(engine.get("weight_versions")))) > 1,
    }
    return _verdict((reason for reason, holds in found.items() if holds), criteria)


def judge_chain(calls: Sequence[Call], missing: Iterable[Reason], criteria: Criteria) -> Verdict:
    """The verdict of a chain: the reasons of its calls, those that lie between them, and `missing`, the reasons of
    calls that belong to it and are not in it."""
    reasons = {*missing, *(reason for call in calls for reason in judge_call(call, criteria).reasons)}
    versions = {version for call in calls for version in _versions(call.engine.get("weight_versions"))}
    if len(versions) > 1:
        reasons.add(Reason.WEIGHT_VERSION_CHANGE)
    if len({call.model for call in calls}) > 1:
        reasons.add(Reason.MIXED_MODELS)
    if any(_shaping(call) != _shaping(calls[0]) for call in calls):
        reasons.add(Reason.MIXED_SAMPLING)
    return _verdict(reasons, criteria)


def _verdict(reasons: Iterable[Reason], criteria: Criteria) -> Verdict:
    found = set(reasons)
    return Verdict(not found & criteria.blocking, tuple(reason for reason in Reason if reason in found))


def _versions(value: Any) -> list[str]:
    """The weight versions of a call as vLLM reports them: spans of tokens, each with its version."""
    spans = value if isinstance(value, list) else [] if value is None else [value]
    return [str(span.get("version") if isinstance(span, dict) else span) for span in spans]


def _shaping(call: Call) -> dict[str, Any]:
    return {key: call.sampling[key] for key in _SHAPING if call.sampling.get(key) is not None}
