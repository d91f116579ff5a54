"""The command line as a whole."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from switchyard_py import __version__


def test_version(invoke: Any) -> None:
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"switchyard {__version__}\n")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help(invoke: Any, flag: str) -> None:
    result = invoke(flag)
    assert result.exit_code == 0
    for word in ("--routing-profiles", "--rl-log-dir", "--enable-rl-logging", "--no-capture", "serve", "check"):
        assert word in result.stdout


def test_no_command_is_a_usage_error_that_shows_the_help(invoke: Any) -> None:
    result = invoke()
    assert result.exit_code == 2
    assert "Commands:" in result.output


def test_an_unknown_command(invoke: Any) -> None:
    result = invoke("launch", "claude")
    assert result.exit_code == 2
    assert "No such command 'launch'" in result.stderr


def test_contradicting_globals(invoke: Any, captured: Path) -> None:
    result = invoke("--enable-rl-logging", "--no-capture", "-c", captured, "check")
    assert result.exit_code == 2
    assert "--enable-rl-logging and --no-capture contradict each other" in result.stderr


@pytest.mark.parametrize("separator", [[], ["--"]])
@pytest.mark.parametrize("flags", [[], ["--enable-rl-logging", "--rl-log-dir", "records"]])
def test_the_separator_before_the_command_is_cosmetic(
    invoke: Any, captured: Path, separator: list[str], flags: list[str]
) -> None:
    result = invoke("--routing-profiles", captured, *flags, *separator, "check")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"{captured}: valid" in result.stdout


def test_globals_come_from_the_environment_too(invoke: Any, captured: Path, tmp_path: Path) -> None:
    result = invoke(
        "check", SWITCHYARD_ROUTING_PROFILES=str(captured), SWITCHYARD_RL_LOG_DIR=str(tmp_path / "elsewhere")
    )
    assert result.exit_code == 0
    assert f"records  {tmp_path / 'elsewhere'}" in result.stdout


def _run(code: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    return done.stdout


def test_help_does_not_wait_for_the_rest_of_the_program() -> None:
    code = (
        "import sys; sys.argv = ['switchyard', '--help']\n"
        "from switchyard_py.cli import run\n"
        "try: run()\n"
        "finally: print([name for name in sys.modules if name in ('yaml', 'aiohttp', 'uvicorn')])"
    )
    assert _run(code).splitlines()[-1] == "[]"


def test_shell_completion() -> None:
    code = "import sys; sys.argv = ['switchyard']\nfrom switchyard_py.cli import run\nrun()"
    words = {"COMP_WORDS": "switchyard ser", "COMP_CWORD": "1", "_SWITCHYARD_COMPLETE": "complete_bash"}
    assert _run(code, **words).split() == ["serve"]
