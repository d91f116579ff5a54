"""A chain of calls as one rollout of NeMo Gym: `responses_create_params` and `response.output`, with its metadata.

Each call adds what its prompt has beyond the conversation so far, and its reply. The token triple of a call stands on
the last item of its reply and nowhere else, so a trainer finds as many triples as there are calls.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from switchyard_py.rollouts.call import Call
from switchyard_py.rollouts.forest import Forest
from switchyard_py.rollouts.gym_messages import Item, ItemIds, is_generated, message_items, tool_item
from switchyard_py.rollouts.refusal import Refusal
from switchyard_py.rollouts.strict import check_tool

SOURCE = "switchyard"


@dataclass(frozen=True, slots=True)
class GymRollout:
    """`input` and `tools` are for `responses_create_params`, `output` and `metadata` for `response`; all of it JSON."""

    input: list[Item]
    tools: list[Item]
    output: list[Item]
    metadata: dict[str, str]


def gym_rollout(
    forest: Forest,
    path: Sequence[int],
    *,
    untrained: Container[int] = (),
    seed: int | None = None,
    as_original: bool = False,
) -> GymRollout:
    """The rollout of a path of the forest, root first. Item ids are random, but follow from a `seed`.

    The replies of the calls `untrained` carry no tokens: they are trained in another rollout.

    `output` begins with the first reply. `as_original` it begins with the first item that has the form of one, such as
    an example in the first prompt; `gym_messages` tells the other differences.

    Raises:
        Refusal: R8 and N1 to N4, for what cannot be converted.
    """
    ids = ItemIds(seed)
    calls = [forest.calls[index] for index in path]
    items: list[Item] = []
    replies_from = 0
    for call in calls:
        with _of(call):
            for message in forest.added_messages(call.index):
                items += message_items(message, ids, as_original=as_original)
            if call is calls[0]:
                replies_from = len(items)
            items += message_items(call.reply, ids, as_original=as_original)
        if call.index not in untrained:
            items[-1] |= {
                "prompt_token_ids": forest.prompt_token_ids(call.index).tolist(),
                "generation_token_ids": forest.generation_token_ids(call.index).tolist(),
                "generation_log_probs": call.log_probs.tolist(),
            }
    if as_original:
        replies_from = next(index for index, item in enumerate(items) if is_generated(item))
    with _of(calls[0]):
        for tool in calls[0].tools:
            check_tool(tool)
    return GymRollout(
        input=items[:replies_from],
        tools=[tool_item(tool) for tool in calls[0].tools],
        output=items[replies_from:],
        metadata={
            "switchyard_source": SOURCE,
            "switchyard_session_id": forest.session_id,
            "switchyard_record_uuids": json.dumps([call.uuid for call in calls]),
            "switchyard_model": str(calls[0].model),
        },
    )


@contextmanager
def _of(call: Call) -> Iterator[None]:
    """Refusals name the record they are about."""
    try:
        yield
    except Refusal as refusal:
        raise Refusal(refusal.rule, refusal.message, record=call.index, uuid=call.uuid) from None
