"""Calls that are sent although the store cannot begin them: in the account at once, on disk when it returns."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from stored_calls import FaultyFilesystem, account, intent, names, page, record, uuids

from switchyard_py.capture import losses
from switchyard_py.capture.ledger import Counters, Ledger, StoreUnavailable
from switchyard_py.capture.losses import Losses
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


def until_marked(ledger: Ledger) -> None:
    deadline = time.monotonic() + 5
    while len(ledger.writer.unmarked):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def lose(ledger: Ledger, session: str = "s") -> str:
    uuid = Losses(ledger).add(intent(session, parent_session_id="p"))
    assert uuid is not None
    return uuid


@pytest.mark.parametrize("trouble", ["freeze", "fill", "refuse_renames"])
@pytest.mark.parametrize("session", ["s", "Ünreadable/1"])
async def test_a_loss_is_shown_from_memory_and_marked_when_the_store_returns(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path, session: str, trouble: str
) -> None:
    getattr(filesystem, trouble)()
    with pytest.raises(StoreUnavailable):
        await ledger.begin(intent(session))
    uuid = lose(ledger, session)
    reader, elsewhere = SessionReader(tmp_path, ledger.writer), SessionReader(tmp_path, None)
    shown = list(page(reader, session))
    assert [(each["uuid"], each["is_valid"]) for each in map(orjson.loads, shown)] == [(uuid, False)]
    assert page(reader, session).accounting() == account(lost=1)
    assert reader.record(session, uuid) == shown[0]
    assert reader.exists(session)
    assert [each.session_id for each in reader.sessions()] == [session]
    assert [each.parent_session_id for each in reader.sessions()] == ["p"]
    assert elsewhere.summary(session) is None
    filesystem.heal()
    until_marked(ledger)
    for each in (reader, elsewhere):
        assert list(page(each, session)) == shown
        assert page(each, session).accounting() == account(lost=1)
        assert [summary.calls for summary in each.sessions()] == [1]
        assert each.faulty_files == 0
    assert ledger.counters == Counters(begun=1, lost=1, refused=1)
    assert len(ledger.writer.unmarked) == 0


async def test_a_loss_stands_in_call_order_beside_what_is_on_disk(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    first = await ledger.begin(intent())
    await first.commit(record(first.intent))
    filesystem.freeze()
    lost = lose(ledger)
    reader = SessionReader(tmp_path, ledger.writer)
    assert uuids(reader) == [first.uuid, lost]
    assert page(reader).accounting() == account(valid=1, lost=1)
    filesystem.heal()
    until_marked(ledger)
    last = await ledger.begin(intent())
    await last.commit(record(last.intent))
    assert uuids(reader) == [first.uuid, lost, last.uuid]
    assert names(tmp_path) == [f"{first.uuid}.json", f"{lost}.lost", f"{last.uuid}.json"]


async def test_a_loss_that_is_marked_while_its_session_is_listed_is_one_call(
    ledger: Ledger, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    filesystem.freeze()
    lost = lose(ledger)

    class MarksBeforeTheListing(FaultyFilesystem):
        def names(self, path: str) -> list[str]:
            filesystem.heal()
            until_marked(ledger)
            return super().names(path)

    (tmp_path / "sessions" / "s").mkdir()
    reader = SessionReader(tmp_path, ledger.writer, filesystem=MarksBeforeTheListing())
    assert uuids(reader) == [lost]
    assert page(reader).accounting() == account(lost=1)


async def test_there_is_room_for_so_many(
    ledger: Ledger, filesystem: FaultyFilesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "MOST_UNMARKED", 2)
    filesystem.freeze()
    assert [Losses(ledger).add(intent()) is None for _ in range(3)] == [False, False, True]


async def test_closing_marks_what_it_can(tmp_path: Path, filesystem: FaultyFilesystem) -> None:
    ledger = Ledger.open(tmp_path, retry_seconds=60, filesystem=filesystem)
    filesystem.freeze()
    lost = lose(ledger)
    await ledger._thread.run(filesystem.heal)
    assert await ledger.close()
    assert names(tmp_path) == [f"{lost}.lost"]
