import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from stored_calls import FaultyFilesystem, intent, names, record, states, until_written

from switchyard_py.capture.ledger import Counters, Ledger, OpenCall, Outcome, StoreUnavailable
from switchyard_py.store import SessionReader


@pytest.fixture
def filesystem() -> FaultyFilesystem:
    return FaultyFilesystem()


@pytest.fixture
async def ledger(tmp_path: Path, filesystem: FaultyFilesystem) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(tmp_path, retry_seconds=0.01, filesystem=filesystem)
    yield ledger
    filesystem.heal()
    assert await ledger.close()


def of(call: OpenCall) -> bytes:
    return record(call.intent)


async def test_an_intent_is_on_disk_when_begin_returns(ledger: Ledger, tmp_path: Path) -> None:
    call = await ledger.begin(intent())
    assert names(tmp_path) == [f"{call.uuid}.open"]
    assert call.intent.writer == ledger.writer.name
    assert ledger.counters == Counters(begun=1, open=1)


async def test_the_record_is_on_disk_when_commit_returns(ledger: Ledger, tmp_path: Path) -> None:
    call = await ledger.begin(intent())
    assert await call.commit(of(call)) is Outcome.COMMITTED
    assert names(tmp_path) == [f"{call.uuid}.json"]
    assert ledger.counters == Counters(begun=1, committed=1)


async def test_a_disconnect_before_the_commit(ledger: Ledger, tmp_path: Path) -> None:
    call = await ledger.begin(intent())
    await call.undelivered(of(call))
    assert states(tmp_path) == [".undelivered"]
    assert ledger.counters == Counters(begun=1, undelivered=1)


async def test_a_disconnect_after_the_commit(ledger: Ledger, tmp_path: Path) -> None:
    call = await ledger.begin(intent())
    await call.commit(of(call))
    await call.undelivered(of(call))
    assert states(tmp_path) == [".undelivered"]
    assert ledger.counters == Counters(begun=1, undelivered=1)


async def test_a_failure_keeps_what_was_seen(ledger: Ledger, tmp_path: Path) -> None:
    call = await ledger.begin(intent())
    await call.fail("cut stream", b'{"choices":[]}')
    body = msgspec.json.decode((tmp_path / "sessions" / "s" / f"{call.uuid}.failed").read_bytes())
    assert (body["reason"], body["seen"], body["uuid"]) == ("cut stream", {"choices": []}, call.uuid)
    assert ledger.counters == Counters(begun=1, failed=1)


async def test_abandoning_needs_no_waiting(ledger: Ledger, tmp_path: Path) -> None:
    call = await ledger.begin(intent())
    call.abandon_to_failed("cancelled")
    await ledger.begin(intent())
    assert states(tmp_path) == [".failed", ".open"]


ENDINGS: dict[str, Callable[[OpenCall], Awaitable[object]]] = {
    "commit": lambda call: call.commit(of(call)),
    "undelivered": lambda call: call.undelivered(of(call)),
    "fail": lambda call: call.fail("why", None),
    "abandon": lambda call: asyncio.to_thread(call.abandon_to_failed, "why"),
}


@pytest.mark.parametrize("second", ENDINGS)
@pytest.mark.parametrize("first", ENDINGS)
async def test_a_call_ends_once(ledger: Ledger, first: str, second: str, tmp_path: Path) -> None:
    call = await ledger.begin(intent())
    assert not call.ended
    await ENDINGS[first](call)
    assert call.ended
    if (first, second) == ("commit", "undelivered"):
        await ENDINGS[second](call)
    else:
        with pytest.raises(RuntimeError, match="has ended already"):
            await ENDINGS[second](call)
    await ledger.begin(intent("another"))  # whatever was asked for before is done by now
    assert len(names(tmp_path)) == 1


# A store that refuses


