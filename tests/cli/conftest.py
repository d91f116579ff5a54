import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mixed_sessions import KINDS, make_sessions
from running_proxy import ProxyProcess
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
        "READER_KEY",
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


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two sessions of each kind. It is for all tests: nobody changes it."""
    directory = tmp_path_factory.mktemp("mixed") / "records"
    asyncio.run(make_sessions(directory, 2 * len(KINDS)))
    return directory


@pytest.fixture(scope="session")
def served(mixed: Path) -> Iterator[str]:
    """The URL of a proxy that serves them to those who know the reader key."""
    bundle = mixed.parent / "served.yaml"
    bundle.write_text(
        "routes: {policy: {model: m, base_url: 'http://127.0.0.1:1/v1', token_capture_engine: vllm}}\n"
        "auth: {reader_keys: [reader-key]}\nserver: {drain_seconds: 0}\n"
    )
    arguments = ["-c", str(bundle), "--rl-log-dir", str(mixed), "--", "serve", "--host", "127.0.0.1", "--port", "0"]
    with ProxyProcess(arguments, mixed.parent) as running:
        yield running.url
