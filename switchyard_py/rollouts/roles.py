"""Whose calls a session holds: the agent's own turns, its sub-agents', and calls beside the turns."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from switchyard_py.rollouts.call import Call
from switchyard_py.rollouts.refusal import Rule

_UNREADABLE = (Rule.R1, Rule.R2, Rule.R8)


class Role(StrEnum):
    """What a call is in its session."""

    TURN = "turn"
    SUBAGENT = "subagent"
    SIDE = "side"
    """A title, a summary, memory: it has no tools while the session has, or its harness says so."""


def roles(calls: Sequence[Call], session_id: str) -> list[Role]:
    """The role of each call of a session."""
    has_tools = any(call.tools for call in calls)
    own_sessions = [call.own_session or session_id for call in calls]
    known = set(own_sessions)
    return [_role(call, has_tools, own, known) for call, own in zip(calls, own_sessions, strict=True)]


def _role(call: Call, has_tools: bool, own_session: str, sessions: set[str]) -> Role:
    if call.named_subagent or _has_parent_here(call, own_session, sessions):
        return Role.SUBAGENT
    if call.lost or (call.flaw is not None and call.flaw.rule in _UNREADABLE):
        return Role.TURN  # its tools are not known, and a lost turn must not pass for a side call
    # Without tools in the session, that a call beside the turns has none says nothing, and the record's guess is made
    # of no more.
    if has_tools and (not call.tools or call.kind == "side"):
        return Role.SIDE
    return Role.TURN


def _has_parent_here(call: Call, own_session: str, sessions: set[str]) -> bool:
    """Whether a harness that gives each agent a session of its own names another one of these as the first one
    (OpenHands, as `prompt_cache_key`) or as the parent (OpenCode)."""
    return any(
        other != own_session and other in sessions for other in (call.root_session, call.parent_session_id) if other
    )
