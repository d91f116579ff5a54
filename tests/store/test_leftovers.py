import logging
import os
import time
from pathlib import Path

import pytest
from stored_calls import intent, names, record

from switchyard_py.capture.ledger import Ledger
from switchyard_py.store import Filesystem, Leftovers, Writer
from switchyard_py.store import leftovers as leftovers_module
from switchyard_py.store.names import temporary_file, writer_of_temporary
from switchyard_py.store.writers import is_of_this_host

UUID = "0195f5a0-0000-7000-8000-000000000000"


@pytest.fixture
def living(tmp_path: Path) -> str:
    """The name of a writer that lives until the end of the test."""
    return Writer(tmp_path).name


@pytest.fixture
def dead(living: str) -> str:
    return living.rpartition(":")[0] + ":0123456789ab"


def put(directory: Path, writer: str, session: str = "s", uuid: str = UUID, age: float = 0) -> Path:
    path = directory / "sessions" / session / temporary_file(uuid, writer)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"half a rec")
    os.utime(path, (time.time() - age,) * 2)
    return path


@pytest.fixture(autouse=True)
def long_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers_module, "STEP_SECONDS", 5)


def leftovers(directory: Path) -> Leftovers:
    return Leftovers(str(directory / "sessions"), str(directory / "writers"), Filesystem())


def test_the_writer_of_a_temporary_file(dead: str) -> None:
    assert writer_of_temporary(temporary_file(UUID, dead)) == dead
    assert is_of_this_host(dead)
    for other in (f"{UUID}.open", f"{UUID}.json", "notes.tmp", f"{UUID}@{dead}.json"):
        assert writer_of_temporary(other) is None


def test_only_those_of_dead_writers_are_removed(tmp_path: Path, living: str, dead: str) -> None:
    gone = [put(tmp_path, dead), put(tmp_path, dead, "t")]
    kept = [put(tmp_path, living), put(tmp_path, living, "t"), tmp_path / "sessions" / "s" / f"{UUID}.json"]
    kept[-1].touch()
    found = leftovers(tmp_path)
    assert not found.clear()
    assert found.removed == 2
    assert [path.exists() for path in gone + kept] == [False] * 2 + [True] * 3


def test_on_another_machine_a_writer_can_look_dead_and_live(tmp_path: Path, living: str) -> None:
    elsewhere = "another-host" + living[living.index(":") :]
    young, old = put(tmp_path, elsewhere), put(tmp_path, elsewhere, "t", age=3700)
    assert not leftovers(tmp_path).clear()
    assert (young.exists(), old.exists()) == (True, False)


def test_a_step_ends_in_time_and_the_next_one_goes_on(
    tmp_path: Path, dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers_module, "STEP_SECONDS", 0)
    for number in range(50):
        put(tmp_path, dead, f"s{number}")
    found = leftovers(tmp_path)
    steps = 1
    while found.clear():
        steps += 1
    assert found.removed == 50
    assert steps > 50


def test_what_cannot_be_read_or_removed_stays(tmp_path: Path, dead: str) -> None:
    (tmp_path / "sessions" / "a file").touch()
    directory = put(tmp_path, dead, "t")
    directory.unlink()
    directory.mkdir()
    gone = put(tmp_path, dead)
    assert not leftovers(tmp_path).clear()
    assert (gone.exists(), directory.exists()) == (False, True)


async def kill(ledger: Ledger) -> None:
    """What `kill -9` leaves: the file of the writer, without its lock."""
    ledger._thread.close(5)
    os.close(ledger.writer._lock._descriptor)


async def test_a_start_after_a_kill_clears_up_while_it_serves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    killed = Ledger.open(tmp_path)
    call = await killed.begin(intent())
    for number in range(30):
        put(tmp_path, killed.writer.name, f"s{number}")
    await kill(killed)
    with caplog.at_level(logging.WARNING):
        ledger = Ledger.open(tmp_path)
        await ledger.begin(intent("t"))
        assert await ledger.close()
    assert names(tmp_path, "s") == [f"{call.uuid}.open"]
    assert not list(tmp_path.glob("sessions/*/*.tmp"))
    assert "30 temporary files that killed writers had left behind were removed" in caplog.text


async def test_after_a_clean_end_nothing_is_looked_for(tmp_path: Path, dead: str) -> None:
    ledger = Ledger.open(tmp_path)
    assert ledger.writer.leftovers() is None
    await ledger.close()


async def test_clearing_up_ends_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leftovers_module, "STEP_SECONDS", 0)
    monkeypatch.setattr(leftovers_module, "MOST_SECONDS", 0)
    killed = Ledger.open(tmp_path)
    for number in range(5):
        put(tmp_path, killed.writer.name, f"s{number}")
    await kill(killed)
    ledger = Ledger.open(tmp_path)
    await ledger.begin(intent("t"))
    assert "1 temporary files that killed writers had left behind were removed: stopped after 0 s" in caplog.text
    assert len(list(tmp_path.glob("sessions/*/*.tmp"))) == 4
    assert await ledger.close()


async def test_calls_a_killed_writer_left_open_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    killed = Ledger.open(tmp_path)
    for session in ("s", "s", "t"):
        await killed.begin(intent(session))
    ended = await killed.begin(intent("s"))
    opened = next((tmp_path / "sessions" / "s").glob(f"{ended.uuid}.open")).read_bytes()
    await ended.commit(record(ended.intent))
    (tmp_path / "sessions" / "s" / f"{ended.uuid}.open").write_bytes(opened)  # as a crash can leave both
    (tmp_path / "sessions" / "s" / f"{UUID}.open").write_bytes(b"not an intent")
    await kill(killed)
    ledger = Ledger.open(tmp_path)
    living = await ledger.begin(intent("s"))
    assert ledger.abandoned == 3
    assert "0 temporary files that killed writers had left behind were removed: all directories looked" in caplog.text
    assert "; 3 calls are abandoned" in caplog.text
    await living.fail("over", None)
    await ledger.close()
    again = Ledger.open(tmp_path)
    assert again.abandoned == 0  # all writers before had signed out, so nobody looked
    await again.close()
