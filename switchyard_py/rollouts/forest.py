"""The forest of a session's calls, by tokens: built record by record, in the memory of what the session says once.

A call's parent is the longest earlier prompt + generation that its prompt begins with. Beside it stands the call that
the messages say is continued; where the two differ, tokens were not repeated, and a diagnosis says why.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from switchyard_py.rawjson import encode
from switchyard_py.rollouts.call import Call, Reading, read_record
from switchyard_py.rollouts.diagnosis import Decoder, Diagnosis, Side, diagnose
from switchyard_py.rollouts.history import Histories
from switchyard_py.rollouts.messages import Message, first_tool_call_id, told
from switchyard_py.rollouts.refusal import Refusal, Rule
from switchyard_py.rollouts.tokens import ID_BYTES, Node, TokenTree, unpack_ids

# OpenClaw sends ids of tool calls back without them.
_NOT_IN_EVERY_ID = re.compile(r"[\W_]")


@dataclass(frozen=True, slots=True)
class Link:
    """How a call follows its parent; all of the prompt is added where there is none.

    `known_messages` counts those of the prompt that are the parent's prompt and its reply; `unseen_replies` are the
    assistant messages among the others, which nothing captured on this path has generated.
    """

    parent: int | None
    added_tokens: int
    known_messages: int
    unseen_replies: int
    route_changed: bool = False
    tools_changed: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a call belongs. Calls are named by their index.

    `attempt_of` is the first call with the same prompt, maybe this one; `continues` the call whose reply is the last
    one in the messages (`certain`, unless several replies read the same), or which the agent seems to have left for a
    new history. A call whose record has a flaw has no `link`, and its ids are not used.
    """

    link: Link | None = None
    attempt_of: int | None = None
    continues: int | None = None
    certain: bool = False


