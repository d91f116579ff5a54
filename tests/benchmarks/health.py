"""How long /health takes while the proxy has heavy work: what the event loop waits for, every call waits for."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from benchmarks import client
from benchmarks.client import quantile
from benchmarks.payloads import payload
from benchmarks.processes import environment
from benchmarks.rig import READ_SECONDS, rig

BAR_MS = 50.0
CONNECTIONS = 64
RECORDS = 150
SESSION = "long"


@dataclass(frozen=True, slots=True)
class Result:
    """/health under one kind of work, milliseconds; `fault` says why the figures cannot be trusted."""

    name: str
    probes: int
    p50_ms: float
    p99_ms: float
    most_ms: float
    fault: str | None


def during_calls(room: Path, seconds: float) -> Result:
    """While large calls run."""
    times: list[float] = []
    with rig(payload("large"), room) as servers:
        with _probing(servers.ours.port, seconds, times):
            load = servers.load(servers.ours, CONNECTIONS, seconds)
        return _result(f"{CONNECTIONS} large calls", times, servers.account().fault(load.calls))


def during_reads(room: Path, seconds: float) -> Result:
    """While a long session is read again and again."""
    times: list[float] = []
    sizes: list[int] = []
    with rig(payload("large"), room) as servers:
        port = servers.ours.port
        client.fixed_load(port, servers.payload.request, 8, [SESSION] * RECORDS)
        url = f"http://127.0.0.1:{port}/v1/sessions/{SESSION}/completions"
        with _probing(port, seconds, times), httpx.Client(timeout=READ_SECONDS, trust_env=False) as reader:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                with reader.stream("GET", url) as reply:
                    reply.raise_for_status()
                    sizes.append(sum(map(len, reply.iter_raw())))
        fault = servers.account().fault(RECORDS)
        if min(sizes) < servers.record_bytes():
            fault = f"a read gave {min(sizes)} bytes of a session of {servers.record_bytes()}"
        return _result(f"{len(sizes)} reads of a session of {RECORDS} large records", times, fault)


MEASUREMENTS: dict[str, Callable[[Path, float], Result]] = {
    "health during calls": during_calls,
    "health during reads": during_reads,
}


@contextmanager
def _probing(port: int, seconds: float, times: list[float]) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.prober", str(port), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as prober:
        yield
        assert prober.stdout is not None
        times += json.load(prober.stdout)


def _result(name: str, times: list[float], fault: str | None) -> Result:
    p50, p99 = (1000 * quantile(times, share) for share in (0.5, 0.99))
    return Result(name, len(times), p50, p99, 1000 * max(times), fault)
