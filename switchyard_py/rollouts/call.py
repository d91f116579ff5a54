"""One record of a session as rollouts see it: its facts, read once, and its ids, packed."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from switchyard_py.rollouts.messages import Message
from switchyard_py.rollouts.refusal import Refusal, Rule
from switchyard_py.rollouts.tokens import ID_BYTES, pack_ids

SCHEMA_VERSION = 1

# Among the ids a harness sent that did not become the session's (`call.agent` of a record): sessions of its own, and
# what tells one of its agents from another. Only a sub-agent's calls have the last ones.
_OWN_SESSIONS = (
    "x-litellm-session-id",
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "x-opencode-session",
    "x-session-id",
    "metadata.user_id",
)
_AGENTS = ("x-claude-code-agent-id", "thread-id")
_SUBAGENT_ONLY = (
    "x-claude-code-agent-id",
    "x-claude-code-parent-agent-id",
    "x-codex-parent-thread-id",
    "x-openai-subagent",
)


@dataclass(frozen=True, slots=True)
class Call:
    """The facts of one call. Its ids and the messages of its prompt are kept by the `Forest`, which shares them.

    `index` is the position of the record in the session. A record that breaks R1, R2 or R4 to R8 has a `flaw`, and
    only what could be read of it; its ids are not used.
    """

    index: int
    uuid: str | None
    model: str | None
    request_id: str | None
    finish_reason: str | None
    is_valid: bool
    parent_session_id: str | None
    tools: list[Any]
    tool_choice: Any
    reply: Message
    prompt_tokens: int
    log_probs: array[float]
    """Natural logarithms, one for each generated id."""
    details: dict[str, Any]
    """`call` of the record; empty where another proxy wrote it."""
    flaw: Refusal | None = None

    @property
    def generation_tokens(self) -> int:
        return len(self.log_probs)

    @property
    def lost(self) -> bool:
        """Whether this is the placeholder of a call that was answered and could not be stored."""
        return "lost" in self.invalid_reasons

    @property
    def invalid_reasons(self) -> tuple[str, ...]:
        reasons = self.details.get("invalid_reasons")
        return tuple(map(str, reasons)) if isinstance(reasons, list) else ()

    @property
    def truncated(self) -> bool:
        """Whether the token limit ended the reply."""
        return self.finish_reason == "length" or self.details.get("truncated") is True

    @property
    def constrained(self) -> bool:
        return self.details.get("constrained") is True

    @property
    def route(self) -> str | None:
        return _text(self.details.get("route"))

    @property
    def retry_of(self) -> str | None:
        return _text(self.details.get("retry_of"))

    @property
    def kind(self) -> str | None:
        return _text(self.details.get("kind"))

    @property
    def sampling(self) -> dict[str, Any]:
        return _object(self.details.get("sampling"))

    @property
    def engine(self) -> dict[str, Any]:
        return _object(self.details.get("engine"))

    @property
    def started_at(self) -> datetime | None:
        return _time(self.details.get("started_at"))

    @property
    def finished_at(self) -> datetime | None:
        return _time(self.details.get("finished_at"))

    @property
    def own_session(self) -> str | None:
        """The session the harness made up itself, where that is not the one the record belongs to."""
        agent = _object(self.details.get("agent"))
        return next((str(agent[name]) for name in _OWN_SESSIONS if agent.get(name)), None)

    @property
    def root_session(self) -> str | None:
        """The session of the harness's first agent, as it names it for its prompt cache."""
        return _text(_object(self.details.get("agent")).get("prompt_cache_key"))

    @property
    def agent(self) -> str:
        """What tells one agent of the session from another: ids of its harness, empty where it sent none."""
        agent = _object(self.details.get("agent"))
        names = [self.own_session, *(agent.get(name) for name in _AGENTS)]
        return "/".join(str(name) for name in names if name)

    @property
    def named_subagent(self) -> bool:
        """Whether the harness said that a sub-agent made the call."""
        agent = _object(self.details.get("agent"))
        return any(agent.get(name) for name in _SUBAGENT_ONLY)


@dataclass(frozen=True, slots=True)
class Reading:
    """A record that was read: the call, the messages of its prompt, its packed ids (empty where it has a flaw)."""

    call: Call
    messages: list[Message]
    prompt: bytes = b""
    generation: bytes = b""


