"""A store that crawls, and tasks that do not wait for it."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stored_calls import FaultyFilesystem, intent, record, states, until_written

from switchyard_py.capture.ledger import Counters, Ledger, Outcome


class SlowFilesystem(FaultyFilesystem):
    """Stops at each write until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()

    def create(self, path: str, data: bytes) -> None:
        assert self.go.wait(5)
        super().create(path, data)


@pytest.fixture
def filesystem_that_waits() -> SlowFilesystem:
    return SlowFilesystem()


@pytest.fixture
async def slow(tmp_path: Path, filesystem_that_waits: SlowFilesystem) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(tmp_path, filesystem=filesystem_that_waits)
    yield ledger
    filesystem_that_waits.go.set()
    assert await ledger.close()


async def test_commit_does_not_return_before_the_record_is_there_and_the_loop_does_not_wait(
    slow: Ledger, filesystem_that_waits: SlowFilesystem, tmp_path: Path
) -> None:
    call = await slow.begin(intent())
    filesystem_that_waits.go.clear()
    commit = asyncio.ensure_future(call.commit(record(call.intent)))
    longest, last = 0.0, time.perf_counter()
    for _ in range(20):
        await asyncio.sleep(0.005)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    assert not commit.done()
    assert states(tmp_path) == [".open"]
    assert longest < 0.1
    filesystem_that_waits.go.set()
    assert await commit is Outcome.COMMITTED
    assert states(tmp_path) == [".json"]


async def test_a_begin_whose_task_is_cancelled_leaves_no_open_call(
    slow: Ledger, filesystem_that_waits: SlowFilesystem, tmp_path: Path
) -> None:
    filesystem_that_waits.go.clear()
    begin = asyncio.ensure_future(slow.begin(intent()))
    await asyncio.sleep(0.01)
    begin.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begin
    filesystem_that_waits.go.set()
    await slow.begin(intent())
    assert states(tmp_path) == [".failed", ".open"]
    assert slow.counters == Counters(begun=2, open=1, failed=1)


async def test_a_commit_whose_task_is_cancelled_is_carried_out_and_can_be_withdrawn(
    slow: Ledger, filesystem_that_waits: SlowFilesystem, tmp_path: Path
) -> None:
    call, kept = await slow.begin(intent()), await slow.begin(intent())
    filesystem_that_waits.go.clear()
    commits = [asyncio.ensure_future(one.commit(record(one.intent))) for one in (call, kept)]
    await asyncio.sleep(0.01)
    for commit in commits:
        commit.cancel()
    await asyncio.gather(*commits, return_exceptions=True)
    withdrawal = asyncio.ensure_future(call.undelivered(record(call.intent)))
    await asyncio.sleep(0.01)
    filesystem_that_waits.go.set()
    await withdrawal
    assert states(tmp_path) == [".undelivered", ".json"]


async def test_a_cancelled_commit_that_failed_stays_failed_when_it_is_withdrawn(
    slow: Ledger, filesystem_that_waits: SlowFilesystem, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    call = await slow.begin(intent())
    filesystem_that_waits.go.clear()
    commit = asyncio.ensure_future(call.commit(record(call.intent)))
    await asyncio.sleep(0.01)
    commit.cancel()
    await asyncio.gather(commit, return_exceptions=True)
    filesystem_that_waits.freeze()
    filesystem_that_waits.go.set()
    await slow._thread.run(filesystem_that_waits.heal)
    await call.undelivered(record(call.intent))
    assert "the store refused the record" in caplog.text  # its waiter is gone
    assert states(tmp_path) == [".open"]
    slow._thread.post(slow._retry)
    await until_written(slow)
    assert states(tmp_path) == [".failed"]


async def test_closing_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, filesystem_that_waits: SlowFilesystem
) -> None:
    ledger = Ledger.open(tmp_path, filesystem=filesystem_that_waits)
    call = await ledger.begin(intent())
    filesystem_that_waits.go.clear()
    call.abandon_to_failed("why")
    assert not await ledger.close(within=0.02)
    filesystem_that_waits.go.set()
    assert ledger._thread.close(5)
    assert states(tmp_path) == [".failed"]
