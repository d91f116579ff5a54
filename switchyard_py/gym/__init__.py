"""NeMo Gym: what an agent server needs to run OpenHands through the proxy and to train on what was captured.

    address = proxy_address(config.switchyard_base_url)             # at start-up
    run = captured_run(address, route="policy_model", agent_framework=..., verify_golden_patch=...)
    agent_toml(toml, run), agent_config(config, run)                # what the agent's container reads
    [result] = await traced_results(result, run)                    # after the run

Needs the extra `gym`.
"""

from switchyard_py.gym.address import BaseURLRefused, ProxyAddress, proxy_address
from switchyard_py.gym.result import Result, masked, with_rollout
from switchyard_py.gym.retrieval import RetrievalFailed, retrieve_session
from switchyard_py.gym.routing import CapturedRun, RoutingRefused, agent_config, agent_toml, captured_run
from switchyard_py.gym.trace import TraceOptions, captured_rollouts, traced_results
from switchyard_py.rollouts import SessionIncomplete

__all__ = [
    "BaseURLRefused",
    "CapturedRun",
    "ProxyAddress",
    "Result",
    "RetrievalFailed",
    "RoutingRefused",
    "SessionIncomplete",
    "TraceOptions",
    "agent_config",
    "agent_toml",
    "captured_rollouts",
    "captured_run",
    "masked",
    "proxy_address",
    "retrieve_session",
    "traced_results",
    "with_rollout",
]
