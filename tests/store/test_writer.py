import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from stored_calls import FaultyFilesystem, intent, names, record

from switchyard_py.store import State, Writer
from switchyard_py.store.intent import CallIntent, decode_intent
from switchyard_py.store.uuids import ticks_of

Opener = Callable[..., Writer]
HOUR = 3_600_000_000_000


@pytest.fixture
def open_writer(tmp_path: Path) -> Iterator[Opener]:
    opened: list[Writer] = []

    def open_one(**settings: object) -> Writer:
        opened.append(Writer(tmp_path, **settings))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for writer in opened:
        writer.close()


@pytest.fixture
def filesystem() -> FaultyFilesystem:
    return FaultyFilesystem()


@pytest.fixture
def writer(open_writer: Opener, filesystem: FaultyFilesystem) -> Writer:
    return open_writer(filesystem=filesystem)


def content(directory: Path, call: CallIntent, state: State) -> bytes:
    return (directory / "sessions" / call.session_id / (call.uuid + state.suffix)).read_bytes()


def test_an_intent_is_one_line_on_disk_when_the_call_begins(writer: Writer, tmp_path: Path) -> None:
    call = writer.begin(intent(parent_session_id="p"))
    assert names(tmp_path) == [f"{call.uuid}.open"]
    line = content(tmp_path, call, State.OPEN)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert msgspec.json.decode(line) == {
        "uuid": call.uuid,
        "session_id": "s",
        "parent_session_id": "p",
        "writer": writer.name,
        "route": "policy",
        "target": "model@127.0.0.1",
        "dialect": "chat",
        "request_id": "req-1",
        "digest": "ab" * 32,
        "started_at": "2026-03-01T12:00:00.000000+00:00",
    }
    assert decode_intent(line) == call


