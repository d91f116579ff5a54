"""From the end of an agent's run to its result with the captured tokens in it, or masked: the last step of a run.

Strict mode takes a session that is one linear conversation, as NeMo Gym's own reader does, and nothing else. Lineage
mode takes any session and delivers its main chain, or every chain, where the verdict lets it be trained on.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Literal

from switchyard_py.gym.result import Result, masked, with_rollout
from switchyard_py.gym.retrieval import DEADLINE_SECONDS, SETTLE_SECONDS, RetrievalFailed, retrieve_session
from switchyard_py.gym.routing import CapturedRun
from switchyard_py.rollouts import GymRollout, Mode, deliver, read_session

Chains = Literal["main", "all"]


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How a run's session is fetched and read.

    `chains` are those of lineage mode. `as_original` makes items as NeMo Gym's own reader does: without reasoning, and
    with `<think>` tags cut out of texts. `api_key_env` names the environment variable with a key for readers of the
    proxy, not the key, because NeMo Gym writes its settings into results. `deadline` and `settle` are seconds, see
    `retrieve_session`. Raises ValueError for another mode or other chains.
    """

    mode: Mode = "strict"
    chains: Chains = "main"
    as_original: bool = False
    api_key_env: str | None = None
    deadline: float = DEADLINE_SECONDS
    settle: float = SETTLE_SECONDS

    def __post_init__(self) -> None:
        for name, values in (("mode", ("strict", "lineage")), ("chains", ("main", "all"))):
            if getattr(self, name) not in values:
                raise ValueError(f"{name} is {getattr(self, name)!r}: write {' or '.join(values)}")


DEFAULT = TraceOptions()


async def traced_results(result: Result, run: CapturedRun | None, options: TraceOptions = DEFAULT) -> list[Result]:
    """The result of a run with its captured rollout, or masked with the reason; as it is where `run` is None.

    It is one result but for `chains="all"`, which gives one for each trainable chain, the main one first, all of them
    with the reward of the run. Raises nothing but what cancels it.
    """
    if run is None:
        return [result]
    try:
        key = _api_key(options)
        envelope = await retrieve_session(
            run.address, run.session_id, api_key=key, deadline=options.deadline, settle=options.settle
        )
        rollouts = await asyncio.to_thread(captured_rollouts, envelope, run.session_id, options)
    except Exception as error:
        return [masked(result, run.session_id, error)]
    return [with_rollout(result, rollout) for rollout in rollouts]


def _api_key(options: TraceOptions) -> str | None:
    if options.api_key_env is None:
        return None
    key = os.environ.get(options.api_key_env, "").strip()
    if not key:
        raise RetrievalFailed(f"the environment variable {options.api_key_env}, named by api_key_env, is not set")
    return key


def captured_rollouts(envelope: bytes, session_id: str, options: TraceOptions = DEFAULT) -> list[GymRollout]:
    """The rollouts of a session, at least one; several only for `chains="all"`.

    Chains that fork share calls; only the first rollout that has a call has its tokens.

    Raises:
        Refusal: strict mode refuses the session, or a message cannot be converted.
        NothingToTrain: there is no chain of those asked for.
        SessionIncomplete: calls are open, or records are missing.
    """
    delivery = deliver(read_session(envelope, session_id), options.mode, options.chains)
    return list(delivery.gym_rollouts(as_original=options.as_original))
