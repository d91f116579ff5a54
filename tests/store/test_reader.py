import hashlib
import logging
import os
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import orjson
import pytest
from stored_calls import FaultyFilesystem, account, commit, intent, names, page, put, record, uuids

from switchyard_py.store import CallIntent, CompletionsPage, Filesystem, SessionReader, State, Writer

UUID4 = "f14703e0-daf8-4df3-81f4-71f5526b9b2c"


def original_record(session_id: str, uuid: str, captured_at: str, parent: str | None = None) -> bytes:
    """As the original proxy writes it: schema v1 without `call`, indented, ASCII."""
    call = CallIntent(
        uuid=uuid, session_id=session_id, parent_session_id=parent, route="", target="", dialect="", digest="",
        started_at="",
    )  # fmt: skip
    fields = orjson.loads(record(call)) | {"captured_at": captured_at}
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2)


# Records


def test_records_come_in_call_order_as_the_bytes_that_were_written(writer: Writer, reader: SessionReader) -> None:
    calls = [writer.begin(intent()) for _ in range(5)]
    for call in reversed(calls):
        writer.commit(call, record(call))
    found = page(reader)
    assert list(found) == [record(call) for call in calls]
    assert found.accounting() == account(valid=5)
    assert found.faults == []


def test_an_unknown_session_is_none_and_one_without_records_is_empty(writer: Writer, reader: SessionReader) -> None:
    assert reader.completions("s") is None
    assert reader.summary("s") is None
    assert reader.record("s", "x") is None
    assert not reader.exists("s")
    assert reader.open_calls("s") == 0
    writer.begin(intent())
    assert reader.exists("s")
    assert uuids(reader) == []


def test_delivered_leaves_out_what_the_agent_did_not_get(writer: Writer, reader: SessionReader) -> None:
    committed = commit(writer)
    undelivered, lost, failed = (writer.begin(intent()) for _ in range(3))
    writer.withdraw(undelivered, record(undelivered), State.OPEN)
    writer.lose(lost)
    writer.fail(failed, "why", record(failed))
    assert uuids(reader) == [committed.uuid, lost.uuid]
    assert uuids(reader, include="all") == [committed.uuid, undelivered.uuid, lost.uuid]


def test_pages_follow_each_other(writer: Writer, reader: SessionReader) -> None:
    calls = [commit(writer).uuid for _ in range(7)]
    assert uuids(reader, limit=3) == calls[:3]
    assert uuids(reader, after=calls[2], limit=3) == calls[3:6]
    assert uuids(reader, after=calls[5], limit=3) == calls[6:]
    assert uuids(reader, after=calls[6]) == []
    assert uuids(reader, limit=0) == []
    assert page(reader, limit=2).accounting() == account(valid=7)
    with pytest.raises(ValueError, match="no call 'x' in this session"):
        reader.completions("s", after="x")


@pytest.mark.parametrize("uuid", ["../s/x", "/etc/passwd", "a\0b", "", ".", UUID4])
def test_a_record_is_found_by_nothing_but_its_uuid(writer: Writer, reader: SessionReader, uuid: str) -> None:
    call = commit(writer)
    assert reader.record("s", call.uuid) == record(call)
    assert reader.record("t", call.uuid) is None
    assert reader.record("s", uuid) is None


def test_calls_without_a_record_have_none(writer: Writer, reader: SessionReader) -> None:
    running, failed = writer.begin(intent()), writer.begin(intent())
    writer.fail(failed, "why", record(failed))
    assert reader.record("s", running.uuid) is None
    assert reader.record("s", failed.uuid) is None


def test_an_id_that_no_session_can_have_is_a_value_error(reader: SessionReader) -> None:
    for session_id in ("", "\ud800"):
        with pytest.raises(ValueError, match=r"empty|surrogates"):
            reader.completions(session_id)


# Sessions


def test_sessions_come_by_their_first_call_with_what_is_known_of_each(writer: Writer, reader: SessionReader) -> None:
    for session_id in ("z", "é/../", "a"):
        commit(writer, session_id)
    commit(writer, "z", parent_session_id="first")
    commit(writer, "z", parent_session_id="second")
    found = list(reader.sessions())
    assert [summary.session_id for summary in found] == ["z", "é/../", "a"]
    assert [summary.parent_session_id for summary in found] == ["first", None, None]
    assert [summary.calls for summary in found] == [3, 1, 1]
    assert found[0].first_call_at < found[1].first_call_at < found[2].first_call_at < found[0].last_call_at
    assert abs(time.time() - datetime.fromisoformat(found[0].first_call_at).timestamp()) < 5
    assert found[0].accounting == account(valid=3)
    assert found == [reader.summary(summary.session_id) for summary in found]


def test_sessions_are_paged(writer: Writer, reader: SessionReader) -> None:
    for number in range(5):
        commit(writer, f"s{number}")
    first = list(reader.sessions(limit=2))
    second = list(reader.sessions(after=first[-1].cursor, limit=2))
    third = list(reader.sessions(after=second[-1].cursor, limit=2))
    assert [summary.session_id for summary in first + second + third] == [f"s{number}" for number in range(5)]
    assert first[-1].cursor == min(name[:36] for name in _names_of(reader, "s1"))


def _names_of(reader: SessionReader, session_id: str) -> list[str]:
    return [name for directory in reader.catalogue.directories(session_id)[:1] for name in os.listdir(directory)]


