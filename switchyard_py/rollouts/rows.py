"""Flat training rows: one sequence of token ids, with the log-probabilities and the mask of what the model generated.

    for row in chain_rows(build_lineage(read_session(...))):
        row.input_ids, row.loss_mask, row.logprobs

A row is one chain of a session, or a single call. Its ids are those of the last call, prompt and generation; as every
prompt of a chain begins with the prompt and generation before it, they hold all calls of the chain, and `segments` says
where. Nothing is lost on the way: `triples` gives back what was captured of every call.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from switchyard_py.rawjson import encode
from switchyard_py.rollouts.forest import Forest
from switchyard_py.rollouts.lineage import Lineage
from switchyard_py.rollouts.selection import Which, trainable_chains


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

    def to_json(self) -> bytes:
        """One line of JSON without its end."""
        # What engines say of themselves may hold integers that orjson does not write.
        metadata: Any = orjson.Fragment(encode(self.metadata))
        return orjson.dumps(replace(self, metadata=metadata), option=orjson.OPT_SERIALIZE_NUMPY)


@dataclass(frozen=True, slots=True, eq=False)
class Triple:
    """The prompt ids, generated ids and log-probs of one call (its uuid)."""

    call: str
    prompt_token_ids: NDArray[np.int64]
    generation_token_ids: NDArray[np.int64]
    generation_log_probs: NDArray[np.float64]


def chain_rows(lineage: Lineage, which: Which = "all") -> Iterator[Row]:
    """A row for each trainable chain, the main one first, or for the main one only.

    Chains that fork share calls; each is trained in the first row that has it. `metadata` tells `chain` (its number),
    `main`, `role`, `agent`, `predecessor`, `model`, `parent_session_id`, the `reasons` of the verdict, and, in the
    order of the segments, `finish_reasons` and `weight_versions`.

    Raises:
        NothingToTrain: there is none.
    """
    return rows_of_chains(lineage, trainable_chains(lineage, which))


def rows_of_chains(lineage: Lineage, numbers: Sequence[int]) -> Iterator[Row]:
    """The same for chosen chains, by their numbers."""
    trained: set[int] = set()
    for number in numbers:
        chain = lineage.chains[number]
        metadata = {
            "chain": number,
            "main": number == lineage.main.chain,
            "role": chain.role,
            "agent": chain.agent,
            "predecessor": chain.predecessor,
            "reasons": list(lineage.chain_verdicts[number].reasons),
            **_of_calls(lineage, chain.calls),
        }
        yield row_of(lineage.forest, chain.calls, untrained=trained, metadata=metadata)
        trained.update(chain.calls)


def call_rows(lineage: Lineage) -> Iterator[Row]:
    """A row for each call that can be trained on by itself, in call order: its prompt, and its generation.

    `metadata` tells `call` (its index), `role`, `agent` and, as for chains, what its record says.
    """
    for call, role, verdict in zip(lineage.forest.calls, lineage.roles, lineage.call_verdicts, strict=True):
        if verdict.trainable:
            metadata = {
                "call": call.index,
                "role": role,
                "agent": call.agent,
                "reasons": list(verdict.reasons),
                **_of_calls(lineage, [call.index]),
            }
            yield row_of(lineage.forest, [call.index], metadata=metadata)


def _of_calls(lineage: Lineage, path: Sequence[int]) -> dict[str, Any]:
    calls = [lineage.forest.calls[index] for index in path]
    return {
        "model": calls[0].model,
        "parent_session_id": lineage.parent_session_id,
        "finish_reasons": [call.finish_reason for call in calls],
        "weight_versions": [call.engine.get("weight_versions") for call in calls],
    }


def row_of(
    forest: Forest, path: Sequence[int], *, untrained: Container[int] = (), metadata: dict[str, Any] | None = None
) -> Row:
    """The row of a path of the forest, root first; of a single call, its prompt counts as not generated."""
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
