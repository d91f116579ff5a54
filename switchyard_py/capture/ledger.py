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
from switchyard_py.capture.upkeep import Upkeep
from switchyard_py.store import (
    CallIntent,
    Filesystem,
    Retention,
    Room,
    SessionClosed,
    State,
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


class OpenCall:
    """A call that has begun. It is ended by exactly one of `commit`, `undelivered`, `fail` and `abandon_to_failed`,
    except that `undelivered` may follow `commit`, and `deliver` and then `undelivered` may follow `undelivered`.
    Anything else raises RuntimeError."""

    def __init__(self, ledger: Ledger, intent: CallIntent) -> None:
        """Made by `Ledger.begin`."""
        self.intent = intent
        self.ended = False
        """Whether one of the ending methods was called; useful in a `finally`."""
        self._may_withdraw = True
        self._ledger = ledger
        self._given_up = False
        # These belong to the ledger's thread.
        self._state: State | None = None  # on disk
        self._failing = False
        self._unsyncable: OSError | None = None

    @property
    def uuid(self) -> str:
        """The name of the call: UUIDv7, sorts in call order within its session."""
        return self.intent.uuid

    @property
    def state(self) -> State | None:
        """The state on disk; None before the call began. Of use once the call has ended: until then it may change."""
        return self._state

    async def commit(self, record: bytes) -> Outcome:
        """Keep the record; the tail may go to the agent when this returns.

        Raises StoreUnavailable when not even the loss could be marked: the agent must get an error, and the ledger
        marks the call as failed as soon as it can.
        """
        self._end()
        ledger = self._ledger
        try:
            outcome = await ledger._thread.run(self._commit, record)
            if ledger.writer.durable:
                await ledger._thread.run(self._sync, record)
        except StoreUnavailable:
            self._may_withdraw = False
            raise
        return outcome

    async def undelivered(self, record: bytes) -> None:
        """A disconnect was seen before the tail went out, before or after the commit. Store trouble never raises."""
        if not self._may_withdraw:
            raise RuntimeError(f"call {self.uuid} has ended already")
        self.ended = True
        self._may_withdraw = False
        await self._ledger._thread.run(self._withdraw, record)
        if self._ledger.writer.durable:
            await self._ledger._thread.run(self._sync, record)

    async def deliver(self) -> bytes | None:
        """Commit a call that ended as undelivered, for a retry of its agent; on return its tail may go out.

        Returns the record, which `undelivered` may follow with, or None when there is none to be delivered. Raises
        StoreUnavailable when the store refuses, and SessionClosed when the session takes no more calls: the call is
        undelivered still, and in the first case this may be tried again.
        """
        record = await self._ledger._thread.run(self._deliver)
        if record is not None:
            if self._ledger.writer.durable:
                await self._ledger._thread.run(self._sync, record)
            self._may_withdraw = True
        return record

    async def fail(self, reason: str, seen: bytes | None) -> None:
        """The agent is told of an error or is gone. `seen`: what the engine sent so far, as a partial record.

        Store trouble never raises.
        """
        self._end()
        self._may_withdraw = False
        await self._ledger._thread.run(self._fail, reason, seen)

    def abandon_to_failed(self, reason: str, seen: bytes | None = None) -> None:
        """Like `fail` without waiting, for a task that is being cancelled."""
        self._end()
        self._may_withdraw = False
        self._ledger._thread.post(self._fail, reason, seen)

    def _give_up(self, reason: str) -> None:
        # The intent may be on disk by now, and nobody is left who could end the call.
        self._given_up = True
        self._ledger._thread.post(self._fail, reason, None)

    def _end(self) -> None:
        if self.ended:
            raise RuntimeError(f"call {self.uuid} has ended already")
        self.ended = True

    # What follows runs in the ledger's thread.

    def _begin(self) -> None:
        if self._given_up:
            return
        writer = self._ledger.writer
        try:
            self.intent = writer.begin(self.intent)
        except OSError as error:
            raise _cannot_begin(error) from error
        try:
            closing = writer.closing(self.intent)
        except OSError as error:
            self._retract()
            raise _cannot_begin(error) from error
        if closing is not None:
            self._retract()
            raise SessionClosed(deleted=closing.deleted)
        self._ledger.counters.begun += 1
        self._ledger.counters.open += 1
        self._state = State.OPEN

    def _retract(self) -> None:
        intent = self.intent
        self._ledger._write_until_written(self.uuid, lambda: self._ledger.writer.retract(intent))

    def _commit(self, record: bytes) -> Outcome:
        writer = self._ledger.writer
        try:
            writer.commit(self.intent, record)
        except OSError as refusal:
            reason = f"the store refused the record: {refusal.strerror or 'input/output error'}"
            log.error("the store refused the record of call %s: %s", self.uuid, refusal)
            try:
                writer.lose(self.intent)
            except OSError as error:
                self._fail(reason, record)
                raise StoreUnavailable(reason) from error
            self._enter(State.LOST)
            return Outcome.LOST
        self._enter(State.COMMITTED)
        return Outcome.COMMITTED

    def _sync(self, record: bytes) -> None:
        """Make the end of the call survive a power failure, in one go with all calls that have ended meanwhile."""
        ledger = self._ledger
        if self in ledger._unsynced:
            failures = ledger.writer.sync()
            for call in ledger._unsynced:
                call._unsyncable = failures.get(ledger.writer.directory(call.intent))
            ledger._unsynced.clear()
        if self._unsyncable is None:
            return
        reason = f"the store cannot flush the record: {self._unsyncable.strerror or 'input/output error'}"
        log.error("call %s may not survive a power failure: %s", self.uuid, reason)
        if self._state is State.COMMITTED:
            self._withdraw(record)
            raise StoreUnavailable(reason)
        if self._state is State.LOST:
            self._fail(reason, record)
            raise StoreUnavailable(reason)

    def _withdraw(self, record: bytes) -> None:
        if self._state is None or self._failing:
            return
        previous = self._state
        if previous is State.COMMITTED:
            self._ledger._write_until_written(self.uuid, lambda: self._store_undelivered(record, previous))
            return
        try:
            self._store_undelivered(record, previous)
        except OSError as refusal:
            # Nobody got the answer, so the call is failed and not lost.
            reason = f"undelivered, and the store refused the record: {refusal.strerror or 'input/output error'}"
            self._fail(reason, record)

    def _store_undelivered(self, record: bytes, previous: State) -> None:
        self._ledger.writer.withdraw(self.intent, record, previous)
        self._enter(State.UNDELIVERED)

    def _deliver(self) -> bytes | None:
        ledger = self._ledger
        if self.uuid in ledger._unwritten:
            raise StoreUnavailable("the store has not yet taken the mark that it is undelivered")
        if self._state is not State.UNDELIVERED:
            return None
        try:
            record = ledger.writer.deliver(self.intent)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.error("the store refuses to deliver the record of call %s: %s", self.uuid, error)
            reason = f"the store refuses to deliver the record: {error.strerror or 'input/output error'}"
            raise StoreUnavailable(reason) from error
        self._enter(State.COMMITTED)
        return record

    def _fail(self, reason: str, seen: bytes | None) -> None:
        if self._state is None:
            return  # it never began
        self._failing = True
        self._ledger._write_until_written(self.uuid, lambda: self._store_failed(reason, seen))

    def _store_failed(self, reason: str, seen: bytes | None) -> None:
        assert self._state is not None
        self._ledger.writer.fail(self.intent, reason, seen, self._state)
        self._enter(State.FAILED)

    def _enter(self, state: State) -> None:
        assert self._state is not None
        counters = self._ledger.counters
        for counted, step in ((self._state, -1), (state, 1)):
            name = counted.name.lower()
            setattr(counters, name, getattr(counters, name) + step)
        self._state = state
        if self._ledger.writer.durable and state is not State.FAILED:
            self._ledger._unsynced.add(self)


def _cannot_begin(error: OSError) -> StoreUnavailable:
    log.error("the store cannot begin a call: %s", error)
    return StoreUnavailable(f"the store cannot begin a call: {error.strerror or 'input/output error'}")
