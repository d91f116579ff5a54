"""What NeMo Gym's agent server returns of a run: its result with the captured rollout in it, or kept out of training.

A result is the JSON form of Gym's verify response: `responses_create_params`, `response`, `reward`, metrics,
`instance_config`. Neither function changes the one it is given, and both keep everything they do not name.
"""

from __future__ import annotations

from typing import Any

from switchyard_py.rollouts.gym_items import GymRollout

Result = dict[str, Any]


def with_rollout(result: Result, rollout: GymRollout) -> Result:
    """The result with the captured rollout in place of the agent's own items; the rest, the reward too, stays."""
    return result | {
        "responses_create_params": result["responses_create_params"] | {"input": rollout.input, "tools": rollout.tools},
        "response": result["response"] | {"output": rollout.output, "metadata": rollout.metadata},
    }


def masked(result: Result, session_id: str, error: Exception) -> Result:
    """The agent's own result, kept out of training, with the reason: `session <id>: <type>: <message>`."""
    return result | {
        "instance_config": result["instance_config"] | {"mask_sample": True},
        "mask_sample": True,
        "switchyard_trace_error": f"session {session_id}: {type(error).__name__}: {error}",
    }
