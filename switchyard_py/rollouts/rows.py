"""Flat training rows: one sequence of token ids, with the log-probabilities and the mask of what the model generated.

A row is one chain of a session, or a single call. Its ids are those of the last call, prompt and generation; as every
prompt of a chain begins with the prompt and generation before it, they hold all calls of the chain, and `segments` says
where. Nothing is lost on the way: `triples` gives back what was captured of every call.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from switchyard_py.rollouts.forest import Forest


@dataclass(frozen=True, slots=True)
class Segment:
    """The generation of one call (its uuid) in a row: `input_ids[start:end]`. The call's prompt is `input_ids[:start]`.

    Where `trained` is false the loss mask is 0: the call is trained in another row.
    """

    call: str
    start: int
    end: int
    trained: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One sequence to train on; the three arrays have one entry for each token.

    `loss_mask` is 1 on generated ids that count, else 0. `logprobs` holds what the engine reported for generated ids
    (natural logarithms), else 0. `reward` is the trainer's to fill in. `metadata` is a JSON object.
    """

    session_id: str
    input_ids: NDArray[np.int64]
    loss_mask: NDArray[np.uint8]
    logprobs: NDArray[np.float64]
    segments: tuple[Segment, ...]
    reward: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Triple:
    """The prompt ids, generated ids and log-probs of one call (its uuid)."""

    call: str
    prompt_token_ids: NDArray[np.int64]
    generation_token_ids: NDArray[np.int64]
    generation_log_probs: NDArray[np.float64]


def row_of(
    forest: Forest, path: Sequence[int], *, untrained: Container[int] = (), metadata: dict[str, Any] | None = None
) -> Row:
    """The row of a path of the forest, or of some calls of one in their order; the calls `untrained` are masked."""
    input_ids = np.array(forest.token_ids(path[-1]), np.int64)
    loss_mask = np.zeros(len(input_ids), np.uint8)
    logprobs = np.zeros(len(input_ids), np.float64)
    segments = []
    for call in (forest.calls[index] for index in path):
        end = call.prompt_tokens + call.generation_tokens
        segment = Segment(str(call.uuid), call.prompt_tokens, end, call.index not in untrained)
        generated = slice(segment.start, segment.end)
        loss_mask[generated] = segment.trained
        logprobs[generated] = call.log_probs
        segments.append(segment)
    return Row(forest.session_id, input_ids, loss_mask, logprobs, tuple(segments), metadata=metadata or {})


def triples(row: Row) -> Iterator[Triple]:
    """What was captured of each call of a row, in chain order."""
    for segment in row.segments:
        generated = slice(segment.start, segment.end)
        yield Triple(segment.call, row.input_ids[: segment.start], row.input_ids[generated], row.logprobs[generated])
