"""Kill writers in the middle of their work and look at what they left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest
from stored_calls import names

from switchyard_py.store import SessionReader, Writer

# 16 calls at a time, each committed, withdrawn or failed; prints each uuid after its state was promised.
WORK = """
import asyncio, os, sys
from pathlib import Path
from stored_calls import intent, record
from switchyard_py.capture.ledger import Ledger

def tell(state, call):
    os.write(1, f"{state} {call.uuid}\\n".encode())

async def call_after_call(ledger, kind):
    while True:
        call = await ledger.begin(intent())
        tell("begun", call)
        data = record(call.intent, padding="x" * 20_000)
        if kind == 0:
            await call.fail("why", data)
            tell("failed", call)
        else:
            await call.commit(data)
            tell("committed", call)
        if kind == 1:
            await call.undelivered(data)
            tell("undelivered", call)

async def main():
    ledger = Ledger.open(Path(sys.argv[1]))
    await asyncio.gather(*(call_after_call(ledger, number % 4) for number in range(16)))

asyncio.run(main())
"""


@pytest.mark.parametrize("writers", [1, 2])
def test_after_a_kill_no_call_is_missing_and_no_record_is_torn(tmp_path: Path, writers: int) -> None:
    told: dict[str, str] = {}
    for moment in (0.05, 0.11):
        children = [
            subprocess.Popen(
                [sys.executable, "-c", WORK, str(tmp_path)],
                env=os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(__file__))},
                stdout=subprocess.PIPE,
            )
            for _ in range(writers)
        ]
        deadline = time.monotonic() + 10
        while not (tmp_path / "sessions" / "s").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(moment)
        for child in children:
            child.send_signal(signal.SIGKILL)
        for child in children:
            output, _ = child.communicate()
            for line in output.decode().splitlines():
                state, _, uuid = line.partition(" ")
                told[uuid] = state
    assert len(told) > 3

    reader = SessionReader(tmp_path, None)
    page = reader.completions("s", include="all")
    assert page is not None
    served = {orjson.loads(data)["uuid"] for data in page}
    account = page.accounting()
    assert page.faults == []
    assert account["open"] == account["lost"] == account["invalid"] == 0
    assert account["begun"] == sum(account.values()) - account["begun"]

    found: dict[str, set[str]] = {}
    for name in names(tmp_path):
        if not name.endswith(".tmp"):
            uuid, _, suffix = name.rpartition(".")
            found.setdefault(uuid, set()).add(suffix)
    assert account["begun"] == len(found)
    assert set(told) <= set(found)
    for uuid, state in told.items():
        match state:
            case "committed":
                assert uuid in served
                assert found[uuid] & {"json", "undelivered"}
            case "undelivered":
                assert uuid in served
                assert "undelivered" in found[uuid]
            case "failed":
                assert "failed" in found[uuid]

    # The next start clears the dead away and changes no account.
    Writer(tmp_path).close()
    assert os.listdir(tmp_path / "writers") == []
    summary = SessionReader(tmp_path, None).summary("s")
    assert summary is not None
    assert summary.accounting == account
