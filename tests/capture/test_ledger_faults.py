"""Every kind of store error at every step: what is on disk, what the caller is told, and what is left to heal."""

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from stored_calls import FaultyFilesystem, account, intent, record, states, until_written

from switchyard_py.capture.ledger import Counters, Ledger, OpenCall, Outcome, StoreUnavailable
from switchyard_py.store import SessionReader

CHANGES = ("make_directory", "create", "rename", "unlink")


@dataclass(frozen=True)
class Fault:
    """System calls that fail, and what the store can still do: keep records, change a state, make an intent."""

    errors: dict[str, int]
    keeps: bool = False
    marks: bool = False
    begins: bool = False

    @property
    def reason(self) -> str:
        return os.strerror(next(iter(self.errors.values())))


FAULTS = {
    "no space": Fault({"write": errno.ENOSPC}, marks=True),
    "quota": Fault({"write": errno.EDQUOT}, marks=True),
    "read-only": Fault(dict.fromkeys(CHANGES, errno.EROFS)),
    "permission": Fault(dict.fromkeys(CHANGES, errno.EACCES)),
    "too many open files": Fault(dict.fromkeys(("create", "names", "read", "sync"), errno.EMFILE), marks=True),
    "input/output error": Fault(dict.fromkeys(("write", "rename", "sync"), errno.EIO)),
}
VANISHED = Fault({}, keeps=True, marks=True, begins=True)
NO_FLUSH = Fault({"sync": errno.EIO}, marks=True, begins=True)
BOTH = {**FAULTS, "vanished directory": VANISHED}
CASES = {(name, durability): fault for name, fault in BOTH.items() for durability in ("process", "power")}
CASES["no flush", "power"] = NO_FLUSH


@pytest.fixture(params=CASES, ids=", ".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    name: tuple[str, str] = request.param
    return name


@pytest.fixture
def fault(case: tuple[str, str]) -> Fault:
    return CASES[case]


@pytest.fixture
def durable(case: tuple[str, str]) -> bool:
    return case[1] == "power"


@pytest.fixture
def filesystem() -> FaultyFilesystem:
    return FaultyFilesystem()


@pytest.fixture
async def ledger(tmp_path: Path, filesystem: FaultyFilesystem, durable: bool) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(tmp_path, durable=durable, retry_seconds=0.01, filesystem=filesystem)
    yield ledger
    filesystem.heal()
    assert await ledger.close()


@pytest.fixture
def strike(fault: Fault, filesystem: FaultyFilesystem, tmp_path: Path) -> Callable[[], None]:
    def strike() -> None:
        filesystem.errors = dict(fault.errors)
        if fault is VANISHED:
            shutil.rmtree(tmp_path / "sessions")

    return strike


def of(call: OpenCall) -> bytes:
    return record(call.intent)


async def check(ledger: Ledger, filesystem: FaultyFilesystem, during: str, after: str) -> None:
    """The one call of the session is in state `during`, and in `after` once the store has healed."""
    directory = Path(ledger.writer.root)
    assert states(directory) == [during]
    assert ledger.unwritten == (during != after)
    for state in (during, after):
        names = {".json": "committed", ".open": "open"}
        assert ledger.counters == Counters(begun=1, **{names.get(state, state[1:]): 1})
        summary = SessionReader(directory, ledger.writer).summary("s")
        assert summary is not None
        assert summary.accounting == account(**{"valid" if state == ".json" else state[1:]: 1})
        filesystem.heal()
        await until_written(ledger)
    assert states(directory) == [after]


async def test_begin(
    ledger: Ledger, strike: Callable[[], None], fault: Fault, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    await (await ledger.begin(intent())).commit(of(await ledger.begin(intent())))
    assert ledger.counters.open == 1
    strike()
    if fault.begins:
        await ledger.begin(intent())
        return
    with pytest.raises(StoreUnavailable, match=f"cannot begin a call: {fault.reason}"):
        await ledger.begin(intent())
    assert (ledger.counters.refused, ledger.counters.open) == (1, 1)
    assert states(tmp_path) == [".json", ".open"]
    filesystem.heal()
    await ledger.begin(intent())
    assert states(tmp_path) == [".json", ".open", ".open"]


async def test_commit(
    ledger: Ledger, strike: Callable[[], None], fault: Fault, filesystem: FaultyFilesystem, durable: bool
) -> None:
    call = await ledger.begin(intent())
    strike()
    # A mark that cannot be flushed is none that an answer could be given for.
    if fault.marks and not (durable and "sync" in fault.errors):
        assert await call.commit(of(call)) is (Outcome.COMMITTED if fault.keeps else Outcome.LOST)
        state = ".json" if fault.keeps else ".lost"
        await check(ledger, filesystem, state, state)
        return
    with pytest.raises(StoreUnavailable, match=fault.reason):
        await call.commit(of(call))
    await check(ledger, filesystem, ".failed" if fault.marks else ".open", ".failed")


ENDINGS: dict[str, Callable[[OpenCall], Awaitable[object]]] = {
    "fail": lambda call: call.fail("why", b"{}"),
    "abandon": lambda call: asyncio.to_thread(call.abandon_to_failed, "why"),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_failure(
    ledger: Ledger, strike: Callable[[], None], fault: Fault, filesystem: FaultyFilesystem, ending: str
) -> None:
    call = await ledger.begin(intent())
    strike()
    await ENDINGS[ending](call)
    await ledger._thread.run(lambda: None)
    await check(ledger, filesystem, ".failed" if fault.marks else ".open", ".failed")


async def test_a_withdrawal_before_the_commit(
    ledger: Ledger, strike: Callable[[], None], fault: Fault, filesystem: FaultyFilesystem
) -> None:
    call = await ledger.begin(intent())
    strike()
    await call.undelivered(of(call))
    after = ".undelivered" if fault.keeps else ".failed"
    await check(ledger, filesystem, after if fault.marks else ".open", after)


async def test_a_withdrawal_after_the_commit(
    ledger: Ledger, strike: Callable[[], None], fault: Fault, filesystem: FaultyFilesystem
) -> None:
    call = await ledger.begin(intent())
    await call.commit(of(call))
    strike()
    await call.undelivered(of(call))
    await check(ledger, filesystem, ".undelivered" if fault.marks else ".json", ".undelivered")
