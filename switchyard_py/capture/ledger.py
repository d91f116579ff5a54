"""The account of calls: every call that begins ends in exactly one state, whatever the disk, the agent or a task does.

Nothing is sent to an engine before `Ledger.begin` returned, and no tail goes to an agent before `OpenCall.commit` did.
A mark the store refuses is tried again until it is written; until then the call counts as open.
All states change in one thread, in the order in which they were asked for, so a cancelled waiter leaves none half done.

A store that does not keep up slows calls down instead of filling the memory: a call begins only when no other call
waits to be ended, so what waits is what calls already begun have to store, and that is never refused for being slow.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from switchyard_py.capture.account import Counters, Outcome, StoreUnavailable
from switchyard_py.capture.open_call import OpenCall
from switchyard_py.capture.upkeep import Upkeep
from switchyard_py.store import (
    CallIntent,
    Filesystem,
    Retention,
    Room,
    SessionClosed,
    Writer,
    free_room,
    store_fault,
)
from switchyard_py.worker import WorkThread

__all__ = ["Counters", "Ledger", "OpenCall", "Outcome", "SessionClosed", "StoreUnavailable"]

log = logging.getLogger(__name__)

BEGIN_SECONDS = 10.0
ROOM_SECONDS = 5.0
# Each call that waits to begin holds its request in memory.
MOST_BEGINNING = 4096
KEEP = Retention()


class Ledger:
    """One writer of a directory, with a thread of its own. Open it once per process."""

    def __init__(
        self,
        writer: Writer,
        *,
        retry_seconds: float = 1.0,
        begin_seconds: float = BEGIN_SECONDS,
        min_free_bytes: int | None = None,
        retention: Retention = KEEP,
    ) -> None:
        """See `open`."""
        self.writer = writer
        self.counters = Counters()
        self._retry_seconds = retry_seconds
        self._begin_seconds = begin_seconds
        self._min_free_bytes = min_free_bytes
        self._beginning = 0
        self._thread = WorkThread("ledger", beside=threading.main_thread().native_id)
        self._unwritten: dict[str, Callable[[], None]] = {}
        # Calls that have ended since the writer was last synced.
        self._unsynced: set[OpenCall] = set()
        self._looking: asyncio.Future[str | None] | None = None
        self._upkeep = Upkeep(self._thread, writer, retention)
        self.room: Room | None = None
        """What is free on the disk, as of some seconds ago; None until it is known."""
        self._thread.post(self._measure)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        durable: bool = False,
        retry_seconds: float = 1.0,
        begin_seconds: float = BEGIN_SECONDS,
        min_free_bytes: int | None = None,
        retention: Retention = KEEP,
        filesystem: Filesystem | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> Ledger:
        """Make the directory when it is missing and sign in as a writer. Raises OSError.

        `durable`: what `OpenCall.commit` has kept survives a power failure, not only the end of this process.
        `clock` gives nanoseconds since 1970; marks the store refuses are tried again every `retry_seconds`; a call
        waits `begin_seconds` for a slow store before it is refused. `min_free_bytes`: see `store_fault`.
        `retention` says which sessions are deleted when.
        """
        writer = Writer(directory, durable=durable, filesystem=filesystem, clock=clock)
        return cls(
            writer,
            retry_seconds=retry_seconds,
            begin_seconds=begin_seconds,
            min_free_bytes=min_free_bytes,
            retention=retention,
        )

    @property
    def unwritten(self) -> int:
        """Marks the store has refused so far and that are being tried again."""
        return len(self._unwritten)

    @property
    def abandoned(self) -> int:
        """Calls that dead writers left open in the directory, as far as it was looked through when this one began."""
        return self._upkeep.abandoned

    async def begin(self, intent: CallIntent) -> OpenCall:
        """Put the intent of a call on disk.

        Raises StoreUnavailable when that fails or takes longer than `begin_seconds`, and SessionClosed when the
        session is sealed, is being sealed or was deleted: nothing may be sent then.
        Raises ValueError for an intent that no store could keep (an empty session id, lone surrogates).
        """
        call = OpenCall(self, intent)
        self._beginning += 1
        try:
            if self._beginning > MOST_BEGINNING:
                raise StoreUnavailable(f"the store is too slow: {MOST_BEGINNING} calls wait for it already")
            begun = self._thread.submit_when_idle(call._begin)
            timer = asyncio.get_running_loop().call_later(self._begin_seconds, self._refuse_slow, call, begun)
            try:
                await begun
            finally:
                timer.cancel()
        except asyncio.CancelledError:
            call._give_up("cancelled before anything was sent")
            raise
        except StoreUnavailable:
            self.counters.refused += 1
            raise
        finally:
            self._beginning -= 1
        return call

    def _refuse_slow(self, call: OpenCall, begun: asyncio.Future[None]) -> None:
        if not begun.done():
            call._give_up("the store was too slow, so nothing was sent")
            reason = f"the store is too slow: it did not begin the call within {self._begin_seconds:g} s"
            begun.set_exception(StoreUnavailable(reason))

    async def fault(self, within: float) -> str | None:
        """Why the store is not to be relied on for more calls, None when it is; answers within so many seconds."""
        if self._looking is None or self._looking.done():
            # One look at a time: on a disk that hangs, each would stay.
            self._looking = asyncio.ensure_future(
                self._thread.run(store_fault, self.writer.root, self._min_free_bytes, self.writer.filesystem)
            )
        await asyncio.wait([self._looking], timeout=within)
        if not self._looking.done():
            return f"the capture directory did not take a file within {within:g} s"
        return self._looking.result()

    def mark_until_written(self, uuid: str, mark: Callable[[], None]) -> None:
        """Run `mark`, which puts the state of a call on disk, in the ledger's thread until it raises no OSError."""
        self._thread.post(self._write_until_written, uuid, mark)

    async def close(self, within: float = 5.0) -> bool:
        """Try pending marks once more, sign out and end the thread.

        False when the disk did not answer within that many seconds. Calls still open count as abandoned afterwards.
        """
        if self._looking is not None:
            self._looking.cancel()
        try:
            await asyncio.wait_for(self._thread.submit_when_idle(self._sign_out), within)
        except TimeoutError:
            within = 0.0  # the thread hangs in the disk; it ends with the process
        return self._thread.close(within)

    # What follows runs in the thread.

    def _measure(self) -> None:
        try:
            self.room = free_room(self.writer.root, self._min_free_bytes, self.writer.filesystem)
        except OSError as error:
            log.debug("the free space of the capture directory is not known: %s", error)
        if not self._upkeep.ended:
            self._thread.post_after(ROOM_SECONDS, self._measure)

    def _sign_out(self) -> None:
        self._upkeep.end()
        self._write_again()
        for uuid in self._unwritten:
            log.error("the state of call %s could not be written before the end", uuid)
        self.writer.close()

    def _write_until_written(self, uuid: str, mark: Callable[[], None]) -> None:
        try:
            mark()
        except OSError as error:
            log.error("the state of call %s cannot be written, trying again until it can: %s", uuid, error)
            first = not self._unwritten
            self._unwritten[uuid] = mark
            if first:
                self._thread.post_after(self._retry_seconds, self._retry)

    def _retry(self) -> None:
        try:
            self._write_again()
        finally:
            if self._unwritten:
                self._thread.post_after(self._retry_seconds, self._retry)

    def _write_again(self) -> None:
        for uuid, mark in list(self._unwritten.items()):
            try:
                mark()
            except OSError as error:
                log.debug("the state of call %s still cannot be written: %s", uuid, error)
            else:
                del self._unwritten[uuid]
