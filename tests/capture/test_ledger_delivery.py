"""An undelivered record that goes to a retry after all."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from stored_calls import FaultyFilesystem, account, intent, names, page, record, states, until_written

from switchyard_py.capture.ledger import Counters, Ledger, OpenCall, StoreUnavailable
from switchyard_py.store import SessionReader


@pytest.fixture
def filesystem() -> FaultyFilesystem:
    return FaultyFilesystem()


@pytest.fixture(params=[False, True], ids=["process", "power"])
async def ledger(tmp_path: Path, filesystem: FaultyFilesystem, request: pytest.FixtureRequest) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(tmp_path, durable=request.param, retry_seconds=0.01, filesystem=filesystem)
    yield ledger
    filesystem.heal()
    assert await ledger.close()


async def undelivered(ledger: Ledger) -> OpenCall:
    call = await ledger.begin(intent())
    await call.undelivered(record(call.intent))
    return call


async def test_the_record_is_committed_when_deliver_returns(ledger: Ledger, tmp_path: Path) -> None:
    call = await undelivered(ledger)
    assert await call.deliver() == record(call.intent)
    assert names(tmp_path) == [f"{call.uuid}.json"]
    assert ledger.counters == Counters(begun=1, committed=1)
    assert page(SessionReader(tmp_path, ledger.writer)).accounting() == account(valid=1)


async def test_a_record_is_delivered_once(ledger: Ledger) -> None:
    call = await undelivered(ledger)
    await call.deliver()
    assert await call.deliver() is None


async def test_a_retry_that_leaves_makes_it_undelivered_again_and_the_next_one_gets_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    call = await undelivered(ledger)
    delivered = await call.deliver()
    assert delivered is not None
    await call.undelivered(delivered)
    assert states(tmp_path) == [".undelivered"]
    assert ledger.counters == Counters(begun=1, undelivered=1)
    assert await call.deliver() == delivered
    assert states(tmp_path) == [".json"]


@pytest.mark.parametrize("trouble", ["freeze", "refuse_renames"])
async def test_a_store_that_refuses_leaves_it_undelivered_and_it_can_be_tried_again(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path, trouble: str
) -> None:
    call = await undelivered(ledger)
    getattr(filesystem, trouble)()
    with pytest.raises(StoreUnavailable, match="refuses to deliver the record: "):
        await call.deliver()
    assert ledger.counters == Counters(begun=1, undelivered=1)
    filesystem.heal()
    assert await call.deliver() is not None
    assert states(tmp_path) == [".json"]


async def test_a_full_disk_does_not_hinder_it(ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path) -> None:
    call = await undelivered(ledger)
    filesystem.fill()
    assert await call.deliver() is not None
    assert states(tmp_path) == [".json"]


async def test_with_power_a_directory_that_cannot_be_flushed_withholds_it(
    tmp_path: Path, filesystem: FaultyFilesystem
) -> None:
    ledger = Ledger.open(tmp_path, durable=True, retry_seconds=0.01, filesystem=filesystem)
    call = await undelivered(ledger)
    filesystem.refuse_flushes()
    with pytest.raises(StoreUnavailable, match="cannot flush the record"):
        await call.deliver()
    assert states(tmp_path) == [".undelivered"]
    assert ledger.counters == Counters(begun=1, undelivered=1)
    filesystem.heal()
    assert await call.deliver() is not None
    assert await ledger.close()


async def test_a_withdrawal_that_is_still_to_be_marked_comes_first(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    call = await ledger.begin(intent())
    await call.commit(record(call.intent))
    filesystem.refuse_renames()
    await call.undelivered(record(call.intent))
    with pytest.raises(StoreUnavailable, match="has not yet taken the mark"):
        await call.deliver()
    filesystem.heal()
    await until_written(ledger)
    assert states(tmp_path) == [".undelivered"]
    assert await call.deliver() is not None
    assert states(tmp_path) == [".json"]


def _remove(path: Path) -> None:
    path.unlink()


def _fail(path: Path) -> None:
    path.rename(path.with_suffix(".failed"))


@pytest.mark.parametrize("vanish", [_remove, _fail])
async def test_a_record_that_is_there_no_more_is_none(
    ledger: Ledger, tmp_path: Path, vanish: Callable[[Path], None]
) -> None:
    call = await undelivered(ledger)
    vanish(tmp_path / "sessions" / "s" / f"{call.uuid}.undelivered")
    assert await call.deliver() is None


async def test_a_call_that_failed_has_none(ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path) -> None:
    call = await ledger.begin(intent())
    filesystem.fill()
    await call.undelivered(record(call.intent))
    assert states(tmp_path) == [".failed"]
    assert await call.deliver() is None