def read_record(record: object, index: int, session_id: str) -> Reading:
    """Read a record of a session; what breaks R1, R2 or R4 to R8 in the record itself is the `flaw` of the call."""
    fields = record if isinstance(record, dict) else {}
    try:
        prompt, generation, log_probs = _checked(record, session_id)
        flaw = None
    except Refusal as fault:
        prompt, generation, log_probs = b"", b"", array("d")
        flaw = Refusal(fault.rule, fault.message, record=index, uuid=_text(fields.get("uuid")))
    messages, tools = fields.get("messages"), fields.get("tools")
    messages = [each for each in messages if isinstance(each, dict)] if isinstance(messages, list) else []
    has_reply = bool(messages) and messages[-1].get("role") == "assistant"
    details = _object(fields.get("call"))
    call = Call(
        index=index,
        uuid=_text(fields.get("uuid")),
        model=_text(fields.get("model")),
        request_id=_text(fields.get("request_id")),
        finish_reason=_text(fields.get("finish_reason")),
        is_valid=fields.get("is_valid") is True,
        parent_session_id=_text(fields.get("parent_session_id")),
        tools=tools if isinstance(tools, list) else [],
        tool_choice=fields.get("tool_choice"),
        reply=messages[-1] if has_reply else {},
        prompt_tokens=len(prompt) // ID_BYTES,
        log_probs=log_probs,
        # The choices beyond the first are whole replies.
        details={key: value for key, value in details.items() if key != "choices"},
        flaw=flaw,
    )
    return Reading(call, messages[:-1] if has_reply else messages, prompt, generation)


def _checked(record: object, session_id: str) -> tuple[bytes, bytes, array[float]]:
    """The ids and log-probs of a record that keeps R1, R2 and R4 to R8. Raises Refusal."""
    if not isinstance(record, dict):
        raise Refusal(Rule.R1, "it is not an object")
    if record.get("schema_version") != SCHEMA_VERSION:
        raise Refusal(Rule.R1, f"its schema version is {record.get('schema_version')!r}")
    if record.get("session_id") != session_id:
        raise Refusal(Rule.R1, f"it is of the session {record.get('session_id')!r}")
    if not _text(record.get("uuid")):
        raise Refusal(Rule.R2, "it has no uuid")
    for key in ("request_id", "model"):
        if not _text(record.get(key)):
            raise Refusal(Rule.R4, f"{key} is not a text, or empty")
    prompt, generation = (_ids(record, key) for key in ("prompt_token_ids", "generation_token_ids"))
    log_probs = _log_probs(record.get("generation_log_probs"))
    if len(log_probs) != len(record["generation_token_ids"]):
        ids = len(record["generation_token_ids"])
        raise Refusal(Rule.R6, f"there are {len(log_probs)} log-probabilities for {ids} generated ids")
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal(Rule.R7, "messages is not a list, or empty")
    if not isinstance(messages[-1], dict) or messages[-1].get("role") != "assistant":
        raise Refusal(Rule.R7, "the last message is not of the assistant")
    if not isinstance(record.get("tools"), list):
        raise Refusal(Rule.R8, "tools is missing" if "tools" not in record else "tools is not a list")
    return prompt, generation, log_probs


def _ids(record: dict[str, Any], key: str) -> bytes:
    packed = pack_ids(record.get(key))
    if packed is None:
        raise Refusal(Rule.R5, f"{key} is not a list of 64-bit integers")
    if not packed:
        raise Refusal(Rule.R5, f"{key} is empty")
    return packed


def _log_probs(values: object) -> array[float]:
    if not isinstance(values, list):
        raise Refusal(Rule.R6, "generation_log_probs is not a list")
    if not set(map(type, values)) <= {float, int}:
        raise Refusal(Rule.R6, "a log-probability is not a number")
    try:
        log_probs = array("d", values)
    except OverflowError:
        raise Refusal(Rule.R6, "a log-probability is not finite") from None
    if not all(map(math.isfinite, log_probs)):
        raise Refusal(Rule.R6, "a log-probability is not finite")
    return log_probs


def _text(value: object) -> str | None:
    """A text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _time(value: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return time.replace(tzinfo=time.tzinfo or UTC) if time else None
