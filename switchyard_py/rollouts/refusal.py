"""Why a session cannot be read or is not accepted.

RolloutError
├── SourceError         the session could not be had: unknown, unreachable, cut off
├── Refusal             it was read and breaks a rule: which one, in which record
├── SessionIncomplete   it was read, and by its own account calls are missing or may still be added
└── NothingToTrain      it was read, and no chain that was asked for can be trained on
"""

from __future__ import annotations

from enum import StrEnum


class Rule(StrEnum):
    """What strict mode demands of the envelope (E), each record (R) and each message (N); `demand` is what has to hold.

    They are the rules of NeMo Gym's reader of captured sessions.
    """

    def __new__(cls, code: str, demand: str) -> Rule:
        rule = str.__new__(cls, code)
        rule._value_ = code
        rule.demand = demand
        return rule

    demand: str

    E1 = "E1", "the envelope is a JSON object"
    E2 = "E2", "the schema version of the envelope is 1"
    E3 = "E3", "the envelope is of the session asked for"
    E4 = "E4", "completions is a list with at least one record"
    R1 = "R1", "the record is an object of schema version 1 and of the session asked for"
    R2 = "R2", "the record has a uuid that no other record of the session has"
    R3 = "R3", "the record is valid"
    R4 = "R4", "request_id and model are texts that are not empty"
    R5 = "R5", "prompt and generation ids are lists of integers that are not empty"
    R6 = "R6", "there is one finite log-probability for each generated id"
    R7 = "R7", "the messages end with one of the assistant"
    R8 = "R8", "tools is a list of tools"
    R9 = "R9", "model, tools and tool choice are those of the first record"
    R10 = "R10", "the prompt begins with the ids of the record before it, prompt and generation"
    R11 = "R11", "the messages continue those of the record before it, by user and tool messages only"
    N1 = "N1", "a message has one of the roles system, developer, user, assistant, tool"
    N2 = "N2", "content is a text or a list of parts that each have a text"
    N3 = "N3", "a tool call has an id, a name and arguments as text"
    N4 = "N4", "a tool message names the call it answers"


class RolloutError(Exception):
    """A session gives no rollout; `str()` says why."""


class SourceError(RolloutError):
    """The session could not be had from its source. `status` is that of the proxy's answer, if it gave one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Refusal(RolloutError):
    """A rule is broken. `record` is the position of the record in the session, None for the envelope."""

    def __init__(self, rule: Rule, message: str, record: int | None = None, uuid: str | None = None) -> None:
        super().__init__(rule, message, record, uuid)
        self.rule = rule
        self.message = message
        self.record = record
        self.uuid = uuid

    def __str__(self) -> str:
        where = "" if self.record is None else f" record {self.record}" + (f" ({self.uuid})" if self.uuid else "")
        return f"{self.rule}{where}: {self.message}"

    def to_json(self) -> dict[str, str | int | None]:
        """`code`, `rule` (what has to hold), `record`, `uuid` and `message`."""
        return {
            "code": self.rule.value,
            "rule": self.rule.demand,
            "record": self.record,
            "uuid": self.uuid,
            "message": self.message,
        }


class SessionIncomplete(RolloutError):
    """The proxy's own account says that calls of the session are missing from it, or may still be added."""

    def to_json(self) -> dict[str, str]:
        """`code` and `message`."""
        return {"code": "incomplete", "message": str(self)}


class NothingToTrain(RolloutError):
    """No chain that was asked for can be trained on. `str()` says why.

    `code` is one of `MainReason` where there is no main chain, `not_trainable` where verdicts speak against it.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)

    def to_json(self) -> dict[str, str]:
        """`code` and `message`."""
        return {"code": self.code, "message": str(self)}
