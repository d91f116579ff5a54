"""Why a prompt does not begin with the tokens of the call it continues.

Token ids say where the two part; messages say what the agent sent back otherwise than it was generated. What is left,
equal messages rendered to other tokens, is told apart by where they part, and by their text where a decoder is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from switchyard_py.rollouts.call import Call
from switchyard_py.rollouts.messages import Message, Told, same_json, told
from switchyard_py.rollouts.tokens import common_ids, unpack_ids

Decoder = Callable[[Sequence[int]], str]
"""The text of token ids, as the tokenizer of the model decodes them, special tokens included."""

SHOWN_IDS = 8
# A re-tokenised word is a few ids; arguments written anew differ at every comma and colon.
_SHORT = 6
# What a template renders otherwise from equal messages.
_TEMPLATE_SETTINGS = ("chat_template_kwargs", "reasoning_effort")


class Cause(StrEnum):
    """The most likely reason."""

    def __new__(cls, code: str, explanation: str) -> Cause:
        cause = str.__new__(cls, code)
        cause._value_ = code
        cause.explanation = explanation
        return cause

    explanation: str

    REASONING_NOT_RESENT = "reasoning_not_resent", "the agent did not send the reasoning back"
    STRIPPED_BY_TEMPLATE = (
        "stripped_by_template",
        "the chat template left out of the history what was generated or prompted, as templates do with thinking",
    )
    TEMPLATE_SETTINGS_CHANGED = "template_settings_changed", "the agent changed the settings of the chat template"
    ARGUMENTS_RESERIALISED = "arguments_reserialised", "the arguments of a tool call were written anew"
    WHITESPACE_CHANGED = "whitespace_changed", "white space was added or dropped"
    TOOL_CALL_HIDDEN = "tool_call_hidden", "more was generated than the history shows, such as a second tool call"
    OTHER_TOKENISATION = "other_tokenisation", "the same text became other tokens"
    HISTORY_REWRITTEN = "history_rewritten", "the agent changed the history"
    HISTORY_COMPACTED = "history_compacted", "the agent replaced the history by a shorter one"
    TOOLS_CHANGED = "tools_changed", "the agent changed the tools"
    END_OF_TURN_MISSING = (
        "end_of_turn_missing",
        "the token limit cut the generation off before the end of the turn, which the template adds",
    )
    UNKNOWN = "unknown", "no cause was found"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where the prompt of `call` and the prompt + generation of `predecessor` part, and why.

    Calls are named by their index. `position` counts ids from 0; `had` are ids of the predecessor from there on, `got`
    those of the prompt, at most `SHOWN_IDS` each and none where one ends; texts are null without a decoder.
    """

    call: int
    predecessor: int
    position: int
    in_generation: bool
    """Whether it is a generated id that was not repeated, rather than one of the predecessor's prompt."""
    had: tuple[int, ...]
    got: tuple[int, ...]
    had_text: str | None
    got_text: str | None
    cause: Cause


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two calls: its packed ids (with the predecessor's generation) and the messages of its prompt."""

    call: Call
    ids: bytes
    messages: list[Message]


def diagnose(before: Side, after: Side, decode: Decoder | None = None) -> Diagnosis | None:
    """Compare a call with the one it seems to continue; None where its prompt begins with all of that one's ids."""
    position = common_ids(before.ids, after.ids)
    had, got = unpack_ids(before.ids), unpack_ids(after.ids)
    if position == len(had):
        return None
    cause = _Comparison(before, after, had.tolist(), got.tolist(), position, decode).cause()
    shown = slice(position, position + SHOWN_IDS)
    return Diagnosis(
        call=after.call.index,
        predecessor=before.call.index,
        position=position,
        in_generation=position >= before.call.prompt_tokens,
        had=tuple(had[shown]),
        got=tuple(got[shown]),
        had_text=decode(had[shown].tolist()) if decode else None,
        got_text=decode(got[shown].tolist()) if decode else None,
        cause=cause,
    )


@dataclass(frozen=True, slots=True)
class _Comparison:
    before: Side
    after: Side
    had: list[int]
    got: list[int]
    position: int
    decode: Decoder | None

    def cause(self) -> Cause:
        if self.position >= self.before.call.prompt_tokens:
            return self._cause_in_generation()
        return self._cause_in_prompt()

    def _cause_in_prompt(self) -> Cause:
        if self.before.call.tools != self.after.call.tools:
            return Cause.TOOLS_CHANGED
        for number, message in enumerate(self.before.messages):
            if number >= len(self.after.messages):
                return Cause.HISTORY_COMPACTED
            change = self._change(told(message), told(self.after.messages[number]))
            if change is not None:
                return change
        if any(_setting(self.before, key) != _setting(self.after, key) for key in _TEMPLATE_SETTINGS):
            return Cause.TEMPLATE_SETTINGS_CHANGED
        return Cause.STRIPPED_BY_TEMPLATE

    def _cause_in_generation(self) -> Cause:
        number = len(self.before.messages)
        resent = told(self.after.messages[number]) if number < len(self.after.messages) else None
        if resent is None or resent.role != "assistant":
            return self._rewritten()
        reply = told(self.before.call.reply)
        if self.position == self.before.call.prompt_tokens and reply.reasoning and resent.reasoning:
            return Cause.STRIPPED_BY_TEMPLATE
        return self._change(reply, resent) or self._cause_of_equal_messages(reply)

    def _change(self, message: Told, resent: Told) -> Cause | None:
        """What the agent made of a message; None where nothing that can be rendered."""
        if message == resent:
            return None
        if message.role != resent.role or message.other != resent.other:
            return self._rewritten()
        if message.reasoning and not resent.reasoning:
            return Cause.REASONING_NOT_RESENT
        if message.thinks_in_text and _squeezed(message.text_without_thinking) == _squeezed(resent.text):
            return Cause.REASONING_NOT_RESENT
        if message.text != resent.text:
            same = _squeezed(message.text) == _squeezed(resent.text)
            return Cause.WHITESPACE_CHANGED if same else self._rewritten()
        if message.tool_calls != resent.tool_calls:
            return self._change_of_tool_calls(message, resent)
        same = _squeezed(message.reasoning) == _squeezed(resent.reasoning)
        return Cause.WHITESPACE_CHANGED if same else self._rewritten()

    def _change_of_tool_calls(self, message: Told, resent: Told) -> Cause:
        pairs = list(zip(message.tool_calls, resent.tool_calls, strict=False))
        if any(mine[0] != theirs[0] for mine, theirs in pairs):
            return self._rewritten()
        if any(mine[1] != theirs[1] and not same_json(mine[1], theirs[1]) for mine, theirs in pairs):
            return self._rewritten()
        if len(resent.tool_calls) < len(message.tool_calls):
            return Cause.TOOL_CALL_HIDDEN
        return Cause.ARGUMENTS_RESERIALISED if len(pairs) == len(resent.tool_calls) else self._rewritten()

    def _rewritten(self) -> Cause:
        shorter = len(self.after.messages) <= len(self.before.messages)
        return Cause.HISTORY_COMPACTED if shorter else Cause.HISTORY_REWRITTEN

    def _cause_of_equal_messages(self, reply: Told) -> Cause:
        """The agent sent back what it was given, and that is not all that was generated, or was rendered otherwise."""
        had, got = self.had[self.position :], self.got[self.position :]
        if self.before.call.truncated:
            return Cause.END_OF_TURN_MISSING
        end_of_turn = had[-1]
        if got[:1] == [end_of_turn]:
            return Cause.TOOL_CALL_HIDDEN if reply.tool_calls else Cause.UNKNOWN
        if end_of_turn in got:
            got = got[: got.index(end_of_turn) + 1]
        tail = _common_end(had, got)
        had, got = had[: len(had) - tail], got[: len(got) - tail]
        if self.decode:
            return _cause_by_text(self.decode(had), self.decode(got), reply)
        # The engine's parser reads the arguments, and the template prints what it read.
        return Cause.ARGUMENTS_RESERIALISED if reply.tool_calls and len(had) > _SHORT else Cause.OTHER_TOKENISATION


def _cause_by_text(had: str, got: str, reply: Told) -> Cause:
    if had == got:
        return Cause.OTHER_TOKENISATION
    if reply.tool_calls:
        return Cause.ARGUMENTS_RESERIALISED
    return Cause.WHITESPACE_CHANGED if _squeezed(had) == _squeezed(got) else Cause.UNKNOWN


def _setting(side: Side, key: str) -> object:
    return side.call.sampling.get(key)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _common_end(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for mine, theirs in zip(reversed(one), reversed(other), strict=False):
        if mine != theirs:
            break
        count += 1
    return count
