"""Parent and workers: who ends, who is replaced, and that nobody is left over."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from running_proxy import ProxyProcess, bundle
from scripted_engine import ScriptedEngineThread
from stopping import StartStopping, alive, counts_directory, workers_of


def test_a_service_manager_that_signals_every_process_ends_nobody_early(
    start: StartStopping, engine: ScriptedEngineThread
) -> None:
    proxy = start(workers=2)
    calling = proxy.call(stream=True)
    for pid in proxy.workers():
        os.kill(pid, signal.SIGTERM)
    proxy.stop()
    proxy.until(lambda: not proxy.listens())
    assert not calling.done()
    engine.step(100)
    assert calling.result().content.endswith(b"data: [DONE]\n\n")
    assert proxy.process.wait(within=15) == 0
    assert proxy.account() == {"valid": 1}


def test_workers_end_with_a_parent_that_is_killed(start: StartStopping, engine: ScriptedEngineThread) -> None:
    proxy = start(workers=2, drain_seconds=20)
    calling = proxy.call(stream=True)
    workers = proxy.workers()
    assert len(workers) == 2
    counts = counts_directory(workers)
    assert counts.is_dir()
    proxy.process.kill()
    assert b'"code":"shutting_down"' in calling.result().content
    proxy.until(lambda: not any(map(alive, workers)), within=4)
    assert not counts.exists()
    assert not proxy.listens()
    assert proxy.account() == {"failed": 1}
    assert [failure["reason"] for failure in proxy.failures()] == ["shutdown"]


def test_a_worker_that_dies_is_replaced(start: StartStopping, engine: ScriptedEngineThread) -> None:
    proxy = start(workers=2)
    calling = proxy.call(stream=False)
    before = proxy.workers()
    (intent,) = proxy.directory.glob("sessions/*/*.open")
    (holder,) = (pid for pid in before if f":{pid}:" in intent.read_text())
    os.kill(holder, signal.SIGKILL)
    assert calling.exception() is not None
    # The kernel closes the dead process's connection and its lock one after the other.
    proxy.until(lambda: proxy.account() == {"abandoned": 1})
    proxy.until(lambda: len(proxy.workers() - {holder}) == 2)
    (new,) = proxy.workers() - before
    # It has signed in when it can take calls.
    proxy.until(lambda: any(f":{new}:" in writer.name for writer in (proxy.directory / "writers").iterdir()))
    engine.step(100)
    assert proxy.post().status_code == 200
    proxy.stop()
    assert proxy.process.wait(within=15) == 0
    assert f"worker {holder} ended with status -9; calls it left open count as abandoned" in proxy.process.log
    assert not any(map(alive, before | {new}))


def test_a_worker_that_is_told_to_stop_lets_its_calls_end_and_is_replaced(
    start: StartStopping, engine: ScriptedEngineThread
) -> None:
    proxy = start(workers=2)
    calling = proxy.call(stream=False)
    before = proxy.workers()
    for pid in before:
        os.kill(pid, signal.SIGTERM)
    proxy.until(lambda: len(proxy.workers() - before) == 1)
    assert not calling.done()
    engine.step()
    assert calling.result().status_code == 200
    proxy.until(lambda: len(proxy.workers() - before) == 2)
    proxy.stop()
    assert proxy.process.wait() == 0
    assert proxy.account() == {"valid": 1}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_directory_that_cannot_be_used_is_one_line_and_the_end(tmp_path: Path, workers: int) -> None:
    (tmp_path / "rl_data").mkdir()
    (tmp_path / "rl_data" / "writers").write_text("in the way")
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(bundle("http://127.0.0.1:1/v1")))
    command = ["-c", "x.yaml", "--", "serve", "--host", "127.0.0.1", "--port", "0", "--workers", str(workers)]
    process, started_at = ProxyProcess(command, tmp_path), time.monotonic()
    with pytest.raises(AssertionError, match="does not serve"):
        process.__enter__()
    assert time.monotonic() - started_at < 15
    assert process.exit_status == 1
    errors = [line for line in process.log.splitlines() if line.startswith("error: ")]
    assert errors == [f"error: cannot use the record directory {tmp_path / 'rl_data'}: Not a directory"]
    assert "Traceback" not in process.log


def test_ctrl_c_before_the_workers_have_started_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(bundle("http://127.0.0.1:1/v1")))
    command = ["-c", "x.yaml", "--", "serve", "--host", "127.0.0.1", "--port", "0", "--workers", "2"]
    script = Path(sys.executable).with_name("switchyard")
    with (
        (tmp_path / "log").open("w+") as log,
        subprocess.Popen([script, *command], cwd=tmp_path, stderr=log, start_new_session=True) as process,
    ):
        deadline = time.monotonic() + 10
        while not workers_of(process.pid):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(0.03)  # Python is there, this program is not
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 0
        log.seek(0)
        said = log.read()
    assert "Traceback" not in said
    assert "all workers have ended" in said


def test_log_lines_tell_which_process_they_are_of(start: StartStopping) -> None:
    proxy = start(workers=2)
    workers = proxy.workers()
    proxy.stop()
    assert proxy.process.wait(within=15) == 0
    for pid in workers:
        assert re.search(rf" INFO \[{pid}\] ended$", proxy.process.log, re.MULTILINE)
    assert re.search(rf" INFO \[{proxy.process.pid}\] all workers have ended$", proxy.process.log, re.MULTILINE)


def test_workers_that_keep_dying_are_replaced_ever_more_slowly(start: StartStopping) -> None:
    proxy = start(workers=2)
    killed: set[int] = set()
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        for pid in proxy.workers() - killed:
            # Before it serves, as on a machine without memory.
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        time.sleep(0.01)
    # Each of the two waits 0.1, 0.2, 0.4, 0.8 and 1.6 s; without a wait there are dozens.
    assert 4 <= len(killed) <= 12
    proxy.stop()
    stopped_at = time.monotonic()
    assert proxy.process.wait(within=15) == 0
    assert time.monotonic() - stopped_at < 1.5
    assert "a new one starts in 0.4 s" in proxy.process.log