def test_a_session_that_has_only_begun_is_listed(writer: Writer, reader: SessionReader) -> None:
    writer.begin(intent("é", parent_session_id="p"))
    (summary,) = reader.sessions()
    assert (summary.session_id, summary.parent_session_id, summary.accounting) == ("é", "p", account(open=1))


def test_a_broken_directory_never_breaks_the_list(
    writer: Writer, reader: SessionReader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commit(writer, "good")
    commit(writer, "É")
    sessions = tmp_path / "sessions"
    (sessions / "file").touch()
    (sessions / "empty").mkdir()
    (sessions / "Not An Id").mkdir()
    put(tmp_path, "x.json", b"torn", session="0" * 64)
    put(tmp_path, "x.json", b"torn", session="torn")
    misplaced = intent("good", uuid="y")
    put(tmp_path, "y.json", record(misplaced), session="1" * 64)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            found = {summary.session_id: summary.accounting for summary in reader.sessions()}
    assert found == {"good": account(valid=1), "É": account(valid=1), "torn": account(invalid=1)}
    assert caplog.text.count("0" * 64) == 1


def test_a_directory_that_cannot_be_read_is_left_out(
    writer: Writer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for session_id in ("a", "b", "c"):
        commit(writer, session_id)

    class OneUnreadable(Filesystem):
        def names(self, path: str) -> list[str]:
            if path.endswith("/b"):
                raise PermissionError(13, "Permission denied")
            return super().names(path)

    reader = SessionReader(tmp_path, writer, filesystem=OneUnreadable())
    assert [summary.session_id for summary in reader.sessions()] == ["a", "c"]
    assert "Permission denied" in caplog.text
    with pytest.raises(PermissionError):
        reader.completions("b")


def test_no_sessions_directory_is_no_sessions(tmp_path: Path) -> None:
    assert list(SessionReader(tmp_path / "nowhere", None).sessions()) == []


def test_ids_that_look_alike_never_answer_for_each_other(writer: Writer, reader: SessionReader) -> None:
    ids = ["a/b", "a/completions", "a/completions/b", "a%2Fb", "a", "A", "../../etc/passwd", "é", "e\u0301", "x" * 512]
    ids.append(hashlib.sha256(b"a/b").hexdigest())
    calls = {session_id: commit(writer, session_id) for session_id in ids}
    for session_id, call in calls.items():
        assert list(page(reader, session_id)) == [record(call)]
    assert {summary.session_id for summary in reader.sessions()} == set(ids)


# What the original proxy wrote


def test_records_of_the_original_proxy_are_read(reader: SessionReader, tmp_path: Path) -> None:
    for number, session_id in ((10, "basic-1"), (11, "Übung")):
        directory = hashlib.sha256(session_id.encode()).hexdigest()
        first, second = f"ffffffff-0000-4000-8000-0000000000{number}", f"00000000-0000-4000-8000-0000000000{number}"
        put(tmp_path, f"{first}.json", original_record(session_id, first, "2026-01-01T00:00:00.5+00:00"), directory)
        put(
            tmp_path,
            f"{second}.json",
            original_record(session_id, second, "2026-01-01T00:00:01.5+00:00", "p"),
            directory,
        )
        assert uuids(reader, session_id) == [first, second]
        assert uuids(reader, session_id, after=first) == [second]
        assert reader.exists(session_id)
        summary = reader.summary(session_id)
        assert summary is not None
        assert (summary.parent_session_id, summary.accounting) == ("p", account(valid=2))
        assert summary.first_call_at == "2026-01-01T00:00:00.500000+00:00"
        assert summary.last_call_at == "2026-01-01T00:00:01.500000+00:00"
    assert [summary.session_id for summary in reader.sessions()] == ["basic-1", "Übung"]
    (summary, *_) = reader.sessions(limit=1)
    assert [found.session_id for found in reader.sessions(after=summary.cursor)] == ["Übung"]


def test_a_session_that_goes_on_after_the_original_proxy_is_one_session(
    writer: Writer, reader: SessionReader, tmp_path: Path
) -> None:
    directory = hashlib.sha256(b"s").hexdigest()
    put(tmp_path, f"{UUID4}.json", original_record("s", UUID4, "2026-01-01T00:00:00+00:00"), directory)
    call = commit(writer)
    assert uuids(reader) == [UUID4, call.uuid]
    assert names(tmp_path) == [f"{call.uuid}.json"]
    assert [(summary.session_id, summary.calls) for summary in reader.sessions()] == [("s", 2)]


# Cost


@pytest.mark.parametrize("served", [iter, CompletionsPage.values])
def test_memory_is_one_record(
    writer: Writer, reader: SessionReader, served: Callable[[CompletionsPage], Iterator[object]]
) -> None:
    for _ in range(10):
        commit(writer, prompt_token_ids=list(range(100_000, 200_000)))
    tracemalloc.start()
    deque(served(page(reader)), maxlen=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 9 * 700_000  # the bytes of a record, and what they say


def test_headers_are_read_once_and_their_memory_is_bounded(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchyard_py.store.catalogue._HEADERS_KEPT", 5)
    filesystem = FaultyFilesystem()
    reader = SessionReader(tmp_path, writer, filesystem=filesystem)
    for _ in range(5):
        commit(writer)
    assert page(reader).accounting() == account(valid=5)
    filesystem.errors = {"read": 5}
    assert page(reader).accounting() == account(valid=5)
    filesystem.heal()
    for _ in range(5):
        commit(writer)
    assert page(reader).accounting() == account(valid=10)
    assert len(reader.catalogue._headers) == 5
