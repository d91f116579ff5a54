"""Random interleavings of everything that can happen to calls and sessions, with the account checked after each step.

Two ledgers share one directory, one of them durable. A kill drops a ledger with its lock and whatever it had not
written yet, perhaps with an intent on disk whose session it had not looked at. A deletion can be broken off.
"""

import asyncio
import hashlib
import itertools
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import orjson
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from scale import scaled
from stored_calls import FaultyFilesystem, intent, record

from switchyard_py.capture.ledger import Ledger, OpenCall, Outcome, SessionClosed, StoreUnavailable
from switchyard_py.store import (
    CallIntent,
    Endings,
    Retention,
    Seal,
    SessionDeleted,
    SessionInUse,
    SessionReader,
    Sweep,
    UnknownSession,
)
from switchyard_py.store.names import State, parse_call_file, session_directory

SESSIONS = ("plain", "Ünreadable/1")
FATE_OF: dict[str, str] = {
    ".open": "abandoned",
    ".failed": "failed",
    ".lost": "lost",
    ".undelivered": "undelivered",
    ".json": "valid",
}
INCLUDES: dict[Literal["delivered", "all"], tuple[str, ...]] = {
    "delivered": ("valid", "invalid", "lost"),
    "all": ("valid", "invalid", "undelivered", "lost"),
}
FATES = ("valid", "invalid", "undelivered", "lost", "failed", "open", "abandoned")


@dataclass
class Modelled:
    """A call as it must look: its fate now, and the one it gets when the store heals. A seal fixes its fate."""

    intent: CallIntent
    owner: Ledger
    fate: str
    opened: OpenCall | None = None
    pending: str | None = None
    sealed: bool = False
    forgotten: bool = False

    @property
    def call(self) -> OpenCall:
        assert self.opened is not None
        return self.opened

    def become(self, fate: str, *, written: bool = True) -> None:
        if self.sealed:
            return
        if written:
            self.fate, self.pending = fate, None
        else:
            self.pending = fate


@dataclass
class ModelledSession:
    """A session as it must look; `strays` are intents on disk of calls that never began."""

    calls: list[Modelled] = field(default_factory=list)
    closed: bool = False
    seal: Seal | None = None
    deleted: bool = False
    strays: list[str] = field(default_factory=list)

    @property
    def refuses_as(self) -> str | None:
        return "deleted" if self.deleted else "closed" if self.closed else None

    @property
    def exists(self) -> bool:
        return not self.deleted and bool(self.calls or self.closed)


