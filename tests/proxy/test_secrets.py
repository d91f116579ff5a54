"""Secrets stay out of records, logs, errors, counts, command lines and everything that is printed.

A canary is put wherever a secret can enter, and looked for wherever something comes out. The engine repeats what it was
shown wherever an engine can.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
import yaml
from running_proxy import HELLO, ProxyProcess, bundle
from scripted_engine import Exchange, Script, ScriptedEngineThread, Turn, chat, chat_stream, refused_port

from switchyard_py.access import signed_session_key
from switchyard_py.config import ConfigError, load_bundle

# Each is unmistakable, and none is part of another.
CANARY = "canary-"
AGENT_SECRETS = {
    "authorization": "Bearer canary-authorization",
    "x-api-key": "canary-x-api-key",
    "cookie": "session=canary-cookie",
    "x-switchyard-api-key": "canary-switchyard-key",
    "proxy-authorization": "Basic canary-proxy-authorization",
    "x-goog-api-key": "canary-goog-key",
    "referer": "http://user:canary-referer@h/",
}
BODY_SECRETS = {
    "aws_access_key_id": "canary-aws-id",
    "aws_secret_access_key": "canary-aws-secret",
    "aws_session_token": "canary-aws-token",
    "api_key": "canary-unknown-key",
}
QUERY = "?key=canary-query&proxy_x_session_id=canary-session-in-query&api_key=canary-query-key"
CALLER_KEY = "canary-caller-key"
READER_KEY = "canary-reader-key"
SESSION_SECRET = "canary-session-secret"
ENVIRON = {
    "CALLER_KEY": CALLER_KEY,
    "OLD_CALLER_KEY": "canary-old-caller-key",
    "READER_KEY": READER_KEY,
    "SESSION_SECRET": SESSION_SECRET,
    "TARGET_KEY": "canary-target-key",
    "HEADER": "canary-extra-header",
    "PASSWORD": "canary-password",
    "OPENAI_API_KEY": "canary-openai-key",
}
AUTH = {
    "caller_keys": ["${CALLER_KEY}", "canary-second-caller-key"],
    "reader_keys_env": ["READER_KEY"],
    "session_secrets": ["${SESSION_SECRET}"],
}
SIGNED = signed_session_key("signed", SESSION_SECRET)
WITH_SIGNED_KEY = {"authorization": f"Bearer {SIGNED}"}
NO_KEYS: Mapping[str, str] = {}
MAC = SIGNED.rpartition(".")[2]
BASIC = "dXNlcjpjYW5hcnktcGFzc3dvcmQ="
"""`user:canary-password`, as it is sent."""

TURN = Turn(text="hello")


def _profiles(base_url: str, dead: int) -> str:
    """Routes with every kind of secret a bundle holds: captured, not captured, Basic authorization, engine down."""
    given = bundle(
        base_url.replace("://", "://user:${PASSWORD}@"),
        target={"api_key": "${TARGET_KEY}", "extra_headers": {"x-gateway-key": "${HEADER}"}},
        auth=AUTH,
    )
    (target,) = (route["target"] for route in given["routes"].values())
    targets = {
        "uncaptured": {**target, "token_capture_engine": None},
        "basic": {**target, "api_key": None},
        "dead": {**target, "base_url": f"http://user:canary-password@127.0.0.1:{dead}/v1"},
    }
    given["routes"] |= {name: {"type": "model", "target": each} for name, each in targets.items()}
    return yaml.safe_dump(given, sort_keys=False)


def echo(status: int, shape: Literal["openai", "detail", "text"] = "openai") -> Script:
    """Refuse with every header that came, in the body and in a header that is passed on."""

    async def script(exchange: Exchange) -> None:
        shown = f"refused: {exchange.request.headers}"
        key = exchange.request.header("authorization") or ""
        body: Any = {"error": {"message": shown, "type": "t", "code": None}, "request": dict(exchange.request.headers)}
        if shape != "openai":
            body = {"detail": shown} if shape == "detail" else shown.encode()
        await exchange.json(body, status, {"retry-after": "1", "x-ratelimit-key": key, "location": f"/{key}"})

    return script


async def echo_event(exchange: Exchange) -> None:
    """Begin a stream and end it with an error event that holds every header that came."""
    await exchange.stream_headers()
    if exchange.request.json["stream"]:
        await exchange.send(b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n')
    error = {"error": {"message": f"broken: {exchange.request.headers}", "code": 500}}
    await exchange.send(f"data: {json.dumps(error)}\n\n".encode())


class Calls:
    """Calls that carry canaries. All answers are kept."""

    def __init__(self, process: ProxyProcess, client: httpx.Client, engine: ScriptedEngineThread) -> None:
        self._process = process
        self._client = client
        self._engine = engine
        self.answers: list[httpx.Response] = []

    def call(
        self,
        model: str = "policy_model",
        *,
        stream: bool = False,
        session: str | None = "s",
        keys: Mapping[str, str] = NO_KEYS,
    ) -> httpx.Response:
        """One call whose caller key stands in `x-api-key`, unless `keys` says otherwise."""
        headers = {**AGENT_SECRETS, "x-api-key": CALLER_KEY, **keys}
        if session is not None:
            headers["proxy_x_session_id"] = session
        body = {**HELLO, **BODY_SECRETS, "model": model, "stream": stream}
        return self._keep(self._client.post(f"/v1/chat/completions{QUERY}", json=body, headers=headers))

    def get(self, path: str, key: str = "canary-no-key") -> httpx.Response:
        return self._keep(self._client.get(path, headers={**AGENT_SECRETS, "x-api-key": key}))

    def leave(self, *, stream: bool) -> None:
        """Begin a call and hang up while the engine is at it."""
        before = self._engine.engine.aborted
        self._engine.reply(chat(TURN, stepped=True) if stream else _never)
        body = json.dumps({**HELLO, **BODY_SECRETS, "stream": stream}).encode()
        headers = {**AGENT_SECRETS, "x-api-key": CALLER_KEY, "proxy_x_session_id": "s"}
        lines = [f"{name}: {value}" for name, value in {**headers, "content-length": str(len(body))}.items()]
        address = httpx.URL(self._process.url)
        with socket.create_connection((address.host, address.port or 0)) as connection:
            head = [f"POST /v1/chat/completions{QUERY} HTTP/1.1", "host: x", *lines, "", ""]
            started = self._engine.engine.started
            connection.sendall("\r\n".join(head).encode() + body)
            self._engine.until(lambda: self._engine.engine.started > started, within=5)
            if stream:
                self._engine.step()
        self._engine.until(lambda: self._engine.engine.aborted > before, within=5)

    def _keep(self, answer: httpx.Response) -> httpx.Response:
        self.answers.append(answer)
        return answer


async def _never(exchange: Exchange) -> None:
    await exchange.stall()


def assert_clean(text: str | bytes, where: object) -> None:
    shown = text if isinstance(text, bytes) else text.encode()
    for secret in (CANARY, MAC, BASIC):
        found = shown.find(secret.encode())
        assert found < 0, f"{where}: {shown[max(0, found - 200) : found + 100]!r}"


@contextmanager
def running(directory: Path, engine: ScriptedEngineThread, *, workers: int = 1) -> Iterator[tuple[ProxyProcess, Calls]]:
    """A proxy process that logs all it can, and calls to it; its log and its files must be clean at the end."""
    command = ["--routing-profiles", "x.yaml", "--", "serve", "--host", "127.0.0.1", "--port", "0"]
    command += ["--workers", str(workers), "--log-level", "debug", "--access-log", "rl_data/access"]
    with ProxyProcess(command, directory, ENVIRON) as process, process.client() as client:
        calls = Calls(process, client, engine)
        yield process, calls
    for answer in calls.answers:
        assert_clean(answer.content, answer)
        assert_clean(str(answer.headers), answer)
    assert len(process.log.splitlines()) > 5
    assert_clean(process.log, "log")
    assert (directory / "rl_data" / "access").stat().st_size > 0
    for path in (directory / "rl_data").rglob("*"):
        assert_clean(os.fsencode(path.relative_to(directory)), path)
        if path.is_file():
            assert_clean(path.read_bytes(), path)


def test_a_canary_secret_shows_nowhere(tmp_path: Path) -> None:
    with ScriptedEngineThread() as engine, refused_port() as dead:
        (tmp_path / "x.yaml").write_text(_profiles(engine.engine.base_url, dead))
        engine.default(chat(TURN))
        with running(tmp_path, engine) as (_, calls):
            for stream in (False, True):
                for model in ("policy_model", "uncaptured", "basic"):
                    assert calls.call(model, stream=stream).status_code == 200
                assert calls.call(stream=stream, session=None).status_code == 200
                assert calls.call(stream=stream, session=None, keys=WITH_SIGNED_KEY).status_code == 200
                assert calls.call("dead", stream=stream).status_code == 502
                assert calls.call("nope", stream=stream).status_code == 404
                calls.leave(stream=stream)
            # What the engine did get is what it can repeat.
            shown = [{n.lower(): value for n, value in each.headers} for each in engine.engine.generations]
            assert {each["authorization"] for each in shown} == {"Bearer canary-target-key", f"Basic {BASIC}"}
            assert {each["x-gateway-key"] for each in shown} == {"canary-extra-header"}
            for each in shown:
                assert_clean(str({**each, "authorization": "", "x-gateway-key": ""}), "request to the engine")
            assert not any(b"aws_" in request.body for request in engine.engine.generations)

            for stream in (False, True):
                for model in ("policy_model", "uncaptured", "basic"):
                    for status in (400, 401, 403, 404, 429, 500, 503, 307):
                        engine.reply(echo(status))
                        calls.call(model, stream=stream)
                    for script in (echo(500, "detail"), echo(502, "text"), echo(200), echo_event):
                        engine.reply(script)
                        calls.call(model, stream=stream)
                    engine.reply(chat_stream(TURN, events=2, then="reset"))
                    calls.call(model, stream=stream)
            told = [answer.text for answer in calls.answers if "refused: " in answer.text or "broken: " in answer.text]
            assert len(told) > 30
            assert all("***" in text for text in told)

            for headers in (
                {"x-api-key": "canary-wrong-key"},
                {"x-api-key": READER_KEY},
                {"x-api-key": "", "authorization": f"Bearer {SIGNED}"},
                {"authorization": f"Bearer {SIGNED}x"},
                {"authorization": f"Bearer sycap-session:canary-forged.{MAC}"},
            ):
                assert calls.call(keys=headers).status_code in (401, 403)
            for path in ("/v1/models", "/v1/sessions", "/v1/stats", "/metrics", "/nope", "/readyz", "/", f"/{QUERY}"):
                calls.get(path)
                calls.get(path, CALLER_KEY)
                calls.get(path, READER_KEY)
            for session in ("s", "signed"):
                for path in (f"/v1/sessions/{session}", f"/v1/sessions/{session}/completions?include=all"):
                    assert calls.get(path, READER_KEY).status_code == 200
            stats = calls.get("/v1/stats", READER_KEY).json()
            assert stats["ledger"]["failed"] > 20
            assert stats["agent_gone"] == 2
    assert len(list((tmp_path / "rl_data").glob("sessions/s/*.json"))) == 4
    assert len(list((tmp_path / "rl_data").glob("sessions/signed/*.json"))) == 2
    assert len(list((tmp_path / "rl_data").glob("sessions/s/*.failed"))) > 20


def test_workers_show_none_on_their_command_lines_and_take_the_same_keys(tmp_path: Path) -> None:
    with ScriptedEngineThread() as engine, refused_port() as dead:
        (tmp_path / "x.yaml").write_text(_profiles(engine.engine.base_url, dead))
        engine.default(chat(TURN))
        with running(tmp_path, engine, workers=2) as (process, calls):
            for _ in range(3):
                assert calls.call(session=None, keys={**WITH_SIGNED_KEY, "x-api-key": ""}).status_code == 200
                assert calls.call(keys={"x-api-key": "canary-wrong-key"}).status_code == 401
            lines = _command_lines(process.pid)
            # The parent, its workers, and the process that looks after their semaphores.
            assert len(lines) >= 3
            for line in lines:
                assert_clean(line, "command line")


def _command_lines(pid: int) -> list[bytes]:
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()
    ]
    return [Path(f"/proc/{pid}/cmdline").read_bytes(), *(line for child in children for line in _command_lines(child))]


def _switchyard(
    directory: Path, *arguments: str, environ: dict[str, str] = ENVIRON
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHYARD_")}
    return subprocess.run(
        [str(Path(sys.executable).with_name("switchyard")), *arguments],
        cwd=directory,
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_check_prints_no_secret_even_where_the_engine_repeats_it(tmp_path: Path) -> None:
    with ScriptedEngineThread() as engine, refused_port() as dead:
        (tmp_path / "x.yaml").write_text(_profiles(engine.engine.base_url, dead))
        engine.default(echo(400))
        for options, status in (([], 0), (["--json"], 0), (["--probe"], 1), (["--probe", "--json"], 1)):
            result = _switchyard(tmp_path, "check", "x.yaml", *options)
            assert result.returncode == status, result.stderr
            assert "policy_model" in result.stdout
            assert ("refused: " in result.stdout) is (status == 1)
            assert_clean(result.stdout + result.stderr, options)


def test_the_command_that_makes_keys_prints_the_key_and_nothing_of_the_secret(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(_profiles("http://127.0.0.1:9/v1", 9))
    result = _switchyard(tmp_path, "-c", "x.yaml", "sessions", "key", "signed")
    assert (result.stdout, result.stderr) == (f"{SIGNED}\n", "")


# A secret in the place of something else, as people put it there, and files that are broken beside one.
BROKEN = [
    "auth: canary-key-of-callers",
    "auth: {caller_keys: canary-key-of-callers}",
    "auth: {caller_keys: [canary-key, canary-key]}",
    "auth: {caller_keys: [can, 'canary-with blank']}",
    "auth: {caller_keys: [[canary-in-list]]}",
    "auth: {caller_keys: {a: canary-in-mapping}}",
    "auth: {caller_keys_env: [canary-not-a-name]}",
    "auth: {caller_keys_env: canary-not-a-list}",
    "auth: {reader_keys: ['${CALLER_KEY}'], caller_keys_env: [CALLER_KEY]}",
    "auth: {session_secrets: [canary-short]}",
    "auth: {session_secrets: ['sycap-session:${SESSION_SECRET}', '${SESSION_SECRET}', '${SESSION_SECRET}']}",
    "auth: {caller_keys: ['${CALLER_KEY}', \"${NOPE}\"]}",
    "auth: {caller_keys: ['canary-before-${CALLER_KEY']}",
    "auth: {caller_keys: [canary-unclosed}",
    "auth: {caller_keys: ['canary-quote]}",
    "auth: {caller_keys: [canary: canary, *canary-alias]}",
    "defaults: {api_key: [canary-in-list]}",
    "defaults: {api_key: {a: canary-in-mapping}}",
    'defaults: {api_key: "canary-\\n"}',
    "defaults: {api_key_env: canary-not-a-name}",
    "defaults: {api_key_env: [canary-not-a-name]}",
    "defaults: {api_key_env: BROKEN_KEY}",
    "defaults: {extra_headers: canary-no-mapping}",
    "defaults: {extra_headers: {x-a: [canary-in-list]}}",
    'defaults: {extra_headers: {x-a: "canary-\\r"}}',
    "defaults: {base_url: 'ftp://user:canary-password@h'}",
    "defaults: {base_url: 'http://user:canary-password@h:port'}",
    "defaults: {base_url: 'http://user:canary-password@h/?a'}",
    "defaults: {base_url: ['http://user:canary-password@h']}",
    "server: {port: '${CALLER_KEY}'}",
    "server: {log_level: '${CALLER_KEY}'}",
    "capture: {durability: '${CALLER_KEY}'}",
]


@pytest.mark.parametrize("text", BROKEN)
def test_errors_of_a_bundle_show_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(f"routes: {{p: {{model: m, base_url: 'http://h'}}}}\n{text}\n")
    environ = {**ENVIRON, "BROKEN_KEY": "canary-broken\n"}
    with pytest.raises(ConfigError) as caught:
        load_bundle(tmp_path / "x.yaml", environ)
    assert_clean(str(caught.value), text)
