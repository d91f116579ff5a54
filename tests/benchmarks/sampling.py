"""Where the proxy's time goes: stacks sampled by py-spy while it is under load, summed up by place."""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import client
from benchmarks.payloads import STREAM_CHUNKS, payload
from benchmarks.rig import Rig, rig

SAMPLES_PER_SECOND = 200
STREAM_GAP = 0.04
LOADS = (("small", 32), ("large", 32), ("stream", 200))

# One frame of py-spy's raw form: the function, and the file as it was imported.
_FRAME = re.compile(r"(?P<function>\S+) \((?P<file>[^:()]+)")
# Threads that wait for work, which py-spy takes for running ones right after they were woken or put to sleep.
_WAITING = ("wait (threading.py", "_worker (concurrent/futures/thread.py")
_PACKAGE = "switchyard_py/"
_LOOP_FRAME = "run (asyncio/runners.py"
EVENT_LOOP = "event loop and sockets (uvloop)"


@dataclass(frozen=True, slots=True)
class Profile:
    """Shares of the samples of one load by place, the largest first; they add up to 1."""

    name: str
    samples: int
    shares: dict[str, float]


def find_sampler() -> str:
    """The path of py-spy, next to the interpreter or on the PATH; raises ValueError when there is none."""
    path = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if path is None:
        raise ValueError("--profile needs py-spy: pip install py-spy")
    return path


def profile(name: str, connections: int, room: Path, seconds: float) -> Profile:
    """Sample the proxy under one of the loads of the tables.

    Raises RuntimeError when py-spy may not look into the process, which wants root or ptrace_scope 0.
    """
    with rig(payload(name), room, STREAM_GAP) as servers:
        client.stream_load(servers.ours.port, servers.payload.request, 1, 2, 0.0)
        output = servers.body_file.with_suffix(".stacks")
        command = [find_sampler(), "record", "--pid", str(servers.ours.pid), "--output", str(output), "--format", "raw"]
        command += ["--rate", str(SAMPLES_PER_SECOND), "--duration", f"{seconds:.0f}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as sampler:
            _load(servers, connections, seconds)
            _, said = sampler.communicate()
        if sampler.returncode or not output.exists():
            raise RuntimeError(f"py-spy failed: {said.strip()}")
        places: Counter[str] = Counter()
        for line in output.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            frames = stack.split(";")
            if not any(waiting in frames[-1] for waiting in _WAITING):
                places[_place(frames)] += int(count)
    total = places.total()
    return Profile(f"{name} x {connections}", total, {place: count / total for place, count in places.most_common()})


def _load(servers: Rig, connections: int, seconds: float) -> None:
    port, body = servers.ours.port, servers.payload.request
    if servers.payload.streamed:
        stream_seconds = STREAM_CHUNKS * STREAM_GAP
        client.stream_load(port, body, connections, max(1, round(seconds / stream_seconds)), stream_seconds)
    else:
        servers.load(servers.ours, connections, seconds)


def _place(stack: list[str]) -> str:
    """The module of ours or the library of the innermost frame; the standard library counts as its caller."""
    if _LOOP_FRAME in stack[-1]:
        return EVENT_LOOP
    for frame in reversed(stack):
        match = _FRAME.match(frame)
        if match is None:
            continue
        file = match["file"]
        if _PACKAGE in file:
            return _PACKAGE + file.rpartition(_PACKAGE)[2]
        library = file.partition("/")[0]
        if library in _libraries():
            return library
    return "other"


def _libraries() -> set[str]:
    return {entry.name for entry in Path(sysconfig.get_path("purelib")).iterdir() if entry.is_dir()}


def table(profiles: list[Profile], least: float = 0.02) -> Iterator[str]:
    """Shares in percent, a column a load; places below `least` in every load are summed up as the rest."""
    places = Counter[str]()
    for one in profiles:
        places.update(one.shares)
    shown = [place for place, _ in places.most_common() if any(one.shares.get(place, 0) >= least for one in profiles)]
    yield f"| where | {' | '.join(one.name for one in profiles)} |"
    yield "| --- |" + " ---: |" * len(profiles)
    for place in shown:
        yield f"| {place} | {' | '.join(f'{100 * one.shares.get(place, 0):.0f} %' for one in profiles)} |"
    rest = (1 - sum(one.shares.get(place, 0) for place in shown) for one in profiles)
    yield f"| the rest | {' | '.join(f'{100 * share:.0f} %' for share in rest)} |"
