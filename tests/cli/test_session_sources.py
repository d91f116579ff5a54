"""Where the commands on sessions read, and what they say of places where there is nothing to read."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
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
    assert "`x-switchyard-api-key`; put a reader key into the variable SWITCHYARD_READER_KEY" in said
    assert "wrong-key" not in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "there is no directory rl_data: name one with --dir DIR, or a proxy with --url URL"),
        (["--dir", "nope"], "there is no directory nope"),
        (["--dir", "."], ". is no directory of records: it has no directory sessions in it"),
        (["--dir", "records/sessions"], "did you mean "),
        (["--url", "127.0.0.1:4000"], "what --url gives is no address of a proxy: write it as http://127.0.0.1:4000"),
        (["--url", "http://"], "is no address of a proxy"),
        (["--url", "http://[::1"], "is no address of a proxy"),
        (["--url", "http://127.0.0.1:99999"], "is no address of a proxy"),
        (["--url", "ftp://user:secret@127.0.0.1"], "is no address of a proxy"),
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
    assert "secret" not in result.stderr


def test_a_proxy_that_is_not_there(invoke: Any) -> None:
    with refused_port() as port:
        result = invoke("sessions", "list", "--url", f"http://user:secret@127.0.0.1:{port}")
    assert result.exit_code == 1
    assert result.stderr == f"error: 127.0.0.1:{port} cannot be read: Connection refused\n"
    assert "secret" not in result.stderr


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    """The URL of a server that answers everything so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("body", [b'{"a": 1}', b"[1]", b'{"sessions": [1]}', b'{"sessions": [{}]}', b"<html>", b""])
def test_what_is_no_proxy(invoke: Any, body: bytes) -> None:
    with answering(body) as url:
        for command in ("list", "verify", "export out", "export out s"):
            result = invoke("sessions", *command.split(), "--url", url)
            assert (result.exit_code, result.stdout) == (1, "")
            assert result.stderr == f"error: {url.removeprefix('http://')} does not answer as a proxy does\n"
        result = invoke("sessions", "show", "s", "--url", url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: E")


@pytest.mark.parametrize("where", [["--url", "http://127.0.0.1:1"], ["--dir", "."]])
def test_an_id_that_is_no_text(invoke: Any, tmp_path: Path, where: list[str]) -> None:
    (tmp_path / "sessions").mkdir()
    for command in (["show"], ["verify"], ["verify", "--json"], ["export", "out"]):
        result = invoke("sessions", *command, *where, "a\udcff")
        assert result.exit_code == 1
        assert "surrogates" in result.stdout + result.stderr


def test_a_key_that_cannot_be_sent(invoke: Any) -> None:
    result = invoke("sessions", "list", "--url", "http://127.0.0.1:1", SWITCHYARD_READER_KEY="kéy")
    assert result.stderr == "error: the reader key has characters that no key has\n"


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
