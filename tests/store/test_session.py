import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from stored_calls import STARTED_AT, FaultyFilesystem, account, commit, intent, page, put, record, uuids

from switchyard_py.store import Filesystem, SessionReader, State, Writer


def test_every_call_is_in_the_account_once(writer: Writer, reader: SessionReader, tmp_path: Path) -> None:
    commit(writer)
    commit(writer, is_valid=False)
    undelivered, lost, failed, _open = (writer.begin(intent()) for _ in range(4))
    writer.withdraw(undelivered, record(undelivered), State.OPEN)
    writer.lose(lost)
    writer.fail(failed, "why", None)
    other = Writer(tmp_path)
    other.begin(intent())
    other.close()
    expected = account(valid=1, invalid=1, undelivered=1, lost=1, failed=1, open=1, abandoned=1)
    assert page(reader).accounting() == expected
    assert SessionReader(tmp_path, None).completions("s").accounting() == expected  # type: ignore[union-attr]
    summary = reader.summary("s")
    assert summary is not None
    assert summary.accounting == expected
    assert (summary.calls, reader.open_calls("s")) == (7, 1)


def test_failed_calls_tell_why(writer: Writer, reader: SessionReader, tmp_path: Path) -> None:
    told, partial, damaged = (writer.begin(intent()) for _ in range(3))
    writer.fail(told, "upstream_timeout: no first byte", None)
    writer.fail(partial, "agent_gone \ud800", b'{"messages":[1]}')
    writer.fail(damaged, "why", None)
    (tmp_path / "sessions" / "s" / f"{damaged.uuid}.failed").write_bytes(b"{")
    assert page(reader).failures() == {
        told.uuid: "upstream_timeout: no first byte",
        partial.uuid: "agent_gone ?",
        damaged.uuid: "its file does not say why",
    }


def test_a_lost_call_is_an_invalid_record(writer: Writer, reader: SessionReader) -> None:
    call = writer.begin(intent(parent_session_id="p"))
    writer.lose(call)
    found = orjson.loads(next(iter(page(reader))))
    assert list(found) == [*orjson.loads(record(call)), "call"]
    assert found["is_valid"] is False
    assert found["call"]["invalid_reasons"] == ["lost"]
    assert found["call"]["route"] == "policy"
    assert found["call"]["client"]["request_id"] == "req-1"
    assert (found["messages"], found["tools"]) == ([], [])
    assert set(found["token_count"].values()) == {0}
    assert found["prompt_token_ids"] is found["generation_token_ids"] is found["generation_log_probs"] is None
    assert (found["uuid"], found["session_id"], found["parent_session_id"]) == (call.uuid, "s", "p")
    assert found["captured_at"] == STARTED_AT
    assert reader.record("s", call.uuid) == orjson.dumps(found)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"uuid":"x"}'])
def test_a_lost_call_masks_the_session_even_without_its_intent(
    writer: Writer, reader: SessionReader, tmp_path: Path, content: bytes
) -> None:
    call = writer.begin(intent())
    writer.lose(call)
    (tmp_path / "sessions" / "s" / f"{call.uuid}.lost").write_bytes(content)
    found = page(reader)
    assert [orjson.loads(data)["is_valid"] for data in found] == [False]
    assert [fault.name for fault in found.faults] == [f"{call.uuid}.lost"]


# Faults

