"""Load from wrk, with a script that lets every call it sent be answered before it ends."""

import shutil
import signal
import subprocess
from pathlib import Path

from benchmarks.client import CALL_SECONDS, CHAT, SESSIONS, Load

SCRIPT = Path(__file__).with_name("wrk.lua")


def available() -> bool:
    return shutil.which("wrk") is not None


def load(port: int, body_file: Path, connections: int, *, seconds: float, path: str = CHAT) -> Load:
    """Keep so many connections busy for so long; calls that were sent are waited for.

    Raises RuntimeError when not every call was answered. Connections that a server closes when idle, which wrk counts
    as errors, do not matter.
    """
    limit = seconds + CALL_SECONDS
    command = ["wrk", "-t1", f"-c{connections}", f"-d{limit:.0f}s", f"--timeout={CALL_SECONDS:.0f}s", "-s", str(SCRIPT)]
    command += [f"http://127.0.0.1:{port}{path}", "--", str(seconds), str(body_file), str(SESSIONS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        drained: list[str] = []
        latency: list[str] = []
        for line in process.stdout:
            if line.startswith("drained "):
                drained = line.split()
                process.send_signal(signal.SIGINT)
            elif line.startswith("latency "):
                latency = line.split()
    if not drained or not latency:
        raise RuntimeError(f"wrk did not get an answer to every call within {limit:.0f} s")
    return Load(int(drained[1]), int(drained[2]), float(drained[3]), float(latency[1]), float(latency[2]))
