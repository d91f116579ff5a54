"""Calls of sessions that take no more: they never begin, whatever the store does meanwhile."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stored_calls import FaultyFilesystem, account, intent, names, page, record, until_written

from switchyard_py.capture.ledger import Counters, Ledger, SessionClosed, StoreUnavailable
from switchyard_py.store import Endings, Retention, SessionInUse, SessionReader


class Disk(FaultyFilesystem):
    """Of which looks at marks and removals of intents fail too."""

    def exists(self, path: str) -> bool:
        self._maybe_fail("exists")
        return super().exists(path)

    def refuse(self, what: str) -> None:
        self.errors = {what: errno.EIO}


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def ledger(tmp_path: Path, disk: Disk) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(tmp_path, retry_seconds=0.01, filesystem=disk)
    yield ledger
    disk.heal()
    assert await ledger.close()


@pytest.fixture
def endings(tmp_path: Path, ledger: Ledger) -> Endings:
    return Endings(SessionReader(tmp_path, ledger.writer))


async def committed(ledger: Ledger) -> None:
    call = await ledger.begin(intent())
    await call.commit(record(call.intent))


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_late_call_leaves_no_trace(ledger: Ledger, endings: Endings, tmp_path: Path, deleted: bool) -> None:
    await committed(ledger)
    endings.close("s")
    if deleted:
        endings.delete("s")
    with pytest.raises(SessionClosed, match="deleted" if deleted else "sealed") as raised:
        await ledger.begin(intent())
    assert raised.value.deleted is deleted
    assert (tmp_path / "sessions" / "s").exists() is not deleted
    assert ledger.counters == Counters(begun=1, committed=1)
    if not deleted:
        assert [name.rpartition(".")[2] for name in names(tmp_path)] == ["json"]
    await ledger.begin(intent("another"))


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_late_call_is_refused_for_good_by_a_store_that_takes_nothing_too(
    ledger: Ledger, endings: Endings, disk: Disk, deleted: bool
) -> None:
    await committed(ledger)
    endings.close("s")
    if deleted:
        endings.delete("s")
    disk.fill()
    with pytest.raises(SessionClosed) as raised:
        await ledger.begin(intent())
    assert raised.value.deleted is deleted
    with pytest.raises(StoreUnavailable):
        await ledger.begin(intent("another"))


async def test_an_intent_that_cannot_be_removed_holds_up_the_seal_until_it_can(
    ledger: Ledger, endings: Endings, disk: Disk, tmp_path: Path
) -> None:
    endings.close("s")
    disk.refuse("unlink")
    with pytest.raises(SessionClosed):
        await ledger.begin(intent())
    assert [name.rpartition(".")[2] for name in names(tmp_path)] == ["open"]
    with pytest.raises(SessionInUse):
        endings.seal("s")
    disk.heal()
    await until_written(ledger)
    assert endings.seal("s").accounting == account()
    assert ledger.counters == Counters()


async def test_a_call_that_is_cancelled_when_it_is_refused_is_not_failed(
    ledger: Ledger, endings: Endings, disk: Disk, tmp_path: Path
) -> None:
    endings.close("s")
    disk.refuse("unlink")
    beginning = asyncio.ensure_future(ledger.begin(intent()))
    await asyncio.sleep(0)
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    disk.heal()
    await ledger.begin(intent("another"))
    await until_written(ledger)
    assert endings.seal("s").accounting == account()


async def test_when_nobody_can_tell_whether_a_session_is_closed_nothing_is_sent(
    ledger: Ledger, disk: Disk, tmp_path: Path
) -> None:
    await committed(ledger)
    disk.refuse("exists")
    with pytest.raises(StoreUnavailable, match="cannot begin a call: Input/output error"):
        await ledger.begin(intent())
    assert [name.rpartition(".")[2] for name in names(tmp_path)] == ["json"]
    assert ledger.counters == Counters(begun=1, committed=1, refused=1)


@pytest.mark.parametrize("ledgers", [1, 3])
async def test_of_calls_and_a_seal_at_once_each_is_refused_or_in_the_seal(tmp_path: Path, ledgers: int) -> None:
    opened = [Ledger.open(tmp_path) for _ in range(ledgers)]
    endings = Endings(SessionReader(tmp_path, opened[0].writer))
    begun, refused = [], 0

    async def agent(ledger: Ledger) -> None:
        nonlocal refused
        while not refused:
            try:
                call = await ledger.begin(intent())
            except SessionClosed:
                refused += 1
                return
            await asyncio.sleep(0)
            await call.commit(record(call.intent))
            begun.append(call.uuid)

    agents = [asyncio.create_task(agent(ledger)) for ledger in opened for _ in range(4)]
    await asyncio.sleep(0.05)
    await asyncio.to_thread(endings.close, "s")
    while True:
        try:
            seal = await asyncio.to_thread(endings.seal, "s")
            break
        except SessionInUse:
            await asyncio.sleep(0.001)
    await asyncio.gather(*agents)
    assert refused > 0
    assert sorted(begun) == list(seal.calls)
    assert seal.accounting == account(valid=len(begun)) == page(endings.reader).accounting()
    for ledger in opened:
        assert await ledger.close()


async def test_old_sessions_go_while_the_ledger_works(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, retention=Retention(0.2, unsealed=True))
    await committed(ledger)
    held = await ledger.begin(intent("held"))
    async with asyncio.timeout(5):
        while os.listdir(tmp_path / "sessions") != ["held"]:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    await held.commit(record(held.intent))
    with pytest.raises(SessionClosed):
        await ledger.begin(intent())
    assert await ledger.close()
