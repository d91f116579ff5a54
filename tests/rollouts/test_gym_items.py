"""A chain of calls as a rollout of NeMo Gym."""

import json
from typing import Any

import pytest
from rollout_records import call, forest_of

from switchyard_py.rollouts.gym_items import GymRollout, gym_rollout
from switchyard_py.rollouts.gym_messages import Item
from switchyard_py.rollouts.refusal import Refusal

TRIPLE = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
SYSTEM: Item = {"role": "system", "content": "be brief"}
USER: Item = {"role": "user", "content": "list files"}
BASH: Item = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"c": "ls"}'}}
CALLING: Item = {"role": "assistant", "content": None, "reasoning": "look", "tool_calls": [BASH]}
RESULT: Item = {"role": "tool", "tool_call_id": "c1", "content": "a.txt"}
DONE: Item = {"role": "assistant", "content": "one file"}

LOOP = [
    call([SYSTEM, USER, CALLING], [1, 2], [3], [-0.5]),
    call([SYSTEM, USER, CALLING, RESULT, DONE], [1, 2, 3, 4], [5, 6], [-1.0, -2]),
]


def made(records: list[Item], **options: Any) -> GymRollout:
    """The rollout of the chain that the last record ends."""
    forest = forest_of(records)
    return gym_rollout(forest, forest.path(len(records) - 1), **options)


def kinds(items: list[Item]) -> list[str]:
    return [item.get("role") or item["type"] for item in items]


def triples(rollout: GymRollout) -> list[list[Any]]:
    """The triples in the output; no other item has a part of one."""
    carrying = [item for item in rollout.output if any(name in item for name in TRIPLE)]
    assert not any(name in item for name in TRIPLE for item in rollout.input)
    return [[item[name] for name in TRIPLE] for item in carrying]


def test_a_tool_loop() -> None:
    rollout = made(LOOP)
    assert kinds(rollout.input) == ["system", "user"]
    assert kinds(rollout.output) == ["reasoning", "function_call", "function_call_output", "assistant"]
    assert triples(rollout) == [[[1, 2], [3], [-0.5]], [[1, 2, 3, 4], [5, 6], [-1.0, -2]]]
    assert "prompt_token_ids" in rollout.output[1]
    assert "prompt_token_ids" in rollout.output[3]
    assert rollout.tools == [
        {"type": "function", "name": "bash", "description": "run", "parameters": {"type": "object"}, "strict": None}
    ]
    assert rollout.metadata == {
        "switchyard_source": "switchyard",
        "switchyard_session_id": "s",
        "switchyard_record_uuids": '["u0", "u1"]',
        "switchyard_model": "served",
    }


def test_the_last_of_parallel_calls_has_the_tokens() -> None:
    message = {"role": "assistant", "content": "two", "tool_calls": [BASH, BASH | {"id": "c2"}]}
    rollout = made([call([USER, message], [1], [2], [-1.0])])
    assert kinds(rollout.output) == ["assistant", "function_call", "function_call"]
    assert [name in item for item in rollout.output for name in TRIPLE] == [False] * 6 + [True] * 3


def test_the_original_loses_reasoning() -> None:
    rollout = made(LOOP, as_original=True)
    assert kinds(rollout.output) == ["function_call", "function_call_output", "assistant"]
    assert triples(rollout) == triples(made(LOOP))


def test_the_rollout_is_json_and_the_same_for_the_same_seed() -> None:
    rollout = made(LOOP, seed=1)
    assert made(LOOP, seed=1) == rollout
    assert made(LOOP, seed=2) != rollout
    assert made(LOOP) != made(LOOP)
    assert json.loads(json.dumps(rollout.output)) == rollout.output


def test_the_history_is_the_captured_one_however_the_agent_writes_it() -> None:
    again = {"role": "assistant", "content": "", "tool_calls": [BASH | {"index": 0}]}
    rollout = made([LOOP[0], call([SYSTEM, USER, again, RESULT, DONE], [1, 2, 3, 4], [5], [-1.0])])
    assert kinds(rollout.output) == ["reasoning", "function_call", "function_call_output", "assistant"]


def test_other_calls_of_the_session_are_left_out() -> None:
    side = call([USER, {"role": "assistant", "content": "a title"}], [9], [9], [-1.0], tools=[])
    forest = forest_of([LOOP[0], side, LOOP[1]])
    rollout = gym_rollout(forest, forest.path(2))
    assert triples(rollout) == triples(made(LOOP))
    assert rollout.metadata["switchyard_record_uuids"] == '["u0", "u2"]'


def test_what_is_trained_elsewhere_has_no_tokens() -> None:
    rollout = made(LOOP, untrained={0})
    assert kinds(rollout.output) == kinds(made(LOOP).output)
    assert triples(rollout) == triples(made(LOOP))[1:]


def test_examples_in_the_first_prompt_are_input() -> None:
    messages = [USER, DONE, USER, CALLING]
    records = [call(messages, [1], [2], [-1.0])]
    assert kinds(made(records).input) == ["user", "assistant", "user"]
    original = made(records, as_original=True)
    assert kinds(original.input) == ["user"]
    assert kinds(original.output) == ["assistant", "user", "function_call"]
    assert len(triples(original)) == 1


def test_nothing_need_be_added_between_two_calls() -> None:
    more = {"role": "assistant", "content": " and more"}
    rollout = made([call([USER, DONE], [1], [2], [-1.0]), call([USER, DONE, more], [1, 2], [3], [-1.0])])
    assert kinds(rollout.output) == ["assistant", "assistant"]
    assert len(triples(rollout)) == 2


def test_a_refusal_names_the_record() -> None:
    question = {"role": "user", "content": [{"type": "input_audio"}]}
    with pytest.raises(Refusal, match=r"N2 record 1 \(u1\)"):
        made([LOOP[0], call([SYSTEM, USER, CALLING, RESULT, question, DONE], [1, 2, 3, 4], [5], [-1.0])])
    with pytest.raises(Refusal, match=r"R8 record 0 \(u0\)"):
        made([call([USER, DONE], [1], [2], [-1.0], tools=[{"id": None}])])
