"""With `durable`, what was promised is flushed before it is told: each file, then the names of its directory."""

import asyncio
import contextlib
import errno
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from running_proxy import HELLO, bundle
from scripted_engine import ScriptedEngine, Turn, chat
from stored_calls import FaultyFilesystem, intent, record, states, until_written
from yaml import safe_dump

from switchyard_py.capture.ledger import Counters, Ledger, OpenCall, Outcome, StoreUnavailable


class Journal(FaultyFilesystem):
    """Notes what is flushed and renamed, and can wait at a rename."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, str]] = []
        self.unflushable = ""
        self.go = threading.Event()
        self.go.set()

    def sync(self, path: str) -> None:
        self.steps.append(("flush", os.path.basename(path)))
        if path.endswith(self.unflushable or "\0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(path)

    def rename(self, source: str, target: str) -> None:
        assert self.go.wait(5)
        self.steps.append(("rename", os.path.splitext(target)[1]))
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.steps.append(("unlink", os.path.splitext(path)[1]))
        super().unlink(path)


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
async def ledger(tmp_path: Path, journal: Journal) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(tmp_path, durable=True, retry_seconds=0.01, filesystem=journal)
    yield ledger
    journal.heal()
    assert await ledger.close()


def of(call: OpenCall) -> bytes:
    return record(call.intent)


def flushed(journal: Journal) -> list[str]:
    return sorted(name for step, name in journal.steps if step == "flush" and not name.endswith(".tmp"))


async def test_the_file_then_its_name_then_the_directories(ledger: Ledger, journal: Journal, tmp_path: Path) -> None:
    call = await ledger.begin(intent())
    assert journal.steps == [("rename", ".open")]  # nobody has anything of a call that only began
    journal.steps.clear()
    assert await call.commit(of(call)) is Outcome.COMMITTED
    file = f"{call.uuid}@{ledger.writer.name}.tmp"
    assert journal.steps[:3] == [("flush", file), ("rename", ".json"), ("unlink", ".open")]
    # The first record also makes sure of the directories above.
    assert flushed(journal) == sorted([tmp_path.name, "s", "sessions"])
    journal.steps.clear()
    again = await ledger.begin(intent())
    await again.commit(of(again))
    assert flushed(journal) == ["s"]


async def test_commits_that_wait_at_the_same_time_share_the_flush(ledger: Ledger, journal: Journal) -> None:
    calls = [await ledger.begin(intent(f"s{number % 2}")) for number in range(20)]
    journal.steps.clear()
    journal.go.clear()
    commits = [asyncio.ensure_future(call.commit(of(call))) for call in calls]
    await asyncio.sleep(0.01)
    journal.go.set()
    assert await asyncio.gather(*commits) == [Outcome.COMMITTED] * 20
    assert [name for name in flushed(journal) if name.startswith("s") and name != "sessions"] == ["s0", "s1"]
    # Everything is in its place before the first of them is told.
    kinds = [step if step != "flush" or name.endswith(".tmp") else "names" for step, name in journal.steps]
    assert kinds.count("rename") == 20
    assert "rename" not in kinds[kinds.index("names") :]


async def test_a_lost_call_is_marked_for_good_before_its_answer(ledger: Ledger, journal: Journal) -> None:
    call = await ledger.begin(intent())
    journal.steps.clear()
    journal.fill()
    assert await call.commit(of(call)) is Outcome.LOST
    assert [step for step in journal.steps if step[1] in (".lost", "s")] == [("rename", ".lost"), ("flush", "s")]


async def test_a_withdrawal_is_flushed_and_a_failure_is_not(ledger: Ledger, journal: Journal) -> None:
    committed, failed = await ledger.begin(intent()), await ledger.begin(intent("t"))
    await committed.commit(of(committed))
    journal.steps.clear()
    await failed.fail("why", None)
    assert flushed(journal) == []
    await committed.undelivered(of(committed))
    assert flushed(journal) == ["s"]


async def test_a_directory_that_cannot_be_flushed_withholds_its_answers_only(
    ledger: Ledger, journal: Journal, tmp_path: Path
) -> None:
    first = await ledger.begin(intent("other"))
    await first.commit(of(first))
    calls = {session: await ledger.begin(intent(session)) for session in ("good", "bad")}
    journal.go.clear()
    journal.unflushable = "/bad"
    good, bad = (asyncio.ensure_future(call.commit(of(call))) for call in calls.values())
    await asyncio.sleep(0.01)
    journal.go.set()
    assert await good is Outcome.COMMITTED
    with pytest.raises(StoreUnavailable, match="cannot flush the record: Input/output error"):
        await bad
    # The record is whole and its agent was told of an error.
    assert [path.suffix for path in (tmp_path / "sessions" / "bad").iterdir()] == [".undelivered"]
    assert ledger.counters == Counters(begun=3, committed=2, undelivered=1)
    with pytest.raises(RuntimeError, match="has ended already"):
        await calls["bad"].undelivered(of(calls["bad"]))


@pytest.mark.parametrize("above", ["/sessions", ""])
async def test_a_directory_above_that_cannot_be_flushed_withholds_all_answers_until_it_can(
    ledger: Ledger, journal: Journal, tmp_path: Path, above: str
) -> None:
    journal.unflushable = f"{tmp_path.name}{above}"
    for _ in range(2):
        call = await ledger.begin(intent())
        with pytest.raises(StoreUnavailable, match="cannot flush"):
            await call.commit(of(call))
    journal.unflushable = ""
    call = await ledger.begin(intent())
    assert await call.commit(of(call)) is Outcome.COMMITTED
    assert states(tmp_path) == [".undelivered", ".undelivered", ".json"]


async def test_a_record_that_cannot_be_flushed_nor_withdrawn_is_withdrawn_later(
    ledger: Ledger, journal: Journal, tmp_path: Path
) -> None:
    call = await ledger.begin(intent())
    journal.go.clear()
    commit = asyncio.ensure_future(call.commit(of(call)))
    await asyncio.sleep(0.01)
    journal.unflushable = "/s"
    flush = journal.sync

    def flush_and_break(path: str) -> None:
        if path.endswith("/s"):
            journal.refuse_renames()
        flush(path)

    journal.sync = flush_and_break  # type: ignore[method-assign]
    journal.go.set()
    with pytest.raises(StoreUnavailable, match="cannot flush"):
        await commit
    assert (states(tmp_path), ledger.unwritten) == ([".json"], 1)
    journal.heal()
    await until_written(ledger)
    assert states(tmp_path) == [".undelivered"]


async def test_what_waits_for_a_flush_is_bounded(ledger: Ledger) -> None:
    for number in range(30):
        call = await ledger.begin(intent(f"s{number}"))
        await call.fail("why", None)
    assert ledger._unsynced == set()
    assert len(ledger.writer._unsynced) <= 2  # the directories above


# The order of system calls of the whole program


@pytest.fixture
async def traced(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    """A proxy with `durability: power` under strace: its URL and the trace."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    file, trace, log = tmp_path / "bundle.yaml", tmp_path / "trace", tmp_path / "log"
    file.write_text(safe_dump(bundle(engine.base_url, capture={"durability": "power"})))
    # -D: the process is the proxy, and strace its child.
    options = ["-D", "-f", "-y", "-s", "4096", "-o", str(trace)]
    calls = "trace=fsync,fdatasync,rename,write,writev,sendto,sendmsg"
    command = [sys.executable, "-m", "switchyard_py", "-c", str(file), "--rl-log-dir", str(tmp_path / "rl_data"), "--"]
    serve = ["serve", "--host", "127.0.0.1", "--port", "0"]
    with log.open("w") as stderr:
        process = subprocess.Popen([strace, *options, "-e", calls, *command, *serve], stderr=stderr)
    try:
        yield await asyncio.to_thread(_url, process, log), trace
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 15)


