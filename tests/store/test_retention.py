"""What goes by itself: old sessions, what is left of deleted ones, and tombstones."""

import logging
import os
import time
from pathlib import Path

import pytest
from stored_calls import account, commit, intent, page

from switchyard_py.store import Endings, Retention, SessionReader, Sweep, Writer
from switchyard_py.store.retention import TOMBSTONE_SECONDS

DAY = 24 * 3600.0
KEEP = Retention()


@pytest.fixture
def endings(reader: SessionReader) -> Endings:
    return Endings(reader)


def sweep(endings: Endings, retention: Retention) -> int:
    """All of a sweep; how many sessions it deleted."""
    sweeping = Sweep(endings, retention)
    while sweeping.go_on():
        pass
    return sweeping.deleted


def seal(endings: Endings, session_id: str = "s") -> None:
    endings.close(session_id)
    endings.seal(session_id)


def age(directory: Path, seconds: float, *, mark: bool = True, session: str = "s") -> None:
    """Make a session look as if nothing had been written for so long."""
    then = time.time() - seconds
    files = [directory / "sessions" / session, *(directory / "sessions" / session).glob("*")]
    for path in files + [directory / "closed" / session] * mark:
        os.utime(path, (then, then))


def exists(directory: Path, session: str = "s") -> bool:
    return (directory / "sessions" / session).exists()


def test_an_old_sealed_session_goes(
    tmp_path: Path, writer: Writer, endings: Endings, caplog: pytest.LogCaptureFixture
) -> None:
    commit(writer)
    commit(writer, "other")
    seal(endings)
    age(tmp_path, DAY)
    assert sweep(endings, KEEP) == 0
    assert sweep(endings, Retention(DAY + 60)) == 0
    assert exists(tmp_path)
    with caplog.at_level(logging.INFO):
        assert sweep(endings, Retention(DAY - 60)) == 1
    assert "1 sessions were deleted: nothing was written for 86340 s" in caplog.text
    assert not exists(tmp_path)
    assert endings.reader.deleted("s")
    assert exists(tmp_path, "other")
    assert sweep(endings, Retention(DAY - 60)) == 0


def test_a_session_that_was_sealed_only_now_stays(tmp_path: Path, writer: Writer, endings: Endings) -> None:
    commit(writer)
    seal(endings)
    age(tmp_path, DAY, mark=False)
    assert sweep(endings, Retention(60)) == 0
    assert exists(tmp_path)


@pytest.mark.parametrize("unsealed", [False, True])
def test_an_unsealed_session_goes_only_when_told_to(
    tmp_path: Path, writer: Writer, endings: Endings, unsealed: bool
) -> None:
    commit(writer)
    age(tmp_path, DAY, mark=False)
    assert sweep(endings, Retention(60, unsealed=unsealed)) == unsealed
    assert exists(tmp_path) != unsealed


def test_one_new_file_keeps_a_session(tmp_path: Path, writer: Writer, endings: Endings) -> None:
    commit(writer)
    newest = commit(writer)
    age(tmp_path, DAY, mark=False)
    # Written in place, as a tool that repairs a file does: the directory does not change.
    os.utime(tmp_path / "sessions" / "s" / f"{newest.uuid}.json")
    assert sweep(endings, Retention(60, unsealed=True)) == 0
    assert exists(tmp_path)


def test_open_calls_of_a_living_writer_keep_a_session(tmp_path: Path, writer: Writer, endings: Endings) -> None:
    other = Writer(tmp_path)
    other.begin(intent())
    age(tmp_path, DAY, mark=False)
    assert sweep(endings, Retention(60, unsealed=True)) == 0
    assert page(endings.reader).accounting() == account(open=1)
    assert writer.closing(intent()) is None
    other.close()
    assert sweep(endings, Retention(60, unsealed=True)) == 1


def test_sessions_with_other_directory_names_go_too(tmp_path: Path, writer: Writer, endings: Endings) -> None:
    call = commit(writer, "Not/readable")
    directory = Path(writer.directory(call)).name
    age(tmp_path, DAY, mark=False, session=directory)
    (tmp_path / "sessions" / ("0" * 64)).mkdir()  # nobody knows whose
    age(tmp_path, DAY, mark=False, session="0" * 64)
    assert sweep(endings, Retention(60, unsealed=True)) == 1
    assert os.listdir(tmp_path / "sessions") == ["0" * 64]
    assert endings.reader.deleted("Not/readable")


def test_a_deletion_that_was_broken_off_is_finished(tmp_path: Path, writer: Writer, endings: Endings) -> None:
    for _ in range(3):
        commit(writer)
    endings.bury("s")
    next(endings.remove("s"))
    assert exists(tmp_path)
    assert sweep(endings, KEEP) == 0
    assert not exists(tmp_path)
    assert endings.reader.deleted("s")


def test_a_tombstone_lives_a_week_and_longer_than_what_is_left(
    tmp_path: Path, writer: Writer, endings: Endings
) -> None:
    call = commit(writer)
    endings.bury("s")
    stuck = tmp_path / "sessions" / "s" / "directory"
    stuck.mkdir()
    for seconds, gone in ((TOMBSTONE_SECONDS - 60, False), (TOMBSTONE_SECONDS + 60, False)):
        os.utime(tmp_path / "closed" / "s", (time.time() - seconds,) * 2)
        sweep(endings, KEEP)
        assert endings.reader.deleted("s") != gone
    stuck.rmdir()
    sweep(endings, KEEP)
    assert not endings.reader.deleted("s")
    assert writer.closing(call) is None


def test_a_seal_of_a_session_without_calls_lives_a_week_and_others_for_good(
    tmp_path: Path, writer: Writer, endings: Endings
) -> None:
    commit(writer, "full")
    for session in ("full", "empty"):
        seal(endings, session)
        os.utime(tmp_path / "closed" / session, (0, 0))
    sweep(endings, KEEP)
    assert [name for name in os.listdir(tmp_path / "closed") if not name.startswith(".")] == ["full"]


def test_a_sweep_leaves_what_another_process_is_about_to_close(
    tmp_path: Path, writer: Writer, endings: Endings
) -> None:
    commit(writer)
    age(tmp_path, DAY, mark=False)
    with endings.reader.closings.lock():
        assert sweep(endings, Retention(60, unsealed=True)) == 0
    assert sweep(endings, Retention(60, unsealed=True)) == 1


def test_a_directory_that_is_gone_is_told_and_no_more(
    tmp_path: Path, endings: Endings, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sessions").rmdir()
    assert sweep(endings, Retention(60)) == 0
    assert "old sessions cannot be looked for" in caplog.text


@pytest.mark.parametrize(("seconds", "interval"), [(None, 3600), (600, 60), (DAY * 30, 3600)])
def test_how_often(seconds: float | None, interval: float) -> None:
    assert Retention(seconds).interval == interval
