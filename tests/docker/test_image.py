"""The Dockerfile, without Docker: its rules, and its command lines run in this environment."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"


def instructions(text: str) -> list[tuple[str, str]]:
    """Instructions and their arguments, comments left out and continued lines joined."""
    lines = "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", lines)
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


ALL = instructions(DOCKERFILE.read_text())
FINAL = ALL[max(place for place, (name, _) in enumerate(ALL) if name == "FROM") :]


def only(name: str) -> str:
    """The arguments of the one instruction of that name in the final stage."""
    (found,) = (rest for each, rest in FINAL if each == name)
    return found


ENV = dict(pair.split("=", 1) for pair in shlex.split(only("ENV")))
COMMAND: list[str] = json.loads(only("ENTRYPOINT")) + json.loads(only("CMD"))
HEALTH_COMMAND: list[str] = json.loads(only("HEALTHCHECK").partition(" CMD ")[2])


def linter() -> str | None:
    return shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


@pytest.mark.skipif(linter() is None, reason="hadolint is not installed")
def test_the_linter_is_content() -> None:
    ran = subprocess.run([str(linter()), DOCKERFILE], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")


def test_bases_are_pinned_and_name_no_host() -> None:
    bases = [rest.split(" ")[0] for name, rest in ALL if name == "FROM"]
    assert set(bases) == {"python:3.12-slim"}


def test_nothing_is_fetched_but_packages_of_the_first_stage() -> None:
    assert not [rest for name, rest in ALL if name == "ADD" or "://" in rest]
    (install,) = (rest for name, rest in FINAL if name == "RUN")
    assert "pip install --no-cache-dir --no-index /wheels/*.whl" in install


def test_it_runs_as_a_user_who_owns_the_records() -> None:
    user, names = only("USER"), [name for name, _ in FINAL]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    assert names.index("USER") < names.index("ENTRYPOINT") < names.index("CMD")
    assert only("VOLUME") == ENV["SWITCHYARD_RL_LOG_DIR"]
    number, directory = user.split(":")[0], only("VOLUME")
    assert re.search(rf"useradd --uid {number} .* switchyard && ", only("RUN"))
    assert f"install -d -o switchyard -g switchyard -m 0700 {directory}" in only("RUN")


def test_port_and_bundle_are_where_they_are_said_to_be() -> None:
    assert only("EXPOSE") == ENV["SWITCHYARD_PORT"] == "4000"
    assert ENV["SWITCHYARD_ROUTING_PROFILES"] == "/etc/switchyard/bundle.yaml"
    assert "bundle.yaml:/etc/switchyard/bundle.yaml" in DOCKERFILE.read_text()


def test_the_context_holds_what_is_copied() -> None:
    copied = [path for name, rest in ALL if name == "COPY" for path in rest.split(" ")[:-1]]
    ignored = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    assert sorted(f"!{path}" for path in copied) == sorted(line for line in ignored if line.startswith("!"))
    assert [path for path in copied if not (ROOT / path).exists()] == []


def test_command_and_health_check_do_their_work(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bundle, records = tmp_path / "bundle.yaml", tmp_path / "records"
    route = "{model: m, base_url: 'http://127.0.0.1:1/v1', token_capture_engine: vllm}"
    bundle.write_text(f"routes: {{policy: {route}}}\nserver: {{drain_seconds: 0}}")
    inside = {
        "SWITCHYARD_ROUTING_PROFILES": str(bundle),
        "SWITCHYARD_RL_LOG_DIR": str(records),
        "SWITCHYARD_HOST": "127.0.0.1",
        "SWITCHYARD_PORT": str(port),
    }
    assert inside.keys() == ENV.keys()
    environ = {"PATH": str(Path(sys.executable).parent), **inside}

    def health() -> int:
        return subprocess.run(HEALTH_COMMAND, env=environ, capture_output=True, timeout=10).returncode

    assert health() != 0, "nobody listens yet"
    with subprocess.Popen(COMMAND, env=environ, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            deadline = time.monotonic() + 20
            while health() != 0:
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < deadline
        finally:
            process.send_signal(signal.SIGTERM)
            log = process.stderr.read()
    assert f"on http://127.0.0.1:{port}, workers: 1" in log
    assert f"records: {records}" in log
    assert process.returncode == 0
    assert health() != 0


def test_a_proxy_that_answers_otherwise_is_not_healthy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        environ = {**ENV, "PATH": str(Path(sys.executable).parent), "SWITCHYARD_PORT": str(listener.getsockname()[1])}
        with subprocess.Popen(HEALTH_COMMAND, env=environ) as checking:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
    assert checking.returncode == 1
