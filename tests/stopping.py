"""A proxy process that is going to be stopped, in front of a scripted engine, and calls that run meanwhile."""

import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import orjson
from running_proxy import HELLO, ProxyProcess
from scripted_engine import Exchange, ScriptedEngineThread, Turn, chat

from switchyard_py.store import SessionReader

TURN = Turn(text="one two three")
HEADERS = {"proxy_x_session_id": "s"}


async def when_stepped(exchange: Exchange) -> None:
    """Answer after one step of the engine; a stream sends its first three events before."""
    if not exchange.request.json.get("stream"):
        await exchange.gate()
    await chat(TURN, stepped=True)(exchange)


class Stopping:
    """A proxy process that is going to be stopped, and its agents, each a thread with a connection of its own."""

    def __init__(self, process: ProxyProcess, directory: Path, engine: ScriptedEngineThread) -> None:
        self.process = process
        self.directory = directory
        self._engine = engine
        self._agents = ThreadPoolExecutor(8)

    def close(self) -> None:
        self._agents.shutdown()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> float:
        """Send the signal; the time of it."""
        self.process.send(how)
        return time.monotonic()

    def call(self, *, stream: bool) -> Future[httpx.Response]:
        """A call that has reached the engine; its response, read to the end."""
        before = self._engine.engine.started
        calling = self._agents.submit(self.post, stream=stream)
        self._engine.until(lambda: self._engine.engine.started > before, within=5)
        return calling

    def post(self, *, stream: bool = False) -> httpx.Response:
        with self.process.client() as client:
            return client.post("/v1/chat/completions", json={**HELLO, "stream": stream}, headers=HEADERS)

    def get(self, path: str) -> httpx.Response:
        """Over a new connection, so that any worker may take it."""
        with self.process.client() as client:
            return client.get(path)

    def get_later(self, path: str) -> Future[httpx.Response]:
        return self._agents.submit(self.get, path)

    def listens(self) -> bool:
        try:
            return self.get("/livez").status_code == 200
        except httpx.TransportError:
            return False

    def until(self, condition: Callable[[], bool], within: float = 20) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def until_draining(self) -> None:
        """Wait until every worker knows: each of some connections in a row is told so."""
        self.until(lambda: all(self.get("/readyz").status_code == 503 for _ in range(6)))

    def account(self) -> dict[str, int]:
        """The account as a process that starts now reads it, without zeros; it must balance."""
        page = SessionReader(self.directory, None).completions("s", include="all")
        assert page is not None
        assert list(page) is not None
        account = page.accounting()
        assert account["begun"] == sum(account.values()) - account["begun"], account
        return {state: count for state, count in account.items() if count and state != "begun"}

    def failures(self) -> list[dict[str, Any]]:
        """What the marks of failed calls say, in call order."""
        return [orjson.loads(file.read_bytes()) for file in sorted(self.directory.glob("sessions/*/*.failed"))]

    def workers(self) -> set[int]:
        """Process ids of the workers that live."""
        return workers_of(self.process.pid)


StartStopping = Callable[..., Stopping]
"""Type of the fixture `start`."""


def workers_of(parent: int) -> set[int]:
    """Process ids of the workers that a parent has started and that live."""
    return {pid for pid in _children(parent) if "spawn_main" in _command(pid)}


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def counts_directory(workers: set[int]) -> Path:
    """Where these processes keep their counts, as the kernel knows it."""
    maps = "\n".join(Path(f"/proc/{pid}/maps").read_text() for pid in workers)
    (directory,) = set(re.findall(r"\S*/switchyard-metrics-[^/]*", maps))
    return Path(directory)


def _children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def _command(pid: int) -> str:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return ""
