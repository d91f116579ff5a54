"""The processes under measurement, and what Linux knows of them."""

import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

REPOSITORY = Path(__file__).parents[2]
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Below the ports the kernel gives to whoever asks for any: another program could have it before our server does.
PORTS = range(20_000, 32_000)
START_SECONDS = 60.0
STOP_SECONDS = 30.0


class Process:
    """A Python server on a free loopback port; `arguments` follow the interpreter, `{port}` in them is the port.

    Raises RuntimeError, with what the process wrote, when it does not listen within `START_SECONDS`.
    """

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.port = _free_port()
        self._log = log
        command = [sys.executable, *(argument.replace("{port}", str(self.port)) for argument in arguments)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, env=environment(), stdout=output, stderr=subprocess.STDOUT
            )
        try:
            self._await_port(name)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Processor time of the process and its children so far, user and system, all threads; in steps of a tick."""
        return sum(map(_ticks, self._tree())) / TICKS_PER_SECOND

    def peak_bytes(self) -> int:
        """The most memory that was resident since the start, summed over the process and its children."""
        return sum(map(_peak_bytes, self._tree()))

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tree(self) -> list[int]:
        pids = [self.pid]
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
        return pids

    def _await_port(self, name: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError(f"{name} did not start:\n{self._log.read_text(errors='replace')}")


def resident_bytes(pid: int) -> int:
    """Memory of one process that is resident now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> int:
    """How many descriptors one process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def environment() -> dict[str, str]:
    """The environment of the processes: nothing that sends them through a proxy or changes their settings."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.lower().endswith("_proxy") and not key.startswith("SWITCHYARD_")
    }
    return {**kept, "PYTHONPATH": str(REPOSITORY / "tests")}


def _free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _ticks(pid: int) -> int:
    # proc(5): the name in parentheses may hold blanks; utime and stime are fields 14 and 15.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status has no VmHWM")
