"""Proxies to be stopped, as processes, in front of a scripted engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from running_proxy import ProxyProcess, bundle
from scripted_engine import ScriptedEngineThread
from stopping import StartStopping, Stopping, when_stepped


@pytest.fixture
def engine() -> Iterator[ScriptedEngineThread]:
    with ScriptedEngineThread() as thread:
        thread.default(when_stepped)
        yield thread


@pytest.fixture
def start(engine: ScriptedEngineThread, tmp_path: Path) -> Iterator[StartStopping]:
    """`start(workers=2, drain_seconds=0.3)`: seconds are those of `server`. At the end of the test it must be gone."""
    started: list[Stopping] = []

    def start(workers: int = 1, **seconds: float) -> Stopping:
        given = bundle(engine.engine.base_url, server={"drain_seconds": 0, "grace_seconds": 20, **seconds})
        (tmp_path / "bundle.yaml").write_text(yaml.safe_dump(given))
        command = ["-c", "bundle.yaml", "--", "serve", "--host", "127.0.0.1", "--port", "0"]
        process = ProxyProcess([*command, "--workers", str(workers)], tmp_path).__enter__()
        started.append(Stopping(process, tmp_path / "rl_data", engine))
        if workers > 1:
            # The first to answer is not the last to start.
            started[-1].until(lambda: len(list(tmp_path.glob("rl_data/writers/*"))) == workers)
        return started[-1]

    yield start
    for stopping in started:
        alive = stopping.process.exit_status is None
        if alive:
            stopping.process.kill()
        stopping.close()
        assert not alive
        assert "Traceback" not in stopping.process.log, stopping.process.log
