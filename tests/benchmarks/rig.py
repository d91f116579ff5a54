"""The three servers of one measurement: the engine, the proxy as users start it, and the yardstick."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from benchmarks import client, wrk
from benchmarks.client import Load
from benchmarks.payloads import ROUTE, Payload
from benchmarks.processes import Process

READ_SECONDS = 300.0
RECORDS = "records"
PROXY_LOG = "proxy.log"


@dataclass(frozen=True, slots=True)
class Account:
    """What the proxy says of the calls it was sent."""

    begun: int
    valid: int

    def fault(self, calls: int) -> str | None:
        """Why the figures of so many calls cannot be trusted; None if every one is recorded and proved complete."""
        if self.begun == self.valid == calls:
            return None
        return f"{calls} calls were answered, {self.begun} begun, {self.valid} recorded as valid"


@dataclass(frozen=True, slots=True)
class Rig:
    """Running servers, and the directory the proxy records in."""

    engine: Process
    ours: Process
    yardstick: Process
    payload: Payload
    directory: Path
    body_file: Path

    def load(self, process: Process, connections: int, seconds: float, asked: Payload | None = None) -> Load:
        """Keep a server busy with buffered calls; `asked` are other ones than those of the payload."""
        asked = asked or self.payload
        if wrk.available():
            self.body_file.write_bytes(asked.request)
            return wrk.load(process.port, self.body_file, connections, seconds=seconds, path=asked.path)
        return client.buffered_load(process.port, asked.request, connections, seconds=seconds, path=asked.path)

    def account(self) -> Account:
        """The account of all sessions, as the proxy serves it."""
        url = f"http://127.0.0.1:{self.ours.port}/v1/sessions"
        reply = httpx.get(url, timeout=READ_SECONDS, trust_env=False).raise_for_status()
        accounts = [session["accounting"] for session in reply.json()["sessions"]]
        return Account(sum(one["begun"] for one in accounts), sum(one["valid"] for one in accounts))

    def record_bytes(self) -> int:
        """The size of all files the calls left."""
        return sum(file.stat().st_size for file in self.directory.glob("sessions/*/*"))


@contextmanager
def rig(payload: Payload, room: Path, gap: float = 0.0) -> Iterator[Rig]:
    """Start the servers, in new processes, with a capture directory under `room`; removes it at the end.

    The engine waits `gap` seconds before each token of a stream.
    """
    with ExitStack() as stack:
        scratch = Path(tempfile.mkdtemp(prefix="switchyard-bench-", dir=room))
        stack.callback(shutil.rmtree, scratch)
        arguments = ["-m", "benchmarks.fast_engine", "{port}", payload.name, str(gap)]
        engine = stack.enter_context(Process("the engine", arguments, scratch / "engine.log"))
        url = f"http://127.0.0.1:{engine.port}/v1"
        ours = stack.enter_context(proxy(url, scratch))
        naive = ["-m", "benchmarks.naive_proxy", "{port}", url]
        yardstick = stack.enter_context(Process("the yardstick", naive, scratch / "yardstick.log"))
        yield Rig(engine, ours, yardstick, payload, scratch / RECORDS, scratch / "request.json")


def proxy(url: str, scratch: Path) -> Process:
    """The proxy as users start it, in front of the engine at `url`; its records are in `RECORDS` of the directory."""
    bundle = scratch / "bundle.yaml"
    target = {"model": "actual-model", "base_url": url, "api_key": "dummy", "token_capture_engine": "vllm"}
    # JSON is YAML.
    bundle.write_text(json.dumps({"routes": {ROUTE: {"type": "model", "target": target}}}))
    options = ["--routing-profiles", str(bundle), "--rl-log-dir", str(scratch / RECORDS)]
    serve = ["--", "serve", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning"]
    return Process("the proxy", ["-m", "switchyard_py", *options, *serve], scratch / PROXY_LOG)


def check_room(option: str, room: Path, bytes_needed: int) -> None:
    """Raises ValueError, naming the option, when a directory cannot take the records of a measurement."""
    if not room.is_dir() or not os.access(room, os.W_OK):
        raise ValueError(f"{option}: {room} is no directory that can be written to")
    free = shutil.disk_usage(room).free
    if free < bytes_needed:
        raise ValueError(f"{option}: {room} has {free >> 20} MiB free, {bytes_needed >> 20} are needed; name another")
