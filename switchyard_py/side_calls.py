"""A guess at which calls of a session are an agent's own turns and which are beside them: titles, summaries, memory.

Seen of nine harnesses: what is beside the turns has no tools, while the turns have; Codex and Claude Code also say it
in a header. Claude Code's `/compact` and qwen-code's memory calls cannot be told from turns. The guess is written into
the record and used for nothing else.
"""

from collections.abc import Mapping
from typing import Literal

import orjson

Kind = Literal["main", "side"]

AUXILIARY_HEADER = "x-claude-code-auxiliary-type"
TURN_HEADER = "x-codex-turn-metadata"
# Sent by harnesses whose turns always have tools, also with the title call that opens a session of OpenCode.
_HARNESS_HEADERS = (
    "x-session-affinity", "x-litellm-session-id", "x-claude-code-session-id", "x-opencode-session", TURN_HEADER,
)  # fmt: skip

_SESSIONS_KEPT = 50_000


class SideCalls:
    """Remembers which sessions have had tools, in this process and for the latest sessions."""

    def __init__(self) -> None:
        self._with_tools: dict[str, None] = {}

    def guess(self, session_id: str, headers: Mapping[str, str], *, has_tools: bool) -> Kind:
        """What the call is; ask once it has ended, when a turn that ran beside it has been seen as well."""
        if has_tools:
            self.saw_tools(session_id)
        if headers.get(AUXILIARY_HEADER) or _compacts(headers):
            return "side"
        agentic = session_id in self._with_tools or any(headers.get(name) for name in _HARNESS_HEADERS)
        return "side" if agentic and not has_tools else "main"

    def saw_tools(self, session_id: str) -> None:
        """A call of the session has tools."""
        self._with_tools.pop(session_id, None)
        self._with_tools[session_id] = None
        if len(self._with_tools) > _SESSIONS_KEPT:
            del self._with_tools[next(iter(self._with_tools))]


def _compacts(headers: Mapping[str, str]) -> bool:
    """Whether Codex's turn metadata, a JSON text, says that the call summarises the history."""
    try:
        metadata = orjson.loads(headers.get(TURN_HEADER, "{}"))
    except orjson.JSONDecodeError:
        return False
    return isinstance(metadata, dict) and metadata.get("request_kind") == "compaction"
