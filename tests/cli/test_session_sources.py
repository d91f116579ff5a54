"""Where the commands on sessions read, and what they say of places where there is nothing to read."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted_engine import refused_port

READ = [["list"], ["show", "loop-0"], ["verify", "loop-0"], ["verify"], ["export", "out", "loop-0"]]


@pytest.mark.parametrize("command", READ)
def test_a_proxy_is_read_with_the_reader_key(invoke: Any, served: str, command: list[str]) -> None:
    result = invoke("sessions", *command[:1], "--url", f"{served}/", *command[1:], SWITCHYARD_READER_KEY="reader-key")
    assert "loop-0" in result.stdout or "1 file in out" in result.stdout
    assert result.stderr == ""
    result = invoke(
        "sessions", *command[:1], "--url", served, "--reader-key-env", "MINE", *command[1:], MINE=" reader-key\n"
    )
    assert result.exit_code in (0, 1)
    assert result.stderr == ""


@pytest.mark.parametrize("key", ["", "wrong-key"])
@pytest.mark.parametrize("command", READ)
def test_without_the_key_it_says_where_to_put_it(invoke: Any, served: str, command: list[str], key: str) -> None:
    result = invoke("sessions", *command[:1], "--url", served, *command[1:], SWITCHYARD_READER_KEY=key)
    assert result.exit_code == 1
    said = result.stdout + result.stderr
    assert "answers 401" in said
    assert "put a reader key into the variable SWITCHYARD_READER_KEY" in said
    assert "wrong-key" not in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "there is no directory rl_data: name one with --dir DIR, or a proxy with --url URL"),
        (["--dir", "nope"], "there is no directory nope"),
        (["--dir", "."], ". is no directory of records: it has no directory sessions in it"),
        (["--dir", "records/sessions"], "did you mean "),
        (["--url", "127.0.0.1:4000"], "--url '127.0.0.1:4000' is no address of a proxy: write it as http://"),
        (["--url", "http://"], "--url 'http://' is no address of a proxy"),
    ],
)
@pytest.mark.parametrize("command", [["list"], ["show", "s"], ["verify"], ["export", "out"]])
def test_a_place_without_sessions_is_one_line(
    invoke: Any, tmp_path: Path, command: list[str], arguments: list[str], says: str
) -> None:
    (tmp_path / "records" / "sessions").mkdir(parents=True)
    result = invoke("sessions", *command[:1], *arguments, *command[1:])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_proxy_that_is_not_there(invoke: Any) -> None:
    with refused_port() as port:
        result = invoke("sessions", "list", "--url", f"http://user:secret@127.0.0.1:{port}")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: 127.0.0.1:{port}: ")
    assert "secret" not in result.stderr


def test_two_sources_are_a_usage_error(invoke: Any) -> None:
    result = invoke("sessions", "list", "--url", "http://127.0.0.1:1", "--dir", "x")
    assert result.exit_code == 2
    assert "--url and --dir contradict each other" in result.stderr


def test_the_directory_is_the_one_that_serve_writes_to(invoke: Any, mixed: Path, tmp_path: Path) -> None:
    by_option = invoke("--rl-log-dir", mixed, "--", "sessions", "list").stdout
    assert "loop-0" in by_option
    assert invoke("sessions", "list", SWITCHYARD_RL_LOG_DIR=str(mixed)).stdout == by_option
    bundle = tmp_path / "bundle.yaml"
    bundle.write_text(f"routes: {{p: {{model: m, base_url: 'http://127.0.0.1:1/v1'}}}}\ncapture: {{dir: {mixed}}}\n")
    assert invoke("-c", bundle, "sessions", "list").stdout == by_option
    (tmp_path / "rl_data").symlink_to(mixed)
    assert invoke("sessions", "list").stdout == by_option


def test_an_unknown_session(invoke: Any, mixed: Path, served: str) -> None:
    result = invoke("sessions", "show", "nope", "--dir", mixed)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: there is no session 'nope' in {mixed}\n"
    result = invoke("sessions", "show", "nope", "--url", served, SWITCHYARD_READER_KEY="reader-key")
    assert result.stderr == f"error: {httpx.URL(served).netloc.decode()} answers 404: unknown session\n"