FAULTS = {
    "damaged text": (
        b'{"schema_version":1,"uuid":"","session_id":"s","captured_at":"","is_valid":true,"messages":["\xff"]}',
        "corrupt",
    ),
    "corrupt": (b'{"schema_version":1,', "corrupt"),
    "truncated": (b"", "corrupt"),
    "zeros": (b"\0" * 4096, "corrupt"),
    "deep": (b"[" * 5000, "corrupt"),
    "list": (b"[1]", "not a record"),
    "number": (b"1", "not a record"),
    "no fields": (b"{}", "not a record"),
    "boolean version": (b'{"schema_version":true}', "not a record"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_file_is_named_counted_and_left_out(
    writer: Writer, reader: SessionReader, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    data, reason = FAULTS[name]
    good, bad = commit(writer), commit(writer)
    put(tmp_path, f"{bad.uuid}.json", data)
    for _ in range(2):
        found = page(reader)
        assert list(found) == [record(good)]
        assert found.accounting() == account(valid=1, invalid=1)
        assert [(fault.name, fault.reason.split(":")[0]) for fault in found.faults] == [(f"{bad.uuid}.json", reason)]
    summary = reader.summary("s")
    assert summary is not None
    assert (summary.accounting, summary.faults) == (account(valid=1, invalid=1), 1)
    assert reader.record("s", bad.uuid) is None
    assert reader.faulty_files == 1
    assert caplog.text.count(bad.uuid) == 1
    assert [summary.session_id for summary in reader.sessions()] == ["s"]


# Each in the place of a record's tools: trainers read with orjson, which refuses all of it.
REFUSED = {
    "constant": b"[NaN]",
    "huge number": b"[1e999]",
    "huge integer": b"[" + b"9" * 309 + b"]",
    "lone surrogate": b'["\\ud800"]',
    "invalid UTF-8": b'["\xff"]',
    "nested too deeply": b"[" * 1025 + b"]" * 1025,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_trainer_could_not_decode_is_not_served(
    writer: Writer, reader: SessionReader, tmp_path: Path, name: str
) -> None:
    good, bad = commit(writer), commit(writer)
    put(tmp_path, f"{bad.uuid}.json", record(bad).replace(b'"tools":[]', b'"tools":' + REFUSED[name]))
    found = page(reader)
    assert list(found) == [record(good)]
    assert found.accounting() == account(valid=1, invalid=1)
    assert [fault.reason.split(":")[0] for fault in found.faults] == ["corrupt"]
    assert list(page(reader).values()) == [orjson.loads(record(good))]
    assert reader.record("s", bad.uuid) is None


def test_a_record_of_another_session_version_or_call_is_not_served(
    writer: Writer, reader: SessionReader, tmp_path: Path
) -> None:
    calls = [commit(writer) for _ in range(4)]
    other = commit(writer, "t")
    put(tmp_path, f"{calls[0].uuid}.json", record(calls[0], session_id="t"))
    put(tmp_path, f"{calls[1].uuid}.json", record(calls[1], schema_version=2))
    put(tmp_path, f"{calls[2].uuid}.json", record(calls[3]))
    put(tmp_path, f"{other.uuid}.json", record(other))
    found = page(reader)
    assert list(found) == [record(calls[3])]
    assert [fault.reason for fault in found.faults] == [
        "foreign: a record of another session",
        "foreign: schema version 2 instead of 1",
        "foreign: a record of another uuid",
        "foreign: a record of another session",
    ]
    assert found.accounting() == account(valid=1, invalid=4)


def test_nothing_of_another_sessions_intent_is_shown(writer: Writer, reader: SessionReader, tmp_path: Path) -> None:
    other = writer.begin(intent("t", parent_session_id="secret"))
    writer.lose(other)
    foreign = (tmp_path / "sessions" / "t" / f"{other.uuid}.lost").read_bytes()
    put(tmp_path, f"{other.uuid}.lost", foreign)
    found = page(reader)
    assert [orjson.loads(data)["session_id"] for data in found] == ["s"]
    assert [fault.reason for fault in found.faults] == ["foreign: an intent of another call"]
    summary = reader.summary("s")
    assert summary is not None
    assert summary.parent_session_id is None


def test_a_foreign_first_file_does_not_hide_a_session(writer: Writer, reader: SessionReader, tmp_path: Path) -> None:
    foreign, call = writer.begin(intent("Other")), commit(writer, "É")
    put(tmp_path, f"{foreign.uuid}.json", record(foreign), hashlib.sha256("É".encode()).hexdigest())
    found = {summary.session_id: summary.accounting for summary in reader.sessions()}
    assert found == {"Other": account(open=1), "É": account(valid=1, invalid=1)}
    assert list(page(reader, "É")) == [record(call)]


def test_bytes_that_only_strict_readers_refuse_are_not_served(
    writer: Writer, reader: SessionReader, tmp_path: Path
) -> None:
    calls = [commit(writer) for _ in range(3)]
    for call, old, new in zip(calls, (b"hello", b"hello", b"-0.5"), (b"\xff", b"\\ud800", b"NaN"), strict=True):
        put(tmp_path, f"{call.uuid}.json", record(call).replace(old, new))
    found = page(reader)
    assert list(found) == []
    assert len(found.faults) == 3
    assert found.accounting() == account(invalid=3)


def test_what_is_no_file_is_a_fault(writer: Writer, reader: SessionReader, tmp_path: Path) -> None:
    good = commit(writer)
    os.mkdir(tmp_path / "sessions" / "s" / "directory.json")
    os.mkfifo(tmp_path / "sessions" / "s" / "pipe.json")
    os.symlink("nowhere", tmp_path / "sessions" / "s" / "link.json")
    found = page(reader)
    assert list(found) == [record(good)]
    assert {fault.name: fault.reason.split(":")[0] for fault in found.faults} == {
        "directory.json": "unreadable",
        "pipe.json": "corrupt",
        "link.json": "unreadable",
    }


def test_a_fault_that_passes_is_forgotten(writer: Writer, tmp_path: Path) -> None:
    filesystem = FaultyFilesystem()
    reader = SessionReader(tmp_path, writer, filesystem=filesystem)
    call = commit(writer)
    filesystem.errors = {"read": 24}  # too many open files
    assert page(reader).accounting() == account(invalid=1)
    filesystem.heal()
    assert list(page(reader)) == [record(call)]


def test_leftovers_of_a_crash_count_once_in_the_later_state(
    writer: Writer, reader: SessionReader, tmp_path: Path
) -> None:
    calls = [commit(writer) for _ in range(2)]
    put(tmp_path, f"{calls[0].uuid}.open", b"")
    put(tmp_path, f"{calls[0].uuid}@{writer.name}.tmp", b"half a rec")
    put(tmp_path, f"{calls[1].uuid}.json.tmp", b"half a rec")
    put(tmp_path, f"{calls[1].uuid}.lost", b"")
    put(tmp_path, f"{calls[1].uuid}.undelivered", b"")
    put(tmp_path, "notes.txt", b"")
    found = page(reader)
    assert list(found) == [record(call) for call in calls]
    assert found.accounting() == account(valid=2)


# Open and abandoned calls


def test_a_damaged_intent_is_a_fault_and_nobody_can_still_be_at_it(reader: SessionReader, tmp_path: Path) -> None:
    put(tmp_path, "empty.open", b"")
    put(tmp_path, "torn.open", b'{"uuid":')
    found = page(reader)
    assert found.accounting() == account(abandoned=2)
    assert [fault.name for fault in found.faults] == ["empty.open", "torn.open"]


def test_a_call_that_ends_while_it_is_looked_at_is_still_one_call(writer: Writer, tmp_path: Path) -> None:
    call = writer.begin(intent())

    class CommitsBeforeTheRead(Filesystem):
        def read(self, path: str) -> bytes:
            if path.endswith(".open"):
                writer.commit(call, record(call))
            return super().read(path)

    assert page(SessionReader(tmp_path, writer, filesystem=CommitsBeforeTheRead())).accounting() == account(open=1)


def test_a_call_whose_writer_ends_it_and_leaves_while_it_is_looked_at_is_not_abandoned(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    call = writer.begin(intent())

    class LeavesAfterTheRead(Filesystem):
        def read(self, path: str) -> bytes:
            data = super().read(path)
            if path.endswith(".open"):
                writer.commit(call, record(call))
                writer.close()
            return data

    reader = SessionReader(tmp_path, None, filesystem=LeavesAfterTheRead())
    assert page(reader).accounting() == account(open=1)
    assert page(reader).accounting() == account(valid=1)


def test_a_record_withdrawn_while_it_is_looked_at_is_undelivered(writer: Writer, tmp_path: Path) -> None:
    call = commit(writer)

    class WithdrawsBeforeTheRead(Filesystem):
        def read(self, path: str) -> bytes:
            if path.endswith(".json"):
                writer.withdraw(call, record(call), State.COMMITTED)
            return super().read(path)

    found = page(SessionReader(tmp_path, writer, filesystem=WithdrawsBeforeTheRead()))
    assert list(found) == []
    assert found.accounting() == account(undelivered=1)


class _Moving(Filesystem):
    """Before each read the next of the moves is made."""

    def __init__(self, *moves: Callable[[], object]) -> None:
        self._moves = iter(moves)

    def read(self, path: str) -> bytes:
        for move in self._moves:
            move()
            break
        return super().read(path)


def test_a_record_delivered_while_it_is_looked_at_is_served(writer: Writer, tmp_path: Path) -> None:
    call = writer.begin(intent())
    writer.withdraw(call, record(call), State.OPEN)
    filesystem = _Moving(lambda: writer.deliver(call))
    found = page(SessionReader(tmp_path, writer, filesystem=filesystem), include="all")
    assert list(found) == [record(call)]
    assert found.accounting() == account(valid=1)


def test_a_record_withdrawn_and_delivered_while_it_is_looked_at_is_served(writer: Writer, tmp_path: Path) -> None:
    call = commit(writer)
    filesystem = _Moving(lambda: writer.withdraw(call, record(call), State.COMMITTED), lambda: writer.deliver(call))
    found = page(SessionReader(tmp_path, writer, filesystem=filesystem))
    assert list(found) == [record(call)]
    assert found.accounting() == account(valid=1)


def test_no_call_is_missing_from_a_large_directory_while_it_is_committed(writer: Writer, tmp_path: Path) -> None:
    calls = [commit(writer).uuid for _ in range(150)]
    moving = writer.begin(intent())

    class ReadsInTwoParts(Filesystem):
        """The directory is read in two parts, and the call moves from the second into the first in between."""

        def names(self, path: str) -> list[str]:
            first = sorted(super().names(path))[:100]
            if f"{moving.uuid}.open" in super().names(path):
                writer.commit(moving, record(moving))
                return [*first, *(name for name in sorted(super().names(path))[100:] if moving.uuid not in name)]
            return super().names(path)

    reader = SessionReader(tmp_path, writer, filesystem=ReadsInTwoParts())
    assert uuids(reader) == [*calls, moving.uuid]


def test_readers_see_every_call_that_has_begun_while_writers_work(tmp_path: Path, reader: SessionReader) -> None:
    writer = Writer(tmp_path)
    begun: list[str] = []

    def work() -> None:
        for _ in range(400):
            call = writer.begin(intent())
            begun.append(call.uuid)
            writer.commit(call, record(call))

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        known = len(begun)
        found = page(reader, limit=0) if known else None
        if found:
            accounting = found.accounting()
            assert accounting["begun"] >= known
            assert accounting["begun"] == sum(accounting.values()) - accounting["begun"]
            assert accounting["invalid"] == 0
    thread.join()
    assert uuids(reader) == begun
    writer.close()
