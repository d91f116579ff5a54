"""What the ledger counts, what became of a call, and how it says that the store refuses."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class StoreUnavailable(Exception):
    """The store can neither keep a call nor a mark of it; the agent must be told of an error. `str()` says why."""


class Outcome(enum.Enum):
    """What became of a call whose agent may now get its tail."""

    COMMITTED = "committed"
    LOST = "lost"
    """The store refused the record and keeps a mark in its place."""


@dataclass(slots=True)
class Counters:
    """Calls of this process. begun = open + committed + undelivered + lost + failed.

    `refused` counts the calls that `begin` raised StoreUnavailable for. Of those the store was too slow for, one may
    have begun after all and is then failed. A call that was sent without its begin counts once it is marked as lost.
    """

    begun: int = 0
    open: int = 0
    committed: int = 0
    undelivered: int = 0
    lost: int = 0
    failed: int = 0
    refused: int = 0
