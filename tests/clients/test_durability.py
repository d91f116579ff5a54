"""Real agents run a tool only when the record of the call that asked for it is durable."""

import asyncio
import errno
import os
from pathlib import Path

from clients.client import RUN_SECONDS, Client, OpenWorkplace, StartStage, every_client
from clients.lineages import Expected
from stored_calls import FaultyFilesystem, SlowFilesystem

from switchyard_py.rollouts import MainReason

TASK = "Look at the records."
SLOW_SECONDS = 3.0
# From the first reply that asked for the tool: most agents try again meanwhile.
REFUSED_SECONDS = 8


def script(client: Client, directory: Path) -> list[dict[str, object]]:
    """One command, which writes down what the session's directory holds at that moment, then the end."""
    look = client.run_command(f"ls {directory}/sessions/s > seen.txt; echo LOOKED")
    return [
        {"when": {"contains": TASK, "tool": client.shell}, **look},
        {"when": {"contains": "LOOKED", "tool": client.shell}, **client.end_work()},
    ]


class IntentsOnly(FaultyFilesystem):
    """Takes the intent of a call and then nothing more of it, not even a mark that it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.errors = {"unlink": errno.EROFS}

    def rename(self, source: str, target: str) -> None:
        if self.errors and not target.endswith(".open"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        super().rename(source, target)


@every_client
async def test_with_a_slow_store_the_tool_runs_after_the_record_is_there(
    client: Client, workplace: OpenWorkplace, stage: StartStage, tmp_path: Path
) -> None:
    place = workplace(client)
    running, _ = await stage(script(client, tmp_path / "rl_data"), filesystem=SlowFilesystem(SLOW_SECONDS))
    assert await place.run(TASK, url=running.url, session="s") == 0, place.log
    assert [Path(name).suffix for name in (place.workspace / "seen.txt").read_text().split()] == [".json"]
    (record, _) = running.files(".json")
    # A record gets its name last, which is a change of the file.
    assert record.stat().st_ctime_ns < (place.workspace / "seen.txt").stat().st_mtime_ns
    assert await running.fates("s") == {"valid": 2}


@every_client
async def test_with_a_store_that_refuses_everything_the_tool_never_runs(
    client: Client, workplace: OpenWorkplace, stage: StartStage, expected: Expected, tmp_path: Path
) -> None:
    place = workplace(client)
    expected.no_main = MainReason.NO_TURN
    filesystem = IntentsOnly()
    running, engine = await stage(script(client, tmp_path / "rl_data"), filesystem=filesystem)
    working = asyncio.create_task(place.run(TASK, url=running.url, session="s"))
    async with asyncio.timeout(RUN_SECONDS):
        while (await engine.get("/simulator/requests")).json()["finished"] == 0:
            await asyncio.sleep(0.1)
    await asyncio.wait([working], timeout=REFUSED_SECONDS)
    working.cancel()
    await asyncio.wait([working])
    assert not (place.workspace / "seen.txt").exists()
    filesystem.heal()
    calls = (await engine.get("/simulator/requests")).json()["started"]
    await running.until_fates("s", {"failed": calls}, within=10)
