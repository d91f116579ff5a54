"""Random interleavings of everything that can happen to calls, with the account checked after each step.

Two ledgers share one directory, one of them durable. A kill drops a ledger with its lock and whatever it had not
written yet.
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import orjson
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from stored_calls import FaultyFilesystem, intent, record

from switchyard_py.capture.ledger import Ledger, OpenCall, Outcome, StoreUnavailable
from switchyard_py.store import SessionReader
from switchyard_py.store.names import State, parse_call_file, session_directory

SESSIONS = ("plain", "Ünreadable/1")
FATES = ("valid", "invalid", "undelivered", "lost", "failed", "open", "abandoned")


@dataclass
class Modelled:
    """A call as it must look: its fate now, and the one it gets when the store heals."""

    call: OpenCall
    owner: Ledger
    fate: str
    pending: str | None = None

    def become(self, fate: str, *, written: bool = True) -> None:
        if written:
            self.fate, self.pending = fate, None
        else:
            self.pending = fate


class Calls(RuleBasedStateMachine):
    running = Bundle("running")
    committed = Bundle("committed")

    @initialize()
    def start(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.filesystem = FaultyFilesystem()
        self.trouble = "none"
        self.ahead = [0, 0]
        self.ledgers = [self.open(0), self.open(1)]
        self.begun: dict[str, list[Modelled]] = {session: [] for session in SESSIONS}
        self.reader = SessionReader(self.directory, self.ledgers[0].writer)

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
        try:
            call = self.runner.run(ledger.begin(intent(session)))
        except StoreUnavailable:
            assert self.trouble != "none"
            return multiple()
        assert self.trouble == "none"
        modelled = Modelled(call, ledger, "open")
        self.begun[session].append(modelled)
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

    @rule(modelled=consumes(running))
    def withdraw_before_the_commit(self, modelled: Modelled) -> None:
        if modelled.fate != "abandoned":
            self.runner.run(modelled.call.undelivered(record(modelled.call.intent)))
            modelled.become(
                "undelivered" if self.trouble == "none" else "failed", written=self.trouble in ("none", "full")
            )

    @rule(modelled=consumes(committed))
    def withdraw_after_the_commit(self, modelled: Modelled) -> None:
        if modelled.owner in self.ledgers:
            self.runner.run(modelled.call.undelivered(record(modelled.call.intent)))
            unstorable = modelled.fate == "lost" and self.trouble != "none"
            modelled.become("failed" if unstorable else "undelivered", written=self.trouble in ("none", "full"))

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

    @rule(index=st.integers(0, 1))
    def kill_and_restart(self, index: int) -> None:
        killed = self.ledgers[index]
        killed._thread.close(5)
        os.close(killed.writer._lock._descriptor)
        for modelled in self.all():
            if modelled.owner is killed:
                modelled.pending = None
                if modelled.fate == "open":
                    modelled.fate = "abandoned"
        self.ledgers[index] = self.open(index)
        self.reader = SessionReader(self.directory, self.ledgers[0].writer)

    @rule(index=st.integers(0, 1), seconds=st.integers(-3600, 3600))
    def step_the_clock(self, index: int, seconds: int) -> None:
        self.ahead[index] = seconds * 1_000_000_000

    # What must be true after each step

    def all(self) -> list[Modelled]:
        return [modelled for calls in self.begun.values() for modelled in calls]

    @invariant()
    def the_account_balances(self) -> None:
        for session, calls in getattr(self, "begun", {}).items():
            if not calls:
                continue
            expected = Counter(modelled.fate for modelled in calls)
            for reader in (self.reader, SessionReader(self.directory, None)):
                summary = reader.summary(session)
                assert summary is not None
                assert summary.accounting == {"begun": len(calls)} | {fate: expected[fate] for fate in FATES}
                assert summary.faults == 0

    @invariant()
    def each_call_is_in_one_state_and_in_call_order(self) -> None:
        for session, calls in getattr(self, "begun", {}).items():
            if not calls:
                continue
            found: dict[str, State] = {}
            for name in os.listdir(self.directory / "sessions" / session_directory(session)):
                if parsed := parse_call_file(name):
                    uuid, state = parsed
                    assert uuid not in found  # no leftovers without a crash between two system calls
                    found[uuid] = state
            assert sorted(found) == [modelled.call.uuid for modelled in calls]

    @invariant()
    def records_are_served_in_call_order_and_lost_ones_mask(self) -> None:
        for session, calls in getattr(self, "begun", {}).items():
            page = self.reader.completions(session, include="all")
            served = [(found["uuid"], found["is_valid"]) for found in map(orjson.loads, page or ())]
            assert served == [
                (modelled.call.uuid, modelled.fate in ("valid", "undelivered") and self.is_valid(modelled))
                for modelled in calls
                if modelled.fate in ("valid", "invalid", "undelivered", "lost")
            ]

    def is_valid(self, modelled: Modelled) -> bool:
        path = self.directory / "sessions" / session_directory(modelled.call.intent.session_id) / modelled.call.uuid
        suffix = ".json" if modelled.fate == "valid" else ".undelivered"
        return b'"is_valid":true' in path.with_name(path.name + suffix).read_bytes()

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
    max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
