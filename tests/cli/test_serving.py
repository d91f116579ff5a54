"""`serve` up to the moment the server takes over, and one life of the whole."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest


def test_a_bundle_is_needed(invoke: Any) -> None:
    result = invoke("serve")
    assert result.exit_code == 2
    assert "no route bundle: give one with --routing-profiles FILE before the command" in result.stderr


def test_a_bad_bundle_is_one_line(invoke: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("routes: {}")
    result = invoke("-c", "bad.yaml", "serve")
    assert (result.exit_code, result.stderr) == (1, "error: bad.yaml: routes: must contain at least one route\n")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--enable-rl-logging"], "--enable-rl-logging stands before the command"),
        (["--rl-log-dir=x"], "--rl-log-dir stands before the command"),
        (["-c", "x.yaml"], "-c stands before the command"),
        (["--no-capture"], "--no-capture stands before the command"),
        (["--config", "x.toml"], "--config: profile configs of version 2 are not offered"),
        (["--reload"], "--reload: not offered"),
        (["--inbound", "openai"], "--inbound: only chat completions are served so far"),
        (["--intake-enabled"], "--intake-enabled: the telemetry sink is not offered"),
        (["--intake-base-url=x"], "--intake-base-url: the telemetry sink is not offered"),
        (["--enable-intake"], "--enable-intake: the telemetry sink is not offered"),
        (["--bogus"], "No such option: --bogus"),
    ],
)
def test_options_that_are_not_options_of_serve(invoke: Any, captured: Path, flags: list[str], expected: str) -> None:
    result = invoke("-c", captured, "serve", *flags)
    assert result.exit_code == 2
    assert expected in result.stderr


@pytest.mark.parametrize(
    ("flag", "variable", "value", "expected"),
    [
        ("--port", "SWITCHYARD_PORT", "abc", "must be a whole number, not 'abc'"),
        ("--port", "SWITCHYARD_PORT", "70000", "must be at most 65535, not '70000'"),
        ("--workers", "SWITCHYARD_WORKERS", "0", "must be at least 1, not '0'"),
        ("--log-level", "SWITCHYARD_LOG_LEVEL", "loud", "must be 'critical', 'error', 'warning', 'info', "),
    ],
)
def test_bad_values_are_usage_errors_of_one_line(
    invoke: Any, captured: Path, flag: str, variable: str, value: str, expected: str
) -> None:
    for source, result in (
        (flag, invoke("-c", captured, "serve", flag, value)),
        (variable, invoke("-c", captured, "serve", **{variable: value})),
    ):
        assert result.exit_code == 2
        assert result.stderr.startswith(f"error: {source}: {expected}")
        assert len(result.stderr.splitlines()) == 1


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which 127.0.0.1, .2 and .3 are taken: who wants one of them says so and goes no further."""
    with socket.socket() as first, socket.socket() as second, socket.socket() as third:
        first.bind(("127.0.0.1", 0))
        port: int = first.getsockname()[1]
        second.bind(("127.0.0.2", port))
        third.bind(("127.0.0.3", port))
        for listener in (first, second, third):
            listener.listen()
        yield port


def test_a_flag_beats_the_environment_which_beats_the_bundle(invoke: Any, tmp_path: Path, taken_port: int) -> None:
    (tmp_path / "bundle.yaml").write_text(
        f"server: {{host: 127.0.0.1, port: {taken_port}}}\nroutes: {{p: {{model: m, base_url: 'http://h'}}}}"
    )

    def wanted(*flags: str, **environ: str) -> str:
        result = invoke("-c", "bundle.yaml", "serve", *flags, **environ)
        assert result.exit_code == 1
        match = re.fullmatch(
            rf"error: cannot listen on (\S+) port {taken_port}: Address already in use", result.stderr.splitlines()[-1]
        )
        assert match, result.stderr
        return match[1]

    assert wanted() == "127.0.0.1"
    assert wanted(SWITCHYARD_HOST="", SWITCHYARD_PORT="") == "127.0.0.1"
    assert wanted(SWITCHYARD_HOST="127.0.0.2") == "127.0.0.2"
    assert wanted("--host", "127.0.0.3", SWITCHYARD_HOST="127.0.0.2") == "127.0.0.3"


def test_the_port_kubernetes_sets_is_ignored(invoke: Any, tmp_path: Path, taken_port: int) -> None:
    (tmp_path / "bundle.yaml").write_text(
        f"server: {{host: 127.0.0.1, port: {taken_port}}}\nroutes: {{p: {{model: m, base_url: 'http://h'}}}}"
    )
    result = invoke("-c", "bundle.yaml", "serve", SWITCHYARD_PORT="tcp://10.0.0.1:4000")
    assert result.stderr.splitlines()[-1].startswith(f"error: cannot listen on 127.0.0.1 port {taken_port}: ")


@pytest.mark.parametrize("variable", [False, True])
def test_an_access_log_that_cannot_be_written_is_one_line(invoke: Any, captured: Path, variable: bool) -> None:
    given = {"SWITCHYARD_ACCESS_LOG": "missing/log"} if variable else {}
    flags = [] if variable else ["--access-log", "missing/log"]
    result = invoke("-c", captured, "serve", "--log-level", "error", *flags, **given)
    expected = "error: cannot write the access log missing/log: No such file or directory"
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, expected)


@pytest.mark.parametrize("flags", [[], ["--enable-rl-logging", "--rl-log-dir", "elsewhere"]])
def test_one_life(captured: Path, tmp_path: Path, flags: list[str]) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHYARD_")}
    captured.write_text(captured.read_text() + "\nserver: {drain_seconds: 0}")
    before = ["-m", "switchyard_py", "--routing-profiles", str(captured), *flags, "--"]
    command = [sys.executable, *before, "serve", "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = ""
        try:
            while not (match := re.search(r" on (http://127\.0\.0\.1:\d+), workers: 1$", told, re.MULTILINE)):
                line = process.stderr.readline()
                assert line, told
                told += line
            assert _health(match[1]) == 200
        finally:
            process.send_signal(signal.SIGTERM)
            told += process.stderr.read()
    assert re.search(r"limits: descriptor limit: \d+ of \d+; workers: 1; ", told)
    assert "limits of the store: durability: process; " in told
    assert "timeouts of target m@127.0.0.1:1: connect 10 s, " in told
    assert "route policy -> m at http://127.0.0.1:1/v1, captured" in told
    directory = tmp_path / ("elsewhere" if flags else "rl_data")
    assert f"records: {directory}" in told
    assert directory.stat().st_mode & 0o777 == 0o700


def _health(url: str) -> int:
    """The status of /health, asked until the server listens."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return httpx.get(f"{url}/health").status_code
        except httpx.ConnectError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
