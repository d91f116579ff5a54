"""A store that crawls, and tasks that do not wait for it."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stored_calls import FaultyFilesystem, intent, record, states, until_written

from switchyard_py.capture import ledger as ledger_module
from switchyard_py.capture.ledger import Counters, Ledger, OpenCall, Outcome, StoreUnavailable
from switchyard_py.store import SessionReader


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


# A store that does not keep up


class CrawlingFilesystem(FaultyFilesystem):
    """Takes its time for each operation."""

    def _maybe_fail(self, name: str) -> None:
        time.sleep(0.05)
        super()._maybe_fail(name)


async def test_calls_slow_down_and_are_then_refused_while_those_begun_are_kept(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, begin_seconds=0.7, filesystem=CrawlingFilesystem())
    began, refused = [], []
    outcomes: list[Outcome] = []
    waiting = most_waiting = 0

    async def one_call(number: int) -> None:
        nonlocal waiting, most_waiting
        asked = time.monotonic()
        try:
            call = await ledger.begin(intent(f"s{number % 3}"))
        except StoreUnavailable as error:
            refused.append((str(error), time.monotonic() - asked))
            return
        began.append(time.monotonic() - asked)
        waiting += 1
        most_waiting = max(most_waiting, waiting)
        outcomes.append(await call.commit(record(call.intent, padding="x" * 100_000)))
        waiting -= 1

    await asyncio.gather(*map(one_call, range(500)))
    assert await ledger.close()
    # 0.7 s are 14 operations, and a call takes at least seven.
    assert 1 <= len(began) <= 3
    assert max(began) < 1
    assert {text for text, _ in refused} == {"the store is too slow: it did not begin the call within 0.7 s"}
    assert 0.6 < min(waited for _, waited in refused) <= max(waited for _, waited in refused) < 2
    assert outcomes == [Outcome.COMMITTED] * len(began)
    assert most_waiting <= 2  # records in memory, whatever the number of calls
    counters = ledger.counters
    assert (counters.committed, counters.open, counters.refused) == (len(began), 0, 500 - len(began))
    assert counters.begun - counters.failed == len(began)  # one may have been on its way to the disk
    accounts = [summary.accounting for summary in SessionReader(tmp_path, None).sessions()]
    assert sum(found["begun"] for found in accounts) == counters.begun
    assert sum(found["valid"] for found in accounts) == len(began)


async def test_no_call_begins_while_another_waits_to_be_ended(
    slow: Ledger, filesystem_that_waits: SlowFilesystem
) -> None:
    calls = [await slow.begin(intent()) for _ in range(5)]
    order: list[str] = []
    filesystem_that_waits.go.clear()
    running = asyncio.ensure_future(calls[0].fail("why", None))  # the disk is at this one
    await asyncio.sleep(0.01)

    async def begin() -> OpenCall:
        call = await slow.begin(intent())
        order.append("begun")
        return call

    async def commit(call: OpenCall) -> None:
        await call.commit(record(call.intent))
        order.append("ended")

    beginning = asyncio.ensure_future(begin())
    await asyncio.sleep(0)
    commits = [asyncio.ensure_future(commit(call)) for call in calls[1:]]
    await asyncio.sleep(0.01)
    filesystem_that_waits.go.set()
    await asyncio.gather(running, beginning, *commits)
    assert order == ["ended"] * 4 + ["begun"]


async def test_a_call_refused_for_slowness_while_it_was_written_is_failed(
    tmp_path: Path, filesystem_that_waits: SlowFilesystem
) -> None:
    ledger = Ledger.open(tmp_path, begin_seconds=0.05, filesystem=filesystem_that_waits)
    filesystem_that_waits.go.clear()
    written, never = (asyncio.ensure_future(ledger.begin(intent())) for _ in range(2))
    for refused in (written, never):
        with pytest.raises(StoreUnavailable, match="too slow"):
            await refused
    filesystem_that_waits.go.set()
    assert await ledger.close()
    assert ledger.counters == Counters(begun=1, failed=1, refused=2)
    assert states(tmp_path) == [".failed"]


async def test_calls_that_wait_to_begin_are_bounded(
    slow: Ledger, filesystem_that_waits: SlowFilesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MOST_BEGINNING", 3)
    filesystem_that_waits.go.clear()
    waiting = [asyncio.ensure_future(slow.begin(intent())) for _ in range(3)]
    await asyncio.sleep(0.01)
    with pytest.raises(StoreUnavailable, match="too slow: 3 calls wait for it already"):
        await slow.begin(intent())
    filesystem_that_waits.go.set()
    await asyncio.gather(*waiting)
    await slow.begin(intent())
    assert slow.counters == Counters(begun=4, open=4, refused=1)


async def test_a_disk_that_hangs_is_named_and_looked_at_once(
    slow: Ledger, filesystem_that_waits: SlowFilesystem
) -> None:
    filesystem_that_waits.go.clear()
    beginning = asyncio.ensure_future(slow.begin(intent()))
    await asyncio.sleep(0.01)
    faults = await asyncio.gather(*(slow.fault(0.03) for _ in range(10)))
    assert set(faults) == {"the capture directory did not take a file within 0.03 s"}
    assert len(slow._thread._jobs) == 1
    filesystem_that_waits.go.set()
    await beginning
    assert await slow.fault(5) is None
