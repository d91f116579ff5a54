"""The rules of a session that is one linear conversation, as NeMo Gym's reader of captured sessions has them.

A session is accepted by all of E1 to E4, R1 to R11 and N1 to N4 or refused with the first that is broken.
"""

from __future__ import annotations

from typing import Any

from switchyard_py.rollouts.call import Reading
from switchyard_py.rollouts.messages import Message, normalise, shared_messages
from switchyard_py.rollouts.refusal import Refusal, Rule
from switchyard_py.rollouts.tokens import common_ids, unpack_ids

_SAME_IN_ALL = ("model", "tools", "tool_choice")
_ADDED_ROLES = ("user", "tool")


class StrictRules:
    """Judges the records of one session in call order; holds no more than the last one."""

    def __init__(self) -> None:
        self._first: dict[str, Any] = {}
        self._ids = b""
        self._prompt: list[Any] = []
        self._history: list[Message] = []
        """Of the record before, normalised, its reply included; its prompt as it was is in `_prompt`."""

    def check(self, record: Any, reading: Reading) -> None:
        """Check the next record, read from `record`. Raises Refusal."""
        call = reading.call
        try:
            self._check(record, reading)
        except Refusal as refusal:
            raise Refusal(refusal.rule, refusal.message, record=call.index, uuid=call.uuid) from None

    def end(self) -> None:
        """Check that there was a record at all. Raises Refusal."""
        if not self._first:
            raise Refusal(Rule.E4, "the session has no records")

    def _check(self, record: Any, reading: Reading) -> None:
        call = reading.call
        if call.flaw is not None and call.flaw.rule in (Rule.R1, Rule.R2):
            raise call.flaw
        if not call.is_valid:
            reasons = ", ".join(call.invalid_reasons)
            raise Refusal(Rule.R3, f"it is not valid: {reasons}" if reasons else "it is not valid")
        if call.flaw is not None:
            raise call.flaw
        for tool in call.tools:
            check_tool(tool)
        is_first = not self._first
        if is_first:
            self._first = {key: record.get(key) for key in _SAME_IN_ALL}
        for key in _SAME_IN_ALL:
            if record.get(key) != self._first[key]:
                raise Refusal(Rule.R9, _difference(key, self._first[key], record.get(key)))
        self._check_ids(reading.prompt)
        # The reading leaves out what is no message, and is faster to compare because it shares the rest.
        *prompt, reply = record["messages"]
        self._check_messages(
            reading.messages if len(reading.messages) == len(prompt) else prompt, reply, is_first=is_first
        )
        self._ids = reading.prompt + reading.generation

    def _check_ids(self, prompt: bytes) -> None:
        if prompt.startswith(self._ids):
            return
        at = common_ids(prompt, self._ids)
        had, got = (list(unpack_ids(ids)[at : at + 4]) for ids in (self._ids, prompt))
        ends = f"has {got}" if got else "ends"
        raise Refusal(Rule.R10, f"at position {at} the record before had the ids {had}, the prompt {ends}")

    def _check_messages(self, prompt: list[Any], reply: Any, *, is_first: bool) -> None:
        # A message that is the same as in the record before is normal in the same way.
        known = shared_messages(prompt, self._prompt)
        normal = self._history[:known] + [normalise(message) for message in prompt[known:]]
        history = self._history
        same = known + shared_messages(normal[known:], history[known:])
        if same < len(history):
            seen = f"message {same} is not the {history[same]['role']} message of the record before"
            raise Refusal(Rule.R11, seen if same < len(normal) else f"message {same} of the record before is missing")
        added = normal[len(history) :]
        if not is_first and not added:
            raise Refusal(Rule.R11, "no message is added to those of the record before")
        for message in [] if is_first else added:
            if message["role"] not in _ADDED_ROLES:
                raise Refusal(Rule.R11, f"a message of the role {message['role']} is added between two calls")
        self._prompt, self._history = prompt, [*normal, normalise(reply)]


def check_tool(tool: Any) -> None:
    """Whether a tool can be converted to a function of the Responses API. Raises Refusal."""
    if not isinstance(tool, dict) or not isinstance(tool.get("id"), str):
        raise Refusal(Rule.R8, "a tool has no id")
    name, schema = tool["id"], tool.get("inputSchema")
    if not isinstance(tool.get("description"), str | None):
        raise Refusal(Rule.R8, f"the description of the tool {name} is not a text")
    if schema is not None and not isinstance(schema, dict):
        raise Refusal(Rule.R8, f"the inputSchema of the tool {name} is not an object")
    if not isinstance((schema or {}).get("jsonSchema"), dict | None):
        raise Refusal(Rule.R8, f"the parameters of the tool {name} are not an object")


def _difference(key: str, first: Any, other: Any) -> str:
    if key == "tools":
        return "tools differ from those of the first record"
    return f"{key} is {other!r}, in the first record {first!r}"