def test_everything_is_for_the_owner_only_whatever_the_umask(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        writer = Writer(tmp_path / "log")
        call = writer.begin(intent())
        writer.commit(call, record(call))
    finally:
        os.umask(previous)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "log", *(tmp_path / "log").rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    writer.close()


def test_a_record_replaces_the_intent(writer: Writer, tmp_path: Path) -> None:
    call = writer.begin(intent())
    writer.commit(call, record(call))
    assert names(tmp_path) == [f"{call.uuid}.json"]
    assert content(tmp_path, call, State.COMMITTED) == record(call)


@pytest.mark.parametrize("previous", [State.OPEN, State.LOST, State.COMMITTED])
def test_an_undelivered_record_replaces_what_was_there(writer: Writer, tmp_path: Path, previous: State) -> None:
    call = writer.begin(intent())
    if previous is State.LOST:
        writer.lose(call)
    if previous is State.COMMITTED:
        writer.commit(call, record(call))
    writer.withdraw(call, record(call), previous)
    assert names(tmp_path) == [f"{call.uuid}.undelivered"]
    assert content(tmp_path, call, State.UNDELIVERED) == record(call)


def test_a_lost_call_keeps_its_intent(writer: Writer, tmp_path: Path) -> None:
    call = writer.begin(intent())
    writer.lose(call)
    assert names(tmp_path) == [f"{call.uuid}.lost"]
    assert decode_intent(content(tmp_path, call, State.LOST)) == call


@pytest.mark.parametrize(
    ("seen", "kept"), [(None, None), (b'{"a":[1, 2]}', {"a": [1, 2]}), (b"<html>\xff", "<html>\ufffd"), (b"", "")]
)
def test_a_failed_call_keeps_its_intent_the_reason_and_what_was_seen(
    writer: Writer, tmp_path: Path, seen: bytes | None, kept: object
) -> None:
    call = writer.begin(intent())
    writer.fail(call, "cut \ud800 off", seen)
    assert names(tmp_path) == [f"{call.uuid}.failed"]
    body = content(tmp_path, call, State.FAILED)
    assert decode_intent(body) == call
    assert msgspec.json.decode(body)["reason"] == "cut ? off"
    assert msgspec.json.decode(body)["seen"] == kept


@pytest.mark.parametrize("field", ["session_id", "request_id", "route"])
def test_a_text_that_cannot_be_stored_is_refused_before_anything_is_written(
    writer: Writer, tmp_path: Path, field: str
) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        writer.begin(intent(**{field: "\ud800"}))
    assert os.listdir(tmp_path / "sessions") == []


# A disk that refuses


def test_a_call_that_cannot_begin_leaves_nothing(writer: Writer, filesystem: FaultyFilesystem, tmp_path: Path) -> None:
    filesystem.fill()
    with pytest.raises(OSError, match="No space"):
        writer.begin(intent())
    # Not even its session: readers would find one without a call.
    assert os.listdir(tmp_path / "sessions") == []


def test_a_session_goes_on_where_a_call_could_not_begin(
    writer: Writer, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    call = writer.begin(intent())
    for _ in range(2):
        filesystem.fill()
        with pytest.raises(OSError, match="No space"):
            writer.begin(intent())
        filesystem.heal()
    writer.commit(call, record(call))
    later = writer.begin(intent())
    assert names(tmp_path) == [f"{call.uuid}.json", f"{later.uuid}.open"]


def test_a_session_whose_first_call_could_not_begin_can_have_another(
    writer: Writer, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    filesystem.fill()
    with pytest.raises(OSError, match="No space"):
        writer.begin(intent())
    filesystem.heal()
    call = writer.begin(intent())
    assert names(tmp_path) == [f"{call.uuid}.open"]


@pytest.mark.parametrize("trouble", ["fill", "freeze", "refuse_renames"])
def test_a_refused_record_leaves_the_call_open(
    writer: Writer, filesystem: FaultyFilesystem, tmp_path: Path, trouble: str
) -> None:
    call = writer.begin(intent())
    getattr(filesystem, trouble)()
    with pytest.raises(OSError):  # noqa: PT011 - which one is the disk's affair
        writer.commit(call, record(call))
    assert names(tmp_path) == [f"{call.uuid}.open"]


def test_marks_and_withdrawals_need_no_space(writer: Writer, filesystem: FaultyFilesystem, tmp_path: Path) -> None:
    lost, failed, withdrawn = (writer.begin(intent()) for _ in range(3))
    writer.commit(withdrawn, record(withdrawn))
    filesystem.fill()
    writer.lose(lost)
    writer.fail(failed, "no space", b"{}")
    writer.withdraw(withdrawn, record(withdrawn), State.COMMITTED)
    assert names(tmp_path) == [f"{lost.uuid}.lost", f"{failed.uuid}.failed", f"{withdrawn.uuid}.undelivered"]


def test_a_lost_call_that_fails_after_all_leaves_no_lost_mark(writer: Writer, tmp_path: Path) -> None:
    call = writer.begin(intent())
    writer.lose(call)
    writer.fail(call, "gone", None, State.LOST)
    assert names(tmp_path) == [f"{call.uuid}.failed"]


def test_a_temporary_file_that_could_not_be_removed_does_not_hinder_the_next_try(
    writer: Writer, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    call = writer.begin(intent())
    filesystem.fill()
    filesystem.errors["unlink"] = filesystem.errors["write"]
    with pytest.raises(OSError, match="No space"):
        writer.commit(call, record(call))
    assert len(names(tmp_path)) == 2
    filesystem.heal()
    writer.commit(call, record(call))
    assert names(tmp_path) == [f"{call.uuid}.json"]


def test_a_record_is_committed_even_when_its_intent_cannot_be_removed(
    writer: Writer, filesystem: FaultyFilesystem, tmp_path: Path
) -> None:
    call = writer.begin(intent())
    filesystem.errors = {"unlink": 5}
    writer.commit(call, record(call))
    assert f"{call.uuid}.json" in names(tmp_path)


def test_directories_that_vanish_are_made_again(writer: Writer, tmp_path: Path) -> None:
    calls = [writer.begin(intent()) for _ in range(4)]
    writer.commit(calls[3], record(calls[3]))
    for step in (
        lambda: writer.commit(calls[0], record(calls[0])),
        lambda: writer.lose(calls[1]),
        lambda: writer.fail(calls[2], "why", None),
        lambda: writer.withdraw(calls[3], record(calls[3]), State.COMMITTED),
        lambda: writer.begin(intent()),
    ):
        shutil.rmtree(tmp_path / "sessions")
        step()
        assert len(names(tmp_path)) == 1


@pytest.mark.parametrize("vanished", ["", "writers"])
def test_a_writer_whose_sign_vanished_signs_in_again(open_writer: Opener, tmp_path: Path, vanished: str) -> None:
    writer = open_writer()
    writer.begin(intent())
    time.sleep(0.06)
    writer.begin(intent())
    shutil.rmtree(tmp_path / vanished)
    call = writer.begin(intent())
    assert os.listdir(tmp_path / "writers") == [writer.name] == [call.writer]
    assert f"{call.uuid}.open" in names(tmp_path)


def test_a_file_in_place_of_a_session_directory_is_an_error(writer: Writer, tmp_path: Path) -> None:
    (tmp_path / "sessions" / "s").touch()
    with pytest.raises(NotADirectoryError):
        writer.begin(intent())


# Order


def test_calls_sort_as_they_began_while_the_clock_steps_back(open_writer: Opener) -> None:
    times = iter(range(10 * HOUR, 0, -HOUR))
    writer = open_writer(clock=lambda: next(times))
    begun = [writer.begin(intent(f"s{number % 2}")).uuid for number in range(10)]
    assert begun == sorted(begun)


def test_calls_sort_as_they_began_after_a_restart_with_the_clock_stepped_back(open_writer: Opener) -> None:
    now = time.time_ns()
    first = open_writer(clock=lambda: now).begin(intent())
    second = open_writer(clock=lambda: now - HOUR).begin(intent())
    assert first.uuid < second.uuid


def test_calls_of_two_living_writers_sort_as_they_began(open_writer: Opener) -> None:
    now = time.time_ns()
    writers = [open_writer(clock=lambda: now), open_writer(clock=lambda: now - HOUR)]
    time.sleep(0.06)  # the stamp of `writers` is settled: now the probes decide
    begun = [writers[turn % 2].begin(intent()).uuid for turn in range(20)]
    assert begun == sorted(begun)


def test_calls_of_a_writer_that_comes_later_are_seen_in_a_known_session(open_writer: Opener, tmp_path: Path) -> None:
    now = time.time_ns()
    early = open_writer(clock=lambda: now - HOUR)
    begun = [early.begin(intent()).uuid]
    time.sleep(0.06)
    begun.append(early.begin(intent()).uuid)
    late = Writer(tmp_path, clock=lambda: now)
    begun.append(late.begin(intent()).uuid)
    late.close()  # come and gone between two calls of the other
    begun.append(early.begin(intent()).uuid)
    assert begun == sorted(begun)


def test_a_known_session_is_not_listed_again_while_nobody_else_writes(
    writer: Writer, filesystem: FaultyFilesystem
) -> None:
    time.sleep(0.06)
    writer.begin(intent())
    filesystem.errors = {"names": 5, "make_directory": 5}
    writer.begin(intent())


def test_names_of_the_original_proxy_and_foreign_ones_do_not_disturb_the_order(
    open_writer: Opener, tmp_path: Path
) -> None:
    directory = tmp_path / "sessions" / "s"
    directory.mkdir(parents=True)
    for name in ("f14703e0-daf8-4df3-81f4-71f5526b9b2c.json", "ffffffff-ffff-7fff-bfff-ffffffffffff.json", "x.txt"):
        (directory / name).touch()
    now = time.time_ns()
    call = open_writer(clock=lambda: now).begin(intent())
    ticks = ticks_of(call.uuid)
    assert ticks is not None
    assert ticks * 1_000_000 // 4096 - now < 1_000_000


def test_the_memory_of_known_sessions_is_bounded(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchyard_py.store.writer._KNOWN_SESSIONS", 5)
    time.sleep(0.06)
    begun = [writer.begin(intent(f"s{number % 9}")).uuid for number in range(30)]
    assert begun == sorted(begun)
    assert len(writer._known) == 5
