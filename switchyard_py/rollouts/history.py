"""The messages of a session's prompts, each stored once where a prompt repeats those of a call before it."""

from __future__ import annotations

from dataclasses import dataclass

from switchyard_py.rollouts.messages import Message, shared_messages


@dataclass(frozen=True, slots=True)
class _Entry:
    """A prompt: the first `shared` messages of the conversation of `base`, then `own`; and the reply to it."""

    base: int | None
    shared: int
    own: list[Message]
    reply: Message


class Histories:
    """Conversations (the messages of a prompt, then the reply) by the number of their call, added in call order."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        # A call mostly continues the one before it.
        self._latest: list[Message] = []

    def add(self, messages: list[Message], reply: Message, base: int | None) -> None:
        """Add the next call's; it is stored as what differs from the conversation of the call `base`."""
        before = [] if base is None else self.conversation(base)
        shared = shared_messages(messages, before)
        self._entries.append(_Entry(base, shared, messages[shared:], reply))
        # Of the equal ones those that are kept anyway.
        self._latest = [*before[:shared], *messages[shared:], reply]

    def conversation(self, call: int) -> list[Message]:
        """The messages of a call's prompt and its reply. The list is not to be changed."""
        if call == len(self._entries) - 1:
            return self._latest
        lineage = []
        base: int | None = call
        while base is not None:
            lineage.append(self._entries[base])
            base = lineage[-1].base
        messages: list[Message] = []
        for entry in reversed(lineage):
            del messages[entry.shared :]
            messages += entry.own
            messages.append(entry.reply)
        return messages

    def length(self, call: int) -> int:
        """The number of messages of a conversation."""
        entry = self._entries[call]
        return entry.shared + len(entry.own) + 1
