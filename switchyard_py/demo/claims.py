"""What the demonstration claims, each checked against what the agent saw and what a trainer reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from switchyard_py.demo.conversation import Reply


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence, and why it is untrue; None: it is true."""

    text: str
    fault: str | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The replies as the agent read them, the messages it sent last, and the session as a trainer reads it."""

    replies: Sequence[Reply]
    sent: Sequence[dict[str, Any]]
    records: Sequence[dict[str, Any]]
    accounting: dict[str, int]

    def ids(self, call: int, key: str) -> list[int]:
        """A list of one record, call 0 being the first. Raises Untrue where there is none."""
        records = [record for record in self.records if record["uuid"] == self.replies[call].uuid]
        if not records:
            raise Untrue(f"call {call + 1} has no record")
        value = records[0][key]
        if not isinstance(value, list):
            raise Untrue(f"the record of call {call + 1} has no {key}")
        return value


class Untrue(Exception):
    """Why a claim does not hold."""


def claims(evidence: Evidence) -> list[Claim]:
    """All claims about a conversation of two calls."""
    return [Claim(text, _fault(check, evidence)) for text, check in _CLAIMS.items()]


def _fault(check: Callable[[Evidence], None], evidence: Evidence) -> str | None:
    try:
        check(evidence)
    except Untrue as reason:
        return str(reason)
    return None


def _live(evidence: Evidence) -> None:
    for number, reply in enumerate(evidence.replies, start=1):
        if reply.recorded_at_first_token is not False:
            raise Untrue(f"call {number} came all at once")


def _durable(evidence: Evidence) -> None:
    for number, reply in enumerate(evidence.replies, start=1):
        if not reply.recorded_at_tail:
            raise Untrue(f"the agent could act on call {number} before its record was there")


def _valid(evidence: Evidence) -> None:
    if [record["uuid"] for record in evidence.records] != [reply.uuid for reply in evidence.replies]:
        raise Untrue(f"{len(evidence.replies)} calls were made, the session has {len(evidence.records)} records")
    for number, record in enumerate(evidence.records, start=1):
        if record["is_valid"] is not True:
            raise Untrue(f"call {number} is invalid: {', '.join(record['call']['invalid_reasons'])}")


def _counted(evidence: Evidence) -> None:
    for call, reply in enumerate(evidence.replies):
        prompt, generated = reply.usage.get("prompt_tokens"), reply.usage.get("completion_tokens")
        expected = {
            "prompt_token_ids": prompt,
            "generation_token_ids": generated,
            "generation_log_probs": generated,
        }
        for key, count in expected.items():
            if (found := len(evidence.ids(call, key))) != count:
                raise Untrue(f"call {call + 1} has {found} {key}, the usage says {count}")


def _continued(evidence: Evidence) -> None:
    before = evidence.ids(0, "prompt_token_ids") + evidence.ids(0, "generation_token_ids")
    prompt = evidence.ids(1, "prompt_token_ids")
    same = next((n for n, pair in enumerate(zip(before, prompt, strict=False)) if pair[0] != pair[1]), len(prompt))
    if same < len(before):
        raise Untrue(f"of the {len(before)} ids only the first {same} are the same")


def _faithful(evidence: Evidence) -> None:
    expected = [_words(message) for message in (*evidence.sent, evidence.replies[-1].message)]
    recorded = [_words(message) for message in evidence.records[-1]["messages"]] if evidence.records else []
    if recorded != expected:
        raise Untrue("the last record holds another conversation")


def _unseen(evidence: Evidence) -> None:
    for number, reply in enumerate(evidence.replies, start=1):
        if reply.captured_keys:
            raise Untrue(f"call {number} showed {', '.join(sorted(reply.captured_keys))}")


def _balanced(evidence: Evidence) -> None:
    fates = {fate: count for fate, count in evidence.accounting.items() if fate != "begun" and count}
    begun = evidence.accounting["begun"]
    if begun != sum(fates.values()) or fates != {"valid": len(evidence.replies)}:
        raise Untrue(f"begun {begun}, " + ", ".join(f"{fate} {count}" for fate, count in fates.items()))


def _words(message: dict[str, Any]) -> dict[str, Any]:
    """A message without the parts that say nothing: no content is stored as null, as an empty text or not at all."""
    return {key: value for key, value in message.items() if value not in (None, "")}


_CLAIMS: dict[str, Callable[[Evidence], None]] = {
    "tokens reached the agent live, while there was no record yet": _live,
    "each record was on disk before the agent could act on the reply": _durable,
    "both calls are recorded and valid": _valid,
    "ids, log-probs and the counts in the engine's usage agree": _counted,
    "call 2's prompt ids begin with call 1's prompt + generation": _continued,
    "the records hold what the agent sent and received": _faithful,
    "the agent was shown no ids and no log-probs: it asked for none": _unseen,
    "the account balances: begun 2 = valid 2": _balanced,
}