class Forest:
    """Add the records of a session in call order; then read calls, ids and messages by the index of a call."""

    def __init__(self, session_id: str, decode: Decoder | None = None) -> None:
        self.session_id = session_id
        self.calls: list[Call] = []
        self.placements: list[Placement] = []
        self.diagnoses: list[Diagnosis] = []
        self._decode = decode
        self._tree = TokenTree()
        self._nodes: list[Node | None] = []
        self._histories = Histories()
        self._prompts: dict[bytes, int] = {}
        # By agent and fingerprint: the latest reply, and how many there were.
        self._replies: dict[tuple[str, Hashable], tuple[int | None, int]] = {}
        self._latest: dict[tuple[str, bool], int] = {}
        self._tools: dict[bytes, list[Any]] = {}
        self._uuids: set[str | None] = set()

    def token_ids(self, call: int) -> array[int]:
        """Prompt and generation of a call, so all ids of the chain it ends; empty where the record has a flaw."""
        return unpack_ids(self._packed(call))

    def prompt_token_ids(self, call: int) -> array[int]:
        """The ids of a call's prompt; empty where the record has a flaw."""
        return unpack_ids(self._packed(call)[: self.calls[call].prompt_tokens * ID_BYTES])

    def generation_token_ids(self, call: int) -> array[int]:
        """The ids a call generated; empty where the record has a flaw."""
        return unpack_ids(self._packed(call)[self.calls[call].prompt_tokens * ID_BYTES :])

    def prompt_messages(self, call: int) -> list[Message]:
        """The messages of a call's prompt, as the record has them."""
        return self._histories.conversation(call)[:-1]

    def added_messages(self, call: int) -> list[Message]:
        """The messages of a call's prompt that are neither of its parent's prompt nor its reply."""
        link = self.placements[call].link
        return self.prompt_messages(call)[link.known_messages if link else 0 :]

    def parent(self, call: int) -> int | None:
        """The call whose prompt + generation a call's prompt begins with, None for a root or a record with a flaw."""
        link = self.placements[call].link
        return link.parent if link else None

    def path(self, call: int) -> tuple[int, ...]:
        """The calls from the root to a call."""
        calls = [call]
        while (parent := self.parent(calls[-1])) is not None:
            calls.append(parent)
        return tuple(reversed(calls))

    def add(self, record: object) -> Reading:
        """Read the next record and place it. What messages of its prompt an earlier one has are the same objects."""
        reading = read_record(record, len(self.calls), self.session_id)
        tools = self._tools.setdefault(encode(reading.call.tools), reading.call.tools)
        flaw = reading.call.flaw
        if flaw is None and reading.call.uuid in self._uuids:
            flaw = Refusal(Rule.R2, "another record has the same uuid", record=len(self.calls), uuid=reading.call.uuid)
        reading = replace(reading, call=replace(reading.call, tools=tools, flaw=flaw))
        self._uuids.add(reading.call.uuid)
        call, messages = reading.call, reading.messages
        placement, node = Placement(), None
        if call.flaw is None:
            node, end = self._tree.add(call.index, reading.prompt, reading.generation)
            placement = self._place(reading, end)
        self.calls.append(call)
        self.placements.append(placement)
        self._nodes.append(node)
        self._histories.add(messages, call.reply, self._resembled(placement, call.index))
        reading = replace(reading, messages=self.prompt_messages(call.index))
        if call.flaw is None:
            self._latest[call.agent, bool(call.tools)] = call.index
            key = call.agent, _fingerprint(call.reply)
            self._replies[key] = call.index, self._replies.get(key, (None, 0))[1] + 1
        return reading

    @staticmethod
    def _resembled(placement: Placement, call: int) -> int | None:
        """The call whose conversation has most in common with a call's prompt."""
        parent = placement.link.parent if placement.link else None
        candidates = (parent, placement.continues, placement.attempt_of)
        return next((each for each in candidates if each not in (None, call)), None)

    def _place(self, reading: Reading, end: Node | None) -> Placement:
        """`end` is where the sequence ends that the prompt begins with."""
        call, messages = reading.call, reading.messages
        parent = end.calls[-1] if end else None
        first = self._prompts.setdefault(hashlib.sha256(reading.prompt).digest(), call.index)
        link = self._link(call, messages, parent)
        if first != call.index:
            return replace(self.placements[first], link=link)
        continues, certain = self._continued(call, messages, parent)
        if continues is not None and continues != parent:
            self._diagnose(continues, Side(call, reading.prompt, messages))
        return Placement(link, first, continues, certain)

    def _link(self, call: Call, messages: list[Message], parent: int | None) -> Link:
        if parent is None:
            return Link(None, call.prompt_tokens, 0, _replies(messages))
        before = self.calls[parent]
        known = self._histories.length(parent)
        if known > len(messages) or messages[known - 1].get("role") != "assistant":
            # The agent left something out that the template does not render.
            known = _last_reply(messages) + 1
        return Link(
            parent=parent,
            added_tokens=call.prompt_tokens - before.prompt_tokens - before.generation_tokens,
            known_messages=known,
            unseen_replies=_replies(messages[known:]),
            route_changed=call.route != before.route,
            tools_changed=call.tools != before.tools,
        )

    def _continued(self, call: Call, messages: list[Message], parent: int | None) -> tuple[int | None, bool]:
        """The call that the messages continue, and whether nothing else can be meant."""
        last = _last_reply(messages)
        reply = _fingerprint(messages[last]) if last >= 0 else None
        is_parents = parent is not None and _fingerprint(self.calls[parent].reply) == reply
        latest, count = self._replies.get((call.agent, reply), (None, 0))
        if reply is not None and latest is not None and not is_parents:
            return latest, count == 1
        if parent is not None:
            return parent, True
        latest = self._latest.get((call.agent, bool(call.tools)))
        return (latest if latest is not None and self._resembles(call, messages, latest) else None), False

    def _resembles(self, call: Call, messages: list[Message], before: int) -> bool:
        """Whether a prompt may be a new history of a conversation: it begins alike, and after the other had ended."""
        first = self._histories.conversation(before)[0]
        ended_at, started_at = self.calls[before].finished_at, call.started_at
        overlaps = ended_at is not None and started_at is not None and started_at < ended_at
        return bool(messages) and told(messages[0]) == told(first) and not overlaps

    def _diagnose(self, continues: int, side: Side) -> None:
        before = Side(self.calls[continues], self._packed(continues), self.prompt_messages(continues))
        diagnosis = diagnose(before, side, self._decode)
        if diagnosis is not None:
            self.diagnoses.append(diagnosis)

    def _packed(self, call: int) -> bytes:
        node = self._nodes[call]
        return node.path() if node else b""


def _last_reply(messages: list[Message]) -> int:
    """The position of the last assistant message, -1 if there is none."""
    return next((at for at in reversed(range(len(messages))) if messages[at].get("role") == "assistant"), -1)


def _replies(messages: list[Message]) -> int:
    return sum(message.get("role") == "assistant" for message in messages)


def _fingerprint(reply: Message) -> Hashable:
    """What a reply is known by when the agent sends it back, white space and thinking left out or not."""
    first = first_tool_call_id(reply)
    if first:
        return ("tool call", _NOT_IN_EVERY_ID.sub("", first))
    return "".join(told(reply).text_without_thinking.split()) or None
