"""One call in the ledger: from its intent on disk to the one state it ends in.

The methods an event loop awaits come first; what they have done happens in the ledger's thread.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from switchyard_py.capture.account import Outcome, StoreUnavailable
from switchyard_py.store import CallIntent, SessionClosed, State

if TYPE_CHECKING:
    from switchyard_py.capture.ledger import Ledger

log = logging.getLogger(__name__)


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
            self._refuse_if_closed()
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

    def _refuse_if_closed(self) -> None:
        """A session that takes no more calls takes none either that would go out without a record."""
        with contextlib.suppress(OSError):
            closing = self._ledger.writer.closing(self.intent)
            if closing is not None:
                raise SessionClosed(deleted=closing.deleted)

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
