"""Calls that go to an engine although the store cannot begin them, where the operator prefers that to a refusal.

They count as lost from their begin on, whatever becomes of them, so that nobody takes their session for complete. Until
the store takes the mark this process shows them from memory; if it is killed before, nothing tells of them.
"""

from __future__ import annotations

from switchyard_py.capture.ledger import Ledger
from switchyard_py.store import CallIntent

# About a kilobyte each. When as many wait for the store, further calls are refused.
MOST_UNMARKED = 100_000


class Losses:
    """Accounts for such calls of one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def add(self, intent: CallIntent) -> str | None:
        """The uuid of a call that is lost from now on; None when there is no room for more of them."""
        writer = self._ledger.writer
        if len(writer.unmarked) >= MOST_UNMARKED:
            return None
        named = writer.name_unbegun(intent)

        def mark() -> None:
            writer.lose_unbegun(named)
            self._ledger.counters.begun += 1
            self._ledger.counters.lost += 1

        self._ledger.mark_until_written(named.uuid, mark)
        return named.uuid