def _url(process: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None and "ptrace" in log.read_text():
            pytest.skip(f"strace cannot trace here: {log.read_text()}")
        if found := re.search(r" on (http://[^ ,]+), workers: ", log.read_text()):
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{found[1]}/health", trust_env=False, verify=False)
                return found[1]
        time.sleep(0.05)
    raise AssertionError(f"the proxy does not serve: {log.read_text()}")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_order_of_system_calls_up_to_the_tail(
    traced: tuple[str, Path], engine: ScriptedEngine, stream: bool, tmp_path: Path
) -> None:
    url, trace = traced
    engine.reply(chat(Turn(text="a wooden answer", tool_calls=[("run", {})])))
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        response = await client.post(
            f"{url}/v1/chat/completions", json={**HELLO, "stream": stream}, headers={"proxy_x_session_id": "s"}
        )
    assert response.status_code == 200
    (file,) = (tmp_path / "rl_data" / "sessions" / "s").glob("*.json")
    to_agent = r"(?:write|writev|sendto|sendmsg)\(\d+<(?:socket|TCP).*"
    # In a stream the tail begins with the last fragment of the call, in a buffered answer with the head.
    last_fragment, finish, done = r"\\\"arguments\\\":\\\"}\\\"", r"\\\"finish_reason\\\":\\\"", r"\[DONE\]"
    tail = ".*".join((last_fragment, finish, done)) if stream else rf"HTTP/1\.1 200 .*x-request-id: {file.stem}"
    wanted = [
        rf"fsync\(\d+<[^>]*/{file.stem}@[^>]*\.tmp>",
        rf'rename\("[^"]*", "[^"]*/{file.name}"',
        r"fsync\(\d+<[^>]*/rl_data/sessions/s>",
        to_agent + tail,
    ]
    await asyncio.sleep(0.1)  # the trace is written by another process
    lines = trace.read_text().splitlines()
    places = [[number for number, line in enumerate(lines) if re.search(pattern, line)] for pattern in wanted]
    assert [len(found) for found in places] == [1, 1, 1, 1]
    assert places == sorted(places)
    # Nothing an agent can act on has left in an earlier write.
    for actionable in (last_fragment, finish, done):
        written = [number for number, line in enumerate(lines) if re.search(to_agent + actionable, line)]
        assert min(written, default=len(lines)) >= places[-1][0]
