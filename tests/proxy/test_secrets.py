"""Secrets stay out of records, logs, errors and everything that is printed."""

import subprocess
import sys
from pathlib import Path

import httpx
import yaml
from running_proxy import HELLO, ProxyProcess, bundle
from scripted_engine import ScriptedEngineThread, Turn, chat, chat_stream, json_reply, refused_port

# Each is unmistakable, and none is part of another.
AGENT_SECRETS = {
    "authorization": "Bearer canary-authorization",
    "x-api-key": "canary-x-api-key",
    "cookie": "session=canary-cookie",
    "x-switchyard-api-key": "canary-switchyard-key",
    "proxy-authorization": "Basic canary-proxy-authorization",
}
BODY_SECRETS = {
    "aws_access_key_id": "canary-aws-id",
    "aws_secret_access_key": "canary-aws-secret",
    "aws_session_token": "canary-aws-token",
    "api_key": "canary-unknown-key",
}
CANARY = "canary-"


def _profiles(base_url: str, dead: int) -> str:
    """Two routes with every kind of secret a bundle holds; the engine of the second one is down."""
    secrets = {
        "api_key": "canary-target-key",
        "extra_headers": {"x-gateway-key": "canary-extra-header"},
    }
    given = bundle(base_url.replace("://", "://user:canary-password@"), target=secrets)
    (target,) = (route["target"] for route in given["routes"].values())
    given["routes"]["dead"] = {
        "type": "model",
        "target": {**target, "base_url": f"http://user:canary-password@127.0.0.1:{dead}/v1"},
    }
    return yaml.safe_dump(given, sort_keys=False)


def test_a_canary_secret_shows_nowhere(tmp_path: Path) -> None:
    with ScriptedEngineThread() as engine, refused_port() as dead:
        (tmp_path / "x.yaml").write_text(_profiles(engine.engine.base_url, dead))
        turn = Turn(text="hello")
        engine.default(chat(turn))
        command = ["--routing-profiles", "x.yaml", "--", "serve", "--host", "127.0.0.1", "--port", "0"]
        with ProxyProcess([*command, "--log-level", "debug"], tmp_path) as process, process.client() as client:
            answers = [_call(client), _call(client, stream=True), _call(client, session=False)]
            answers.append(_call(client, model="dead"))
            answers.append(_call(client, model="nope"))
            engine.reply(json_reply({"error": "Unauthorized"}, 401), chat_stream(turn, events=2, then="reset"))
            answers += [_call(client), _call(client, stream=True)]
            engine.reply(json_reply(b"gateway trouble", 502))
            answers.append(_call(client))
            answers += [
                client.get(path) for path in ("/v1/models", "/v1/sessions/s/completions?include=all", "/readyz")
            ]
            answers += [client.get(path) for path in ("/v1/stats", "/v1/sessions", "/nope")]
        # The proxy did have them: the engine got those that are meant for it.
        sent = engine.engine.generations[0]
    assert sent.header("authorization") == "Bearer canary-target-key"
    assert sent.header("x-gateway-key") == "canary-extra-header"
    assert not any(CANARY in value for name, value in sent.headers if name not in ("authorization", "x-gateway-key"))
    assert b"aws_" not in sent.body
    assert {answer.status_code for answer in answers} == {200, 404, 502}
    for answer in answers:
        assert CANARY not in answer.text, answer.text
        assert CANARY not in str(answer.headers)
    assert len(process.log.splitlines()) > 5
    assert CANARY not in process.log, [line for line in process.log.splitlines() if CANARY in line]
    files = [path for path in (tmp_path / "rl_data").rglob("*") if path.is_file()]
    assert len(files) >= 5
    for path in files:
        assert CANARY.encode() not in path.read_bytes(), path


def test_check_prints_no_secret(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(_profiles("http://127.0.0.1:9/v1", 9))
    switchyard = str(Path(sys.executable).with_name("switchyard"))
    for options, status in (([], 0), (["--json"], 0), (["--probe"], 1)):
        command = [switchyard, "check", "x.yaml", *options]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False)
        assert result.returncode == status, result.stderr
        assert "policy_model" in result.stdout
        assert CANARY not in result.stdout + result.stderr


def _call(
    client: httpx.Client, model: str = "policy_model", *, stream: bool = False, session: bool = True
) -> httpx.Response:
    headers = {**AGENT_SECRETS, **({"proxy_x_session_id": "s"} if session else {})}
    body = {**HELLO, **BODY_SECRETS, "model": model, "stream": stream}
    return client.post("/v1/chat/completions?key=canary-query", json=body, headers=headers)
