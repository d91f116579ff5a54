"""From a captured session to what can be trained on, usable without the proxy.

session = read_session("http://127.0.0.1:4000", "rollout-17")
lineage = build_lineage(session)        # every chain of any session, with a verdict on each
lineage = accept(read_session(...))     # or: one linear conversation by the strict rules, else Refusal

chain = lineage.chains[lineage.main.chain]
ids = lineage.forest.token_ids(chain.leaf)
for call in chain.calls:                # generated ids lie at [prompt_tokens, prompt_tokens + generation_tokens)
    lineage.forest.calls[call].log_probs

For trainers: `gym_rollout` makes NeMo Gym's items of a chain; the modules `rows` and `row_files`, which need the extra
`training`, flat arrays.
"""

from switchyard_py.rollouts.call import Call
from switchyard_py.rollouts.chains import Attempts, Chain, Main, MainReason
from switchyard_py.rollouts.delivery import Delivery, Mode, deliver
from switchyard_py.rollouts.diagnosis import Cause, Decoder, Diagnosis
from switchyard_py.rollouts.forest import Forest, Link, Placement
from switchyard_py.rollouts.gym_items import GymRollout, gym_rollout
from switchyard_py.rollouts.lineage import Lineage, SessionLink, accept, build_lineage, link_sessions
from switchyard_py.rollouts.messages import Message, normalise
from switchyard_py.rollouts.refusal import (
    NothingToTrain,
    Refusal,
    RolloutError,
    Rule,
    SessionIncomplete,
    SourceError,
)
from switchyard_py.rollouts.roles import Role
from switchyard_py.rollouts.selection import trainable_chains
from switchyard_py.rollouts.source import Session, read_session
from switchyard_py.rollouts.verdict import BLOCKING, Criteria, Reason, Verdict

__all__ = [
    "BLOCKING",
    "Attempts",
    "Call",
    "Cause",
    "Chain",
    "Criteria",
    "Decoder",
    "Delivery",
    "Diagnosis",
    "Forest",
    "GymRollout",
    "Lineage",
    "Link",
    "Main",
    "MainReason",
    "Message",
    "Mode",
    "NothingToTrain",
    "Placement",
    "Reason",
    "Refusal",
    "Role",
    "RolloutError",
    "Rule",
    "Session",
    "SessionIncomplete",
    "SessionLink",
    "SourceError",
    "Verdict",
    "accept",
    "build_lineage",
    "deliver",
    "gym_rollout",
    "link_sessions",
    "normalise",
    "read_session",
    "trainable_chains",
]
