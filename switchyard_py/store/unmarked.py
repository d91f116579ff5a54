"""Lost calls that the store has taken no mark of yet. Only this process knows of them, and its readers show them."""

from __future__ import annotations

import threading

from switchyard_py.store.intent import CallIntent


class UnmarkedLosses:
    """By session and uuid; usable from several threads. Whoever lists a session asks here before the directory is read:
    a call leaves here when its mark is on disk."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, dict[str, CallIntent]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, intent: CallIntent) -> None:
        """Remember a call, which has its uuid."""
        with self._lock:
            self._sessions.setdefault(intent.session_id, {})[intent.uuid] = intent
            self._count += 1

    def remove(self, intent: CallIntent) -> None:
        """The mark of a call is on disk."""
        with self._lock:
            calls = self._sessions[intent.session_id]
            del calls[intent.uuid]
            self._count -= 1
            if not calls:
                del self._sessions[intent.session_id]

    def of(self, session_id: str) -> list[CallIntent]:
        """The calls of a session."""
        with self._lock:
            return list(self._sessions.get(session_id, {}).values())

    def sessions(self) -> list[str]:
        """The sessions that have any."""
        with self._lock:
            return list(self._sessions)
