"""Sealing and deleting at the level of files, and what crashes and races leave."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from stored_calls import FaultyFilesystem, account, commit, intent, names, page, put, record, uuids

from switchyard_py.store import (
    Endings,
    Filesystem,
    Seal,
    SessionDeleted,
    SessionInUse,
    SessionReader,
    UnknownSession,
    Writer,
)
from switchyard_py.store.names import digest_directory


@pytest.fixture
def endings(reader: SessionReader) -> Endings:
    return Endings(reader)


def seal(endings: Endings, session_id: str = "s") -> Seal:
    endings.close(session_id)
    return endings.seal(session_id)


def dead(directory: Path, session_id: str = "s") -> str:
    """A call of a writer that died before it looked whether the session is closed."""
    writer = Writer(directory)
    call = writer.begin(intent(session_id))
    os.close(writer._lock._descriptor)
    return call.uuid


def mark(directory: Path, session_id: str = "s") -> Path:
    return directory / "closed" / session_id


class Meanwhile(Filesystem):
    """A file system on which something happens just before a call that looks so."""

    def __init__(self) -> None:
        self.before: dict[str, Callable[[], object]] = {}

    def _happen(self, what: str) -> None:
        happening = self.before.pop(what, None)
        if happening is not None:
            happening()

    def names(self, path: str) -> list[str]:
        self._happen(f"names {os.path.basename(path)}")
        return super().names(path)

    def rename(self, source: str, target: str) -> None:
        self._happen(f"rename {os.path.basename(target)}")
        super().rename(source, target)


# Seals


def test_the_digest_is_over_the_delivered_records_with_their_lengths(
    writer: Writer, reader: SessionReader, endings: Endings
) -> None:
    first, second = commit(writer), commit(writer)
    lost, withdrawn = writer.begin(intent()), commit(writer)
    writer.lose(lost)
    writer.withdraw(withdrawn, b"", reader.view("s").calls[-1].state)  # type: ignore[union-attr]
    sealed = seal(endings)
    digest = hashlib.sha256()
    for data in page(reader):
        digest.update(len(data).to_bytes(8, "big") + data)
    assert (sealed.records, sealed.digest) == (3, digest.hexdigest())
    assert sealed.accounting == account(valid=2, lost=1, undelivered=1)
    assert list(sealed.calls.items()) == [
        (first.uuid, ".json"), (second.uuid, ".json"), (lost.uuid, ".lost"), (withdrawn.uuid, ".undelivered")
    ]  # fmt: skip


def test_a_mark_is_one_line_of_json(tmp_path: Path, writer: Writer, endings: Endings) -> None:
    commit(writer)
    endings.close("s")
    assert orjson.loads(mark(tmp_path).read_bytes()) == {"session_id": "s", "deleted": False, "seal": None}
    sealed = endings.seal("s")
    assert orjson.loads(mark(tmp_path).read_bytes())["seal"]["digest"] == sealed.digest
    endings.delete("s")
    assert mark(tmp_path).read_bytes() == b'{"session_id":"s","deleted":true,"seal":null}\n'
    assert sorted(os.listdir(tmp_path / "closed")) == [".lock", "s"]


def test_an_open_call_keeps_a_session_from_being_sealed(
    tmp_path: Path, writer: Writer, reader: SessionReader, endings: Endings
) -> None:
    call, other = writer.begin(intent()), Writer(tmp_path)
    theirs = other.begin(intent())
    endings.close("s")
    with pytest.raises(SessionInUse) as raised:
        endings.seal("s")
    assert raised.value.open_calls == 2
    assert not page(reader).sealed
    writer.commit(call, record(call))
    with pytest.raises(SessionInUse):
        endings.seal("s")
    other.fail(theirs, "why", None)
    assert endings.seal("s").accounting == account(valid=1, failed=1)
    other.close()


def test_a_call_of_a_dead_writer_is_sealed_as_abandoned(tmp_path: Path, writer: Writer, endings: Endings) -> None:
    commit(writer)
    uuid = dead(tmp_path)
    sealed = seal(endings)
    assert (sealed.accounting, sealed.calls[uuid]) == (account(valid=1, abandoned=1), ".open")
    (tmp_path / "sessions" / "s" / f"{uuid}.open").unlink()
    assert page(endings.reader).accounting() == account(valid=1, abandoned=1)


def test_an_intent_that_came_too_late_is_no_call(tmp_path: Path, writer: Writer, endings: Endings) -> None:
    """Its writer is between intent and look, or died there."""
    commit(writer)
    sealed = seal(endings)
    dead(tmp_path)
    late = writer.begin(intent())
    assert len(names(tmp_path)) == 3
    for reader in (endings.reader, SessionReader(tmp_path, None)):
        assert page(reader).accounting() == sealed.accounting == account(valid=1)
        assert reader.open_calls("s") == 0
    assert writer.closing(late) is not None
    writer.retract(late)
    assert len(names(tmp_path)) == 2


def test_what_is_missing_from_a_sealed_session_is_invalid(tmp_path: Path, writer: Writer, endings: Endings) -> None:
    first, second = commit(writer), commit(writer)
    sealed = seal(endings)
    (tmp_path / "sessions" / "s" / f"{first.uuid}.json").unlink()
    served = page(SessionReader(tmp_path, None))
    assert [orjson.loads(data)["uuid"] for data in served] == [second.uuid]
    assert served.accounting() == account(valid=1, invalid=1)
    assert [fault.name for fault in served.faults] == [f"{first.uuid}.json"]
    assert seal(endings) == sealed


def test_a_withdrawal_after_the_seal_changes_nothing(tmp_path: Path, writer: Writer, endings: Endings) -> None:
    call = commit(writer)
    view = endings.reader.view("s")
    assert view is not None
    sealed = seal(endings)
    writer.withdraw(call, b"", view.calls[0].state)
    assert names(tmp_path) == [f"{call.uuid}.undelivered"]
    for reader in (endings.reader, SessionReader(tmp_path, None)):
        assert uuids(reader) == [call.uuid]
        assert page(reader).accounting() == sealed.accounting


def test_a_loss_that_could_only_be_marked_after_the_seal_still_masks(
    tmp_path: Path, writer: Writer, endings: Endings
) -> None:
    call = commit(writer)
    seal(endings)
    uuid = call.uuid[:-1] + ("0" if call.uuid[-1] != "0" else "1")
    put(tmp_path, f"{uuid}.lost", b"")
    assert sorted(uuids(endings.reader)) == sorted([call.uuid, uuid])
    assert page(endings.reader).accounting() == account(valid=1, lost=1)


def test_records_of_the_original_proxy_are_sealed_in_their_order(
    tmp_path: Path, writer: Writer, endings: Endings
) -> None:
    call = commit(writer)
    for number, uuid in enumerate(("f1", "0a")):
        data = record(call, uuid=uuid, captured_at=f"2026-01-01T00:00:0{number}.000000+00:00")
        put(tmp_path, f"{uuid}.json", data, digest_directory("s"))
    assert list(seal(endings).calls) == uuids(endings.reader) == ["f1", "0a", call.uuid]


@pytest.mark.parametrize("content", [b"", b"\x00", b"{}", b'{"session_id":"s","seal":{"calls":{"x":".what"}}}'])
def test_a_damaged_mark_closes_the_session_and_is_no_seal(
    tmp_path: Path, writer: Writer, endings: Endings, content: bytes
) -> None:
    call = commit(writer)
    seal(endings)
    mark(tmp_path).write_bytes(content)
    assert writer.closing(call) is not None
    assert not page(endings.reader).sealed
    assert seal(endings).accounting == account(valid=1)
    assert page(endings.reader).sealed


# Deletions


def test_a_tombstone_is_the_deletion_whatever_is_left(
    tmp_path: Path, writer: Writer, reader: SessionReader, endings: Endings
) -> None:
    call = commit(writer)
    commit(writer)
    commit(writer, "other")
    endings.bury("s")
    next(endings.remove("s"))  # and a crash
    assert len(names(tmp_path)) == 1
    for each in (reader, SessionReader(tmp_path, None)):
        assert each.completions("s") is None
        assert each.summary("s") is None
        assert each.record("s", call.uuid) is None
        assert not each.exists("s")
        assert each.deleted("s")
        assert [summary.session_id for summary in each.sessions()] == ["other"]
    with pytest.raises(SessionDeleted):
        endings.bury("s")
    with pytest.raises(SessionDeleted):
        endings.close("s")
    with pytest.raises(SessionDeleted):
        endings.seal("s")


def test_what_does_not_exist_cannot_be_deleted(endings: Endings) -> None:
    with pytest.raises(UnknownSession):
        endings.bury("s")
    assert not endings.reader.deleted("s")


def test_a_session_that_is_deleted_while_it_is_listed_is_gone(tmp_path: Path, writer: Writer) -> None:
    for _ in range(3):
        commit(writer)
    filesystem = Meanwhile()
    reader = SessionReader(tmp_path, None, filesystem=filesystem)

    def begin_to_delete() -> None:
        endings = Endings(SessionReader(tmp_path, None))
        endings.bury("s")
        next(endings.remove("s"))

    filesystem.before["names s"] = begin_to_delete
    assert reader.completions("s") is None
    assert len(names(tmp_path)) == 2


def test_a_call_that_begins_while_the_session_is_being_deleted_wins(tmp_path: Path, writer: Writer) -> None:
    commit(writer)
    filesystem = Meanwhile()
    endings = Endings(SessionReader(tmp_path, None, filesystem=filesystem))
    other = Writer(tmp_path)
    filesystem.before["rename s"] = lambda: other.begin(intent())
    with pytest.raises(SessionInUse) as raised:
        endings.bury("s")
    assert raised.value.open_calls == 1
    assert not mark(tmp_path).exists()
    assert page(endings.reader).accounting() == account(valid=1, open=1)
    other.close()


def test_a_sealed_session_stays_sealed_when_it_cannot_be_deleted(
    tmp_path: Path, writer: Writer, endings: Endings
) -> None:
    call = writer.begin(intent())
    endings.close("s")
    with pytest.raises(SessionInUse):
        endings.bury("s")
    assert writer.closing(call) is not None
    writer.commit(call, record(call))
    endings.delete("s")
    assert list((tmp_path / "sessions").iterdir()) == []


def test_nothing_is_left_of_a_call_that_comes_after_a_deletion(
    tmp_path: Path, writer: Writer, endings: Endings
) -> None:
    commit(writer)
    endings.delete("s")
    late = writer.begin(intent())
    closing = writer.closing(late)
    assert closing is not None
    assert closing.deleted
    writer.retract(late)
    assert list((tmp_path / "sessions").iterdir()) == []


def test_files_that_cannot_be_removed_stay_for_later(
    tmp_path: Path, writer: Writer, endings: Endings, caplog: pytest.LogCaptureFixture
) -> None:
    commit(writer)
    (tmp_path / "sessions" / "s" / "directory").mkdir()
    endings.delete("s")
    assert "cannot be removed yet" in caplog.text
    assert endings.reader.completions("s") is None


def test_one_process_at_a_time_puts_marks(tmp_path: Path, writer: Writer, endings: Endings) -> None:
    commit(writer)
    with endings.reader.closings.lock(), pytest.raises(BlockingIOError):
        endings.bury("s", wait=False)
    endings.delete("s")


def test_a_seal_that_may_not_survive_a_power_failure_is_none(tmp_path: Path, writer: Writer) -> None:
    commit(writer)
    disk = FaultyFilesystem()
    endings = Endings(SessionReader(tmp_path, None, filesystem=disk))
    endings.close("s")
    disk.refuse_flushes()
    with pytest.raises(OSError, match="Input/output error"):
        endings.seal("s")
    with pytest.raises(OSError, match="Input/output error"):
        endings.delete("s")
    assert not page(endings.reader).sealed
    disk.heal()
    endings.seal("s")
    assert page(endings.reader).sealed
