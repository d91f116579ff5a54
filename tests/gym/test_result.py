"""What becomes of an agent server's result: exactly the fields NeMo Gym's integration names, and nothing else."""

import copy
from typing import Any

from switchyard_py.gym.result import masked, with_rollout
from switchyard_py.rollouts.gym_items import GymRollout

RESULT: dict[str, Any] = {
    "responses_create_params": {"input": [{"role": "user"}], "tools": [{"name": "own"}], "temperature": 1.0},
    "response": {
        "id": "swebench-1",
        "output": [{"type": "message", "own": True}],
        "tools": [{"name": "own"}],
        "tool_choice": "auto",
        "metadata": None,
    },
    "reward": 1.0,
    "resolved": True,
    "model_patch": "diff --git",
    "agent_error_kind": None,
    "instance_config": {"instance_id": "x", "mask_sample": False, "switchyard_session_id": "s"},
}
ROLLOUT = GymRollout(
    input=[{"type": "message", "role": "user", "content": "hi"}],
    tools=[{"type": "function", "name": "bash"}],
    output=[{"type": "message", "prompt_token_ids": [1]}],
    metadata={
        "switchyard_source": "switchyard",
        "switchyard_session_id": "s",
        "switchyard_record_uuids": '["u1"]',
        "switchyard_model": "served",
    },
)


def test_a_rollout_replaces_four_fields() -> None:
    before = copy.deepcopy(RESULT)
    after = with_rollout(RESULT, ROLLOUT)
    assert before == RESULT
    expected = copy.deepcopy(RESULT)
    expected["responses_create_params"]["input"] = ROLLOUT.input
    expected["responses_create_params"]["tools"] = ROLLOUT.tools
    expected["response"]["output"] = ROLLOUT.output
    expected["response"]["metadata"] = ROLLOUT.metadata
    assert after == expected


def test_a_failure_masks_and_keeps_everything() -> None:
    before = copy.deepcopy(RESULT)
    after = masked(RESULT, "s", ValueError("R3 record 1: it is not valid"))
    assert before == RESULT
    expected = copy.deepcopy(RESULT)
    expected["instance_config"]["mask_sample"] = True
    expected["mask_sample"] = True
    expected["switchyard_trace_error"] = "session s: ValueError: R3 record 1: it is not valid"
    assert after == expected