async def test_a_call_whose_intent_cannot_be_written_does_not_begin(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    filesystem.fill()
    with pytest.raises(StoreUnavailable, match="cannot begin a call: No space left on device") as raised:
        await ledger.begin(intent())
    assert str(tmp_path) not in str(raised.value)
    assert list((tmp_path / "sessions").iterdir()) == []
    assert ledger.counters == Counters(refused=1)


async def test_an_intent_that_no_store_can_keep_is_a_value_error(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        await ledger.begin(intent("\ud800"))
    assert ledger.counters == Counters()


async def test_a_refused_record_is_lost_and_the_agent_gets_its_answer(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    call = await ledger.begin(intent())
    filesystem.fill()
    assert await call.commit(of(call)) is Outcome.LOST
    assert states(tmp_path) == [".lost"]
    assert ledger.counters == Counters(begun=1, lost=1)


@pytest.mark.parametrize("trouble", ["freeze", "refuse_renames"])
async def test_when_not_even_the_loss_can_be_marked_the_agent_gets_an_error_and_the_call_fails_later(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path, trouble: str
) -> None:
    call = await ledger.begin(intent())
    getattr(filesystem, trouble)()
    with pytest.raises(StoreUnavailable, match="the store refused the record"):
        await call.commit(of(call))
    with pytest.raises(RuntimeError, match="has ended already"):
        await call.undelivered(of(call))
    await asyncio.sleep(0.03)
    assert states(tmp_path) == [".open"]
    assert (ledger.unwritten, ledger.counters) == (1, Counters(begun=1, open=1))
    filesystem.heal()
    await until_written(ledger)
    assert states(tmp_path) == [".failed"]
    body = msgspec.json.decode((tmp_path / "sessions" / "s" / f"{call.uuid}.failed").read_bytes())
    assert body["seen"] == msgspec.json.decode(of(call))
    assert ledger.counters == Counters(begun=1, failed=1)


async def test_a_failure_that_cannot_be_marked_never_raises_and_is_marked_later(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    calls = [await ledger.begin(intent()) for _ in range(3)]
    filesystem.freeze()
    await calls[0].fail("engine gone", b"{}")
    calls[1].abandon_to_failed("cancelled")
    await calls[2].undelivered(of(calls[2]))
    assert states(tmp_path) == [".open"] * 3
    filesystem.heal()
    await until_written(ledger)
    assert states(tmp_path) == [".failed"] * 3
    assert ledger.counters == Counters(begun=3, failed=3)


async def test_a_withdrawal_that_cannot_be_marked_is_marked_later(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    call = await ledger.begin(intent())
    await call.commit(of(call))
    filesystem.freeze()
    await call.undelivered(of(call))
    assert states(tmp_path) == [".json"]
    filesystem.heal()
    await until_written(ledger)
    assert states(tmp_path) == [".undelivered"]


async def test_an_undelivered_record_that_does_not_fit_is_a_failed_call(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    call = await ledger.begin(intent())
    filesystem.fill()
    await call.undelivered(of(call))
    assert states(tmp_path) == [".failed"]


@pytest.mark.parametrize(("trouble", "state"), [("heal", ".undelivered"), ("fill", ".failed")])
async def test_a_lost_call_whose_answer_nobody_got_is_not_lost(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path, trouble: str, state: str
) -> None:
    call = await ledger.begin(intent())
    filesystem.fill()
    assert await call.commit(of(call)) is Outcome.LOST
    getattr(filesystem, trouble)()
    await call.undelivered(of(call))
    assert states(tmp_path) == [state]
    assert ledger.counters.lost == 0


async def test_a_directory_replaced_by_a_file_and_put_back(ledger: Ledger, tmp_path: Path) -> None:
    call = await ledger.begin(intent())
    session = tmp_path / "sessions" / "s"
    shutil.rmtree(session)
    session.touch()
    with pytest.raises(StoreUnavailable, match="cannot begin a call: Not a directory"):
        await ledger.begin(intent())
    with pytest.raises(StoreUnavailable, match="refused the record: Not a directory"):
        await call.commit(of(call))
    session.unlink()
    await until_written(ledger)
    assert states(tmp_path) == [".failed"]


async def test_closing_tries_pending_marks_once_more(tmp_path: Path, filesystem: FaultyFilesystem) -> None:
    ledger = Ledger.open(tmp_path, retry_seconds=60, filesystem=filesystem)
    call = await ledger.begin(intent())
    filesystem.freeze()
    await call.fail("why", None)
    filesystem.heal()
    assert await ledger.close()
    assert states(tmp_path) == [".failed"]
    assert os.listdir(tmp_path / "writers") == []


async def test_calls_still_open_are_abandoned_when_the_ledger_is_closed(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    await ledger.begin(intent())
    reader = SessionReader(tmp_path, None)
    assert reader.open_calls("s") == 1
    assert await ledger.close()
    summary = reader.summary("s")
    assert summary is not None
    assert (summary.accounting["open"], summary.accounting["abandoned"]) == (0, 1)


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from stored_calls import intent, record
from switchyard_py.capture.ledger import Ledger

async def main():
    ledger = Ledger.open(Path(sys.argv[1]))
    call = await ledger.begin(intent())
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    print((await call.commit(record(call.intent, padding="x" * 3000))).value)
    await ledger.close()

asyncio.run(main())
"""


def test_a_disk_that_takes_half_a_record(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(__file__))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "lost"
    assert states(tmp_path) == [".lost"]
