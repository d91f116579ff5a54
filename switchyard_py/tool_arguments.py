"""The arguments of tool calls as the engine generated them, so that a history sent back is the history it had.

Agents of the translated dialects hold arguments as values; written anew, `{"a": 1}` becomes `{"a":1}` and the next
prompt no longer begins with the tokens that were sampled. What this process has generated is in memory; the rest, of
other processes or from before a restart, is read from the session's records when it is missed.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from switchyard_py.capture.call import Generation
from switchyard_py.dialects.arguments import value_hash
from switchyard_py.rawjson import decode
from switchyard_py.store import SessionReader

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024 * 1024
# Names of calls that are in memory already; some 140 bytes each.
MOST_CALLS = 100_000

_Key = tuple[str, str, int]
"""Session, tool-call id, and the hash of the value of the arguments: engines give an id more than once."""


class GeneratedArguments:
    """Argument strings by session, tool-call id and value; the oldest are forgotten beyond `max_bytes`. Thread-safe.

    The names of `most_calls` calls are kept, so that their records are not read; those of other sessions go first.
    """

    def __init__(
        self, reader: SessionReader | None, max_bytes: int = MAX_BYTES, *, most_calls: int = MOST_CALLS
    ) -> None:
        self._reader = reader
        self._max_bytes = max_bytes
        self._most_calls = most_calls
        self._bytes = 0
        self._calls = 0
        self._strings: OrderedDict[_Key, str] = OrderedDict()
        self._read: OrderedDict[str, set[str]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, session_id: str, uuid: str, generation: Generation) -> None:
        """Remember what one call has generated."""
        calls = [call for choice in generation.choices for call in _calls(decode(choice.message.get("tool_calls")))]
        with self._lock:
            self._keep(session_id, uuid, calls)

    def of(self, session_id: str | None) -> "SessionArguments":
        """The arguments of one session, for the translation of one request; none without a session."""
        return SessionArguments(self, session_id)

    def get(self, session_id: str, tool_call_id: str, given: str) -> str | None:
        """The string generated for a tool call with the value of `given`, None where it is not in memory."""
        key = session_id, tool_call_id, value_hash(given)
        with self._lock:
            return self._strings.get(key)

    def load(self, session_id: str) -> None:
        """Read the records of the session that have not been read yet. Blocks.

        What a store in trouble does not tell is not known, no more: whether calls may begin is not for here to say.
        """
        try:
            self._load(session_id)
        except OSError as error:
            log.warning("the tool calls of session %r cannot be read from its records: %s", session_id, error)

    def _load(self, session_id: str) -> None:
        if self._reader is None:
            return
        with self._lock:
            known = set(self._read.get(session_id, ()))
        for uuid, record in self._reader.other_records(session_id, known):
            calls = list(_calls(_last_message(record).get("tool_calls")))
            with self._lock:
                self._keep(session_id, uuid, calls)

    def _keep(self, session_id: str, uuid: str, calls: list[tuple[str, str]]) -> None:
        self._note(session_id, uuid)
        for tool_call_id, arguments in calls:
            key = session_id, tool_call_id, value_hash(arguments)
            self._forget(key)
            self._strings[key] = arguments
            self._bytes += _cost(key, arguments)
        while self._bytes > self._max_bytes:
            oldest = next(iter(self._strings))
            self._forget(oldest)
            # To be found again when it is missed.
            self._calls -= len(self._read.pop(oldest[0], ()))

    def _note(self, session_id: str, uuid: str) -> None:
        """What a call generated need not be read from its record."""
        noted = self._read.setdefault(session_id, set())
        self._read.move_to_end(session_id)
        self._calls += uuid not in noted
        noted.add(uuid)
        while self._calls > self._most_calls:
            _, forgotten = self._read.popitem(last=False)
            self._calls -= len(forgotten)

    def _forget(self, key: _Key) -> None:
        arguments = self._strings.pop(key, None)
        if arguments is not None:
            self._bytes -= _cost(key, arguments)


class SessionArguments:
    """Looks up the generated arguments of one session; `missed` tells whether a look was in vain."""

    def __init__(self, generated: GeneratedArguments, session_id: str | None) -> None:
        self.missed = False
        self._generated = generated
        self._session_id = session_id

    def get(self, tool_call_id: str, given: str, /) -> str | None:
        """The string the engine generated for the tool call with the value of `given`, None where it is not known."""
        if self._session_id is None:
            return None
        arguments = self._generated.get(self._session_id, tool_call_id, given)
        self.missed |= arguments is None
        return arguments

    def load(self) -> None:
        """Read what the session's records tell; look again afterwards. Blocks."""
        self.missed = False
        if self._session_id is not None:
            self._generated.load(self._session_id)


def _last_message(record: dict[str, Any]) -> dict[str, Any]:
    """The assistant's; nothing in a record of another program that has none."""
    messages = record.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return last if isinstance(last, dict) else {}


def _calls(tool_calls: Any) -> Iterator[tuple[str, str]]:
    """Id and arguments of each tool call of an assistant message."""
    for call in tool_calls if isinstance(tool_calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, str) and isinstance(call.get("id"), str):
            yield call["id"], arguments


def _cost(key: _Key, arguments: str) -> int:
    # Rough: Python keeps a character in one to four bytes, and an entry in some hundred.
    return len(key[0]) + len(key[1]) + len(arguments) + 200
