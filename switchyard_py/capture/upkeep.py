"""What a ledger's thread does for the directory when it has nothing else to do: leftovers and old sessions go."""

from __future__ import annotations

from collections.abc import Callable

from switchyard_py.store import Endings, Retention, SessionReader, Sweep, Writer
from switchyard_py.worker import WorkThread


class Upkeep:
    """Begins at once and goes on in short steps until `end`. After the start all of it runs in the thread."""

    def __init__(self, thread: WorkThread, writer: Writer, retention: Retention) -> None:
        self._thread = thread
        self._retention = retention
        self._endings = Endings(SessionReader(writer.root, writer, filesystem=writer.filesystem))
        self.ended = False
        self._leftovers = writer.leftovers()
        if self._leftovers is not None:
            thread.post_when_idle(self._step, self._leftovers.clear)
        thread.post_when_idle(self._sweep)

    @property
    def abandoned(self) -> int:
        """Calls of writers that were dead at the start, as far as they have been looked through."""
        return 0 if self._leftovers is None else self._leftovers.abandoned

    def end(self) -> None:
        """Do no more. In the thread."""
        self.ended = True

    def _sweep(self) -> None:
        if not self.ended:
            self._step(Sweep(self._endings, self._retention).go_on)
            self._thread.post_after(self._retention.interval, self._sweep)

    def _step(self, go_on: Callable[[], bool]) -> None:
        if not self.ended and go_on():
            self._thread.post_when_idle(self._step, go_on)
