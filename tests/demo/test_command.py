"""The command `demo` as a person runs it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from switchyard_py.cli import app

COMMAND = [str(Path(sys.executable).with_name("switchyard"))]


def environ(temporary: Path, **given: str) -> dict[str, str]:
    """Variables under which the temporary directory of the demonstration is made in `temporary`."""
    unset = ("NO_COLOR", "TERM")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("SWITCHYARD_") and k not in unset}
    return {**inherited, "TMPDIR": str(temporary), **given}


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    return directory


def demo(temporary: Path, *options: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run it piped, to its end."""
    return subprocess.run(
        [*COMMAND, *before, "demo", *options], env=environ(temporary), capture_output=True, text=True, timeout=30
    )


def test_piped_it_is_plain_true_and_leaves_nothing(temporary: Path) -> None:
    ran = demo(temporary)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not re.search(r"[\x1b\r\t]| $", ran.stdout, re.MULTILINE)
    assert "tool call  get_weather({" in ran.stdout
    assert ran.stdout.count("  ✓ ") == 8
    assert re.search(r"^       2 +\d+ +\d+  yes    [0-9a-f-]{36}\.json$", ran.stdout, re.MULTILINE)
    assert list(temporary.iterdir()) == []


def test_records_stay_where_they_are_wanted(temporary: Path, tmp_path: Path) -> None:
    wanted = tmp_path / "records"
    ran = demo(temporary, before=("--rl-log-dir", str(wanted)))
    shown = re.search(r"^  records  (.*)\n.*\n.* (\S+\.json)\n.* (\S+\.json)$", ran.stdout, re.MULTILINE)
    assert shown, ran.stdout
    assert Path(shown[1]).is_relative_to(wanted)
    assert sorted(Path(shown[1]).glob("*.json")) == [Path(shown[1]) / name for name in shown.groups()[1:]]
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("strip=token_ids", "both calls are recorded and valid: call 1 is invalid: no_generation_token_ids"),
        ("strip=reasoning", "call 2's prompt ids begin with call 1's prompt + generation: of the "),
        ("call=2,status=503", "call 2: the proxy answered 503: Simulated failure"),
    ],
)
def test_a_broken_engine_is_told(temporary: Path, fault: str, problem: str) -> None:
    ran = demo(temporary, "--fault", fault)
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith("error: ")
    assert problem in ran.stderr
    assert "next" not in ran.stdout
    assert list(temporary.iterdir()) == []


def test_a_port_in_use_is_one_line(temporary: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = demo(temporary, "--port", str(port))
    assert ran.returncode == 1
    assert ran.stderr == f"error: cannot listen on 127.0.0.1 port {port}: Address already in use\n"
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["--no-capture", "demo"], 2, "--no-capture leaves nothing to show"),
        (["demo", "--fault", "nonsense"], 1, "error: 'nonsense': write key=value pairs"),
    ],
)
def test_bad_options(arguments: list[str], status: int, problem: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == status
    assert problem in result.stderr


def test_a_reader_that_leaves_ends_it_quietly(temporary: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo"], env=environ(temporary), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
    assert list(temporary.iterdir()) == []


def shown_commands(output: str) -> list[str]:
    """The commands as they were printed, a continued one whole."""
    block = output.partition("run until Ctrl-C\n")[2]
    return re.split(r"\n(?=  curl)", block.strip("\n"))


@pytest.mark.skipif(not shutil.which("curl"), reason="the commands shown need curl")
def test_kept_running_its_commands_work_as_printed(temporary: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo", "--keep"],
        env=environ(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            output = ""
            while not re.search(r"/simulator/requests\n", output):
                line = process.stdout.readline()
                assert line, output
                output += line
            commands = shown_commands(output)
            assert len(commands) == 4
            session, stream, mine, journal = [
                subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, timeout=10).stdout
                for command in commands
            ]
        finally:
            process.send_signal(signal.SIGINT)
            farewell = process.stderr.read()
    assert [record["is_valid"] for record in json.loads(session)["completions"]] == [True, True]
    assert stream.endswith("data: [DONE]\n\n")
    assert json.loads(mine)["completions"][0]["messages"][0] == {"role": "user", "content": "Say hello"}
    assert json.loads(journal)["finished"] == 3
    assert process.returncode == 130
    (directory,) = temporary.iterdir()
    assert farewell == f"\nrecords stay in {directory}\n"
    assert len(list(directory.glob("sessions/*/*.json"))) == 3


@contextmanager
def at_a_terminal(*arguments: str, env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command with a terminal of its own, and the descriptor of the person's side."""
    controller, terminal = os.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            env=env,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: os.login_tty(terminal),
        )
        os.close(terminal)
        with process:
            yield process, controller
    finally:
        os.close(controller)


def read_until(controller: int, pattern: str) -> str:
    """What the terminal shows until it matches; "" as a pattern never does: then to the end."""
    shown = b""
    while not (pattern and re.search(pattern, shown.decode(errors="replace"))):
        try:
            shown += os.read(controller, 4096)
        except OSError:  # Linux: the other side is closed
            break
    return shown.decode()


@pytest.mark.parametrize(
    ("options", "variables", "coloured"),
    [([], {}, True), (["--no-color"], {}, False), ([], {"NO_COLOR": "1"}, False), ([], {"TERM": "dumb"}, False)],
    ids=["colours", "--no-color", "NO_COLOR", "dumb"],
)
def test_at_a_terminal_ctrl_c_leaves_nothing(
    temporary: Path, options: list[str], variables: dict[str, str], coloured: bool
) -> None:
    env = environ(temporary, **{"TERM": "xterm-256color", **variables})
    with at_a_terminal("demo", *options, env=env) as (process, controller):
        begun = read_until(controller, r"reasoning +\S*I")
        os.write(controller, b"\x03")
        rest = read_until(controller, "")
    assert ("\x1b[1mswitchyard\x1b[0m" in begun) is coloured
    assert ("\x1b" in begun + rest) is coloured
    assert "released" not in begun + rest, "nobody could have followed it"
    assert "Traceback" not in rest
    assert process.returncode == 130
    assert list(temporary.iterdir()) == []
