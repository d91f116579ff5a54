"""From a captured session to what can be trained on, usable without the proxy.

session = read_session("http://127.0.0.1:4000", "rollout-17")
lineage = build_lineage(session)        # every chain of any session, with a verdict on each
lineage = accept(read_session(...))     # or: one linear conversation by the strict rules, else Refusal

chain = lineage.chains[lineage.main.chain]
ids = lineage.forest.token_ids(chain.leaf)
for call in chain.calls:                # generated ids lie at [prompt_tokens, prompt_tokens + generation_tokens)
    lineage.forest.calls[call].log_probs
"""

from switchyard_py.rollouts.call import Call
from switchyard_py.rollouts.chains import Attempts, Chain, Main, MainReason
from switchyard_py.rollouts.diagnosis import Cause, Decoder, Diagnosis
from switchyard_py.rollouts.forest import Forest, Link, Placement
from switchyard_py.rollouts.lineage import Lineage, SessionLink, accept, build_lineage, link_sessions
from switchyard_py.rollouts.messages import Message, normalise
from switchyard_py.rollouts.refusal import Refusal, RolloutError, Rule, SourceError
from switchyard_py.rollouts.roles import Role
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
    "Diagnosis",
    "Forest",
    "Lineage",
    "Link",
    "Main",
    "MainReason",
    "Message",
    "Placement",
    "Reason",
    "Refusal",
    "Role",
    "RolloutError",
    "Rule",
    "Session",
    "SessionLink",
    "SourceError",
    "Verdict",
    "accept",
    "build_lineage",
    "link_sessions",
    "normalise",
    "read_session",
]