class Calls(RuleBasedStateMachine):
    running = Bundle("running")
    committed = Bundle("committed")
    missed = Bundle("missed")

    @initialize()
    def start(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.filesystem = FaultyFilesystem()
        self.trouble = "none"
        self.ahead = [0, 0]
        self.ledgers = [self.open(0), self.open(1)]
        self.sessions = {name: ModelledSession() for name in SESSIONS}
        self.buried: list[Modelled] = []
        self.reader = SessionReader(self.directory, self.ledgers[0].writer)
        self.endings = Endings(SessionReader(self.directory, None, filesystem=self.filesystem))

    def open(self, index: int) -> Ledger:
        return Ledger.open(
            self.directory,
            durable=index == 1,
            retry_seconds=3600,  # the machine says when
            filesystem=self.filesystem,
            clock=lambda: time.time_ns() + self.ahead[index],
        )

    def teardown(self) -> None:
        if hasattr(self, "ledgers"):
            self.filesystem.heal()
            for ledger in self.ledgers:
                assert self.runner.run(ledger.close())
            self.runner.close()
            shutil.rmtree(self.directory)

    # What can happen

    @rule(target=running, session=st.sampled_from(SESSIONS), index=st.integers(0, 1))
    def begin(self, session: str, index: int) -> object:
        ledger = self.ledgers[index]
        refused_as = None
        try:
            call = self.runner.run(ledger.begin(intent(session)))
        except StoreUnavailable:
            assert self.trouble != "none"
            return multiple()
        except SessionClosed as refusal:
            refused_as = "deleted" if refusal.deleted else "closed"
        assert refused_as == self.sessions[session].refuses_as
        if refused_as:
            return multiple()
        assert self.trouble == "none"
        modelled = Modelled(call.intent, ledger, "open", call)
        self.sessions[session].calls.append(modelled)
        return modelled

    @rule(target=committed, modelled=consumes(running), is_valid=st.booleans())
    def commit(self, modelled: Modelled, is_valid: bool) -> object:
        if modelled.fate == "abandoned":
            return multiple()
        try:
            outcome = self.runner.run(modelled.call.commit(record(modelled.call.intent, is_valid=is_valid)))
        except StoreUnavailable:
            assert self.trouble in ("read-only", "no renames")
            modelled.become("failed", written=False)
            return multiple()
        if self.trouble == "full":
            assert outcome is Outcome.LOST
            modelled.become("lost")
        else:
            assert (outcome, self.trouble) == (Outcome.COMMITTED, "none")
            modelled.become("valid" if is_valid else "invalid")
        return modelled

    @rule(target=missed, modelled=consumes(running))
    def withdraw_before_the_commit(self, modelled: Modelled) -> Modelled:
        if modelled.fate != "abandoned":
            self.runner.run(modelled.call.undelivered(record(modelled.call.intent)))
            modelled.become(
                "undelivered" if self.trouble == "none" else "failed", written=self.trouble in ("none", "full")
            )
        return modelled

    @rule(target=missed, modelled=consumes(committed))
    def withdraw_after_the_commit(self, modelled: Modelled) -> Modelled:
        if modelled.owner in self.ledgers and not modelled.forgotten:
            self.runner.run(modelled.call.undelivered(record(modelled.call.intent)))
            unstorable = modelled.fate == "lost" and self.trouble != "none"
            modelled.become("failed" if unstorable else "undelivered", written=self.trouble in ("none", "full"))
        return modelled

    @rule(modelled=missed, leaves=st.booleans())
    def deliver_to_a_retry(self, modelled: Modelled, leaves: bool) -> None:
        if modelled.owner not in self.ledgers or modelled.forgotten:
            return
        session = self.sessions[modelled.intent.session_id]
        closed = session.closed
        missed = modelled.fate == "undelivered"
        try:
            delivered = self.runner.run(modelled.call.deliver())
        except StoreUnavailable:
            # What is deleted cannot be renamed, so that the mark needs space.
            homeless = session.deleted and self.trouble == "full"
            refused = missed and self.trouble in ("read-only", "no renames")
            assert modelled.pending or modelled.sealed or homeless or refused
            return
        except SessionClosed:
            assert closed
            return
        assert modelled.pending is None
        assert (delivered is not None) == (missed and not closed)
        if delivered is not None:
            is_valid = b'"is_valid":true' in delivered
            modelled.become("valid" if is_valid else "invalid")
            if leaves:
                self.runner.run(modelled.call.undelivered(delivered))
                modelled.become("undelivered", written=self.trouble == "none" or self.trouble == "full")

    @rule(modelled=consumes(running), waits=st.booleans())
    def fail(self, modelled: Modelled, waits: bool) -> None:
        if modelled.fate != "abandoned":
            if waits:
                self.runner.run(modelled.call.fail("why", b'{"seen":1}'))
            else:

                async def abandon() -> None:
                    modelled.call.abandon_to_failed("why")
                    await modelled.owner._thread.run(lambda: None)

                self.runner.run(abandon())
            modelled.become("failed", written=self.trouble in ("none", "full"))

    @rule(trouble=st.sampled_from(["full", "read-only", "no renames"]))
    def break_down(self, trouble: str) -> None:
        self.trouble = trouble
        {
            "full": self.filesystem.fill,
            "read-only": self.filesystem.freeze,
            "no renames": self.filesystem.refuse_renames,
        }[trouble]()

    @rule()
    def heal(self) -> None:
        self.filesystem.heal()
        self.trouble = "none"
        for ledger in self.ledgers:
            self.runner.run(ledger._thread.run(ledger._write_again))
            assert ledger.unwritten == 0
        for modelled in self.all():
            if modelled.pending:
                modelled.become(modelled.pending)

    @rule(index=st.integers(0, 1), beginning=st.none() | st.sampled_from(SESSIONS))
    def kill_and_restart(self, index: int, beginning: str | None) -> None:
        """Perhaps when a call has its intent on disk and has not looked whether its session is closed."""
        killed = self.ledgers[index]
        self.runner.run(killed._thread.run(killed._upkeep.end))
        killed._thread.close(5)
        if beginning is not None and self.trouble == "none":
            session = self.sessions[beginning]
            left = killed.writer.begin(intent(beginning))
            if session.seal or session.deleted:
                session.strays.append(left.uuid)
            else:
                session.calls.append(Modelled(left, killed, "abandoned"))
        os.close(killed.writer._lock._descriptor)
        for modelled in self.all():
            if modelled.owner is killed:
                modelled.pending = None
                if modelled.fate == "open":
                    modelled.fate = "abandoned"
        self.ledgers[index] = self.open(index)
        self.reader = SessionReader(self.directory, self.ledgers[0].writer)

    @rule(name=st.sampled_from(SESSIONS))
    def close(self, name: str) -> None:
        """The first half of sealing a session."""
        session = self.sessions[name]
        try:
            assert self.endings.close(name) == session.seal
        except SessionDeleted:
            assert session.deleted
        except OSError:
            assert self.trouble != "none"
        else:
            assert session.closed or self.trouble == "none"
            session.closed = True

    @rule(name=st.sampled_from(SESSIONS))
    def seal(self, name: str) -> None:
        self.close(name)
        session = self.sessions[name]
        if not session.closed or session.deleted:
            return
        seal, found_open = None, 0
        try:
            seal = self.endings.seal(name)
        except SessionInUse as refusal:
            found_open = refusal.open_calls
        except OSError:
            assert self.trouble != "none"
            return
        assert found_open == sum(call.fate == "open" for call in session.calls)
        if seal:
            assert session.seal in (None, seal)
            session.seal = seal
            for call in session.calls:
                call.sealed = True

    @rule(name=st.sampled_from(SESSIONS), removed=st.none() | st.integers(0, 3))
    def delete(self, name: str, removed: int | None) -> None:
        """And remove so many files, or all of them."""
        session = self.sessions[name]
        try:
            self.endings.bury(name)
        except SessionInUse:
            assert any(call.fate == "open" for call in session.calls)
        except SessionDeleted:
            assert session.deleted
        except UnknownSession:
            assert not session.exists
        except OSError:
            assert self.trouble != "none"
        else:
            assert all(call.fate != "open" for call in session.calls)
            for _ in itertools.islice(self.endings.remove(name), removed):
                pass
            self.buried += session.calls
            self.sessions[name] = ModelledSession(closed=True, deleted=True)

    @rule(name=st.sampled_from(SESSIONS))
    def forget(self, name: str) -> None:
        """A tombstone goes after a week, when no writer can have anything left to write."""
        if self.sessions[name].deleted and self.trouble == "none":
            mark = self.directory / "closed" / session_directory(name)
            os.utime(mark, (0, 0))
            for _ in range(50):  # the ledgers sweep too, and one at a time removes a mark
                sweep = Sweep(self.endings, Retention())
                while sweep.go_on():
                    pass
                if not mark.exists():
                    break
            assert not mark.exists()
            self.sessions[name] = ModelledSession()
            for call in self.buried:
                call.forgotten = True

    @rule(index=st.integers(0, 1), seconds=st.integers(-3600, 3600))
    def step_the_clock(self, index: int, seconds: int) -> None:
        self.ahead[index] = seconds * 1_000_000_000

    # What must be true after each step

    def all(self) -> list[Modelled]:
        return [modelled for session in self.sessions.values() for modelled in session.calls]

    def existing(self) -> list[tuple[str, ModelledSession]]:
        return [(name, session) for name, session in getattr(self, "sessions", {}).items() if session.exists]

    @invariant()
    def the_account_balances(self) -> None:
        for name, session in self.existing():
            expected = {"begun": len(session.calls)} | {
                fate: sum(call.fate == fate for call in session.calls) for fate in FATES
            }
            for reader in (self.reader, SessionReader(self.directory, None)):
                page = reader.completions(name)
                assert page is not None
                assert page.accounting() == expected
                assert page.sealed == (session.seal is not None)
                if session.calls:
                    summary = reader.summary(name)
                    assert summary is not None
                    assert (summary.accounting, summary.faults) == (expected, 0)
            if session.seal:
                assert session.seal.accounting == expected
                assert [(uuid, FATE_OF[suffix]) for uuid, suffix in session.seal.calls.items()] == [
                    (call.intent.uuid, call.fate.replace("invalid", "valid")) for call in session.calls
                ]

    @invariant()
    def each_call_is_in_one_state_and_in_call_order(self) -> None:
        for name, session in self.existing():
            found: dict[str, State] = {}
            directory = self.directory / "sessions" / session_directory(name)
            for file in os.listdir(directory) if directory.exists() else ():
                if parsed := parse_call_file(file):
                    uuid, state = parsed
                    assert uuid not in found  # no leftovers without a crash between two system calls
                    found[uuid] = state
            assert sorted(found) == sorted([call.intent.uuid for call in session.calls] + session.strays)
            uuids = [call.intent.uuid for call in session.calls]
            assert uuids == sorted(uuids)

    @invariant()
    def records_are_served_in_call_order_and_lost_ones_mask(self) -> None:
        for name, session in self.existing():
            for include in INCLUDES:
                page = self.reader.completions(name, include)
                served = [
                    (found["uuid"], found["session_id"], found["is_valid"]) for found in map(orjson.loads, page or ())
                ]
                assert served == [
                    (call.intent.uuid, name, call.fate in ("valid", "undelivered") and self.is_valid(call))
                    for call in session.calls
                    if call.fate in INCLUDES[include]
                ]

    @invariant()
    def a_sealed_session_serves_what_its_digest_says(self) -> None:
        for name, session in self.existing():
            if session.seal:
                digest = hashlib.sha256()
                records = list(self.reader.completions(name) or ())
                for data in records:
                    digest.update(len(data).to_bytes(8, "big") + data)
                assert (len(records), digest.hexdigest()) == (session.seal.records, session.seal.digest)

    @invariant()
    def nothing_of_a_deleted_session_is_readable(self) -> None:
        listed = {summary.session_id for summary in self.reader.sessions()} if hasattr(self, "reader") else set()
        assert listed == {name for name, session in self.existing() if session.calls}
        for name, session in getattr(self, "sessions", {}).items():
            assert self.reader.deleted(name) == session.deleted
            if session.deleted:
                assert self.reader.completions(name) is None
                assert self.reader.summary(name) is None
                assert self.reader.open_calls(name) == 0

    def is_valid(self, modelled: Modelled) -> bool:
        path = self.directory / "sessions" / session_directory(modelled.intent.session_id) / modelled.intent.uuid
        # A seal keeps the fate of a call that was withdrawn later.
        suffixes = (".json", ".undelivered") if modelled.fate == "valid" else (".undelivered",)
        (file,) = (file for file in map(path.with_name, (path.name + suffix for suffix in suffixes)) if file.exists())
        return b'"is_valid":true' in file.read_bytes()

    @invariant()
    def the_counters_agree(self) -> None:
        for ledger in getattr(self, "ledgers", ()):
            counters = ledger.counters
            assert counters.begun == (
                counters.open + counters.committed + counters.undelivered + counters.lost + counters.failed
            )
            assert counters.open == sum(call.fate == "open" for call in self.all() if call.owner is ledger)


TestCalls = Calls.TestCase
TestCalls.settings = settings(
    max_examples=scaled(500, 40), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
