from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from switchyard_py.cli import app

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Invoke:
    """Run a command line in an empty directory, with no variable of the proxy set but those given."""
    for name in (
        "HOST",
        "PORT",
        "WORKERS",
        "LOG_LEVEL",
        "ACCESS_LOG",
        "ROUTING_PROFILES",
        "RL_LOG_DIR",
        "SESSION_SECRET",
    ):
        monkeypatch.delenv(f"SWITCHYARD_{name}", raising=False)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str | Path, **environ: str) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environ, prog_name="switchyard")

    return invoke


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """A bundle with one captured route."""
    path = tmp_path / "captured.yaml"
    path.write_text("routes: {policy: {model: m, base_url: 'http://127.0.0.1:1/v1', token_capture_engine: vllm}}")
    return path


@pytest.fixture
def uncaptured(tmp_path: Path) -> Path:
    """A bundle with one route that is only forwarded."""
    path = tmp_path / "uncaptured.yaml"
    path.write_text("routes: {judge: {model: j, base_url: 'http://127.0.0.1:1/v1'}}")
    return path
