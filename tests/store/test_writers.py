import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from switchyard_py.store import writers
from switchyard_py.store.writers import WriterLock, WritersWatch, is_alive

HOLD = """
import sys, time
from switchyard_py.store.writers import WriterLock
lock = WriterLock(sys.argv[1])
print(lock.name, flush=True)
time.sleep(60)
"""


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path)


def settle() -> None:
    """Wait until the stamp of a directory cannot be given again."""
    time.sleep(0.06)


def test_a_writer_is_named_host_boot_pid_random(directory: str) -> None:
    lock = WriterLock(directory)
    assert re.fullmatch(rf"[A-Za-z0-9._-]+:[0-9a-f-]+:{os.getpid()}:[0-9a-f]{{12}}", lock.name)
    assert os.listdir(directory) == [lock.name]
    lock.release()


def test_lives_until_it_is_released_also_for_its_own_process(directory: str) -> None:
    lock = WriterLock(directory)
    assert is_alive(directory, lock.name)
    lock.release()
    assert not is_alive(directory, lock.name)
    assert os.listdir(directory) == []


@pytest.mark.parametrize("name", ["", "nobody", "../secret", "a/b", "a\0b"])
def test_a_name_without_a_file_is_nobody(directory: str, name: str) -> None:
    assert not is_alive(directory, name)


def test_a_killed_writer_is_dead_and_the_next_one_clears_it_away(directory: str) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, directory], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()
        assert is_alive(directory, name)
        child.send_signal(signal.SIGKILL)
    assert not is_alive(directory, name)
    assert os.listdir(directory) == [name]
    lock = WriterLock(directory)
    assert os.listdir(directory) == [lock.name]
    lock.release()


def test_a_file_that_died_before_it_was_named_is_cleared_away(directory: str) -> None:
    Path(directory, "host:boot:1:ab.new").touch()
    lock = WriterLock(directory)
    assert os.listdir(directory) == [lock.name]
    lock.release()


def test_starting_writers_never_clear_each_other_away(directory: str) -> None:
    failures: list[str] = []

    def come_and_go() -> None:
        for _ in range(40):
            lock = WriterLock(directory)
            if not is_alive(directory, lock.name):
                failures.append(lock.name)
            lock.release()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert os.listdir(directory) == []


def test_a_start_whose_file_was_taken_for_a_dead_one_begins_again(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The worst moment for a clean-up: between the making of the file and its locking.
    lock_file = fcntl.flock
    removed: list[str] = []

    def remove_first(descriptor: int, operation: int) -> None:
        if not removed:
            removed.extend(os.listdir(directory))
            os.unlink(Path(directory, removed[0]))
        lock_file(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    lock = WriterLock(directory)
    assert os.listdir(directory) == [lock.name]
    assert removed != [lock.name]
    assert is_alive(directory, lock.name)
    lock.release()


def test_the_watch_is_quiet_while_nobody_else_writes(directory: str) -> None:
    lock = WriterLock(directory)
    watch = WritersWatch(directory, lock.name)
    settle()
    assert watch.others_may_write()  # the first look: nothing is known of the time before
    assert not watch.others_may_write()
    assert not watch.others_may_write()
    lock.release()


def test_the_watch_sees_another_writer_come_and_go(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_PROBE_SECONDS", 0.0)
    lock = WriterLock(directory)
    watch = WritersWatch(directory, lock.name)
    settle()
    watch.others_may_write()
    other = WriterLock(directory)
    assert [watch.others_may_write() for _ in range(3)] == [True] * 3
    settle()
    assert [watch.others_may_write() for _ in range(3)] == [True] * 3
    os.close(other._descriptor)  # killed: its file stays
    assert not watch.others_may_write()
    lock.release()


def test_the_watch_sees_a_writer_that_came_and_went_between_two_looks(directory: str) -> None:
    lock = WriterLock(directory)
    watch = WritersWatch(directory, lock.name)
    settle()
    watch.others_may_write()
    assert not watch.others_may_write()
    WriterLock(directory).release()
    assert watch.others_may_write()
    settle()
    watch.others_may_write()
    assert not watch.others_may_write()
    lock.release()


def test_the_watch_does_not_trust_a_fresh_stamp(directory: str) -> None:
    # A writer that comes within one tick of the kernel's clock leaves the directory's stamp as it was.
    lock = WriterLock(directory)
    watch = WritersWatch(directory, lock.name)
    settle()
    stamp = time.time_ns()
    os.utime(directory, ns=(stamp, stamp))
    watch.others_may_write()
    other = WriterLock(directory)
    os.utime(directory, ns=(stamp, stamp))
    assert watch.others_may_write()
    other.release()
    lock.release()


def test_a_living_writer_is_probed_at_most_once_a_second(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, other = WriterLock(directory), WriterLock(directory)
    watch = WritersWatch(directory, lock.name)
    settle()
    probes: list[str] = []
    alive = writers.is_alive

    def count(directory: str, writer: str) -> bool:
        probes.append(writer)
        return alive(directory, writer)

    monkeypatch.setattr(writers, "is_alive", count)
    assert all(watch.others_may_write() for _ in range(20))
    assert probes == [other.name]
    other.release()
    lock.release()
