"""Keys as callers and readers meet them: what is open, what is asked for, and in which shape it is refused."""

import asyncio
import re
from pathlib import Path
from typing import Any

import openai
import pytest
from running_proxy import ROUTE, RunningProxy, StartProxy
from scripted_engine import ScriptedEngine, Turn, chat
from starlette.routing import Route

from switchyard_py.access import signed_session_key
from switchyard_py.app import OPEN_PATHS, build_app
from switchyard_py.config import ServeSettings, load_bundle

CALLER = {"authorization": "Bearer caller-key"}
READER = {"authorization": "Bearer reader-key"}
SECRET = "session-secret-new"
AUTH = {
    "caller_keys": ["caller-key", "caller-key-2"],
    "reader_keys": ["reader-key", "reader-key-2"],
    "session_secrets": [SECRET, "session-secret-old"],
}
HELLO = Turn(text="hello")
CALLER_PATHS = (
    "/v1/chat/",
    "/v1/messages",
    "/v1/responses",
    "/v1/completions",
    "/v1/models",
    "/tokenize",
    "/detokenize",
)


def signed(session_id: str, secret: str = SECRET) -> dict[str, str]:
    return {"authorization": f"Bearer {signed_session_key(session_id, secret)}"}


async def fates(running: RunningProxy, session_id: str) -> dict[str, int]:
    running.client.headers["x-api-key"] = "reader-key"
    try:
        return await running.fates(session_id)
    finally:
        del running.client.headers["x-api-key"]


def routes(tmp_path: Path) -> list[tuple[str, str]]:
    """Method and path, filled in, of everything that the proxy serves."""
    bundle = tmp_path / "routes.yaml"
    bundle.write_text("routes: {p: {model: m, base_url: 'http://127.0.0.1:1/v1'}}")
    app: Any = build_app(ServeSettings(load_bundle(bundle, {}), None, "127.0.0.1", 0, 1, "info"))
    served = []
    for route in app._app.routes:
        assert isinstance(route, Route), "a kind of route that no gate is put around"
        path = re.sub(r"{(\w+)[^}]*}", lambda found: {"session_id": "s", "model": ROUTE}.get(found[1], "u"), route.path)
        served += [(method, path) for method in sorted(route.methods or ())]
    return served


async def test_every_path_but_the_open_ones_asks_for_its_key(
    proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path
) -> None:
    running = await proxy(auth=AUTH)
    engine.default(chat(HELLO))
    found = routes(tmp_path)
    assert {path for _, path in found} > {*OPEN_PATHS, "/v1/stats", "/v1/sessions/s/completions/u"}
    for method, path in found:
        for prefix in ("", "/s/s") if path.startswith("/v1") else ("",):
            statuses = {}
            for name, headers in {"none": {}, "caller": CALLER, "session": signed("s"), "reader": READER}.items():
                body = {"model": ROUTE, "messages": [{"role": "user", "content": "hi"}]}
                response = await running.client.request(method, prefix + path, json=body, headers=headers)
                statuses[name] = response.status_code
            asked = {name for name, status in statuses.items() if status == 401}
            if path in OPEN_PATHS:
                assert asked == set(), (method, path)
            elif path.startswith(CALLER_PATHS):
                assert asked == {"none", "reader"}, (method, path)
            else:
                assert asked == {"none", "caller", "session"}, (method, path)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/sessions/",
        "//v1/sessions",
        "/v1/%73essions",
        "/v1/sessions%2Fs",
        "/V1/sessions",
        "/v1/./sessions",
        "/v1/chat/../sessions",
        "/s/x/v1/sessions/",
        "/s/x//v1/sessions",
        "/s//v1/sessions",
        "/s/x/v1/../sessions",
        "/s/x/s/y/v1/sessions",
        "/v1/models/../sessions",
    ],
)
async def test_no_spelling_of_a_path_gets_by(proxy: StartProxy, path: str) -> None:
    running = await proxy(auth=AUTH)
    for headers in ({}, CALLER):
        # As raw bytes: a client library would tidy the path up.
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        lines = [f"GET {path} HTTP/1.1", "host: x", "connection: close", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        answer = await reader.read()
        writer.close()
        assert b'"sessions"' not in answer
        assert answer.split(b" ", 2)[1] in (b"307", b"401", b"404"), answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"x-api-key": "reader-key"}], ids=str)
async def test_a_call_without_a_key_is_refused_in_the_shape_of_its_dialect(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool, headers: dict[str, str]
) -> None:
    running = await proxy(auth=AUTH)
    response = await running.chat({"stream": stream}, "s", headers)
    assert response.status_code == 401
    assert response.headers["x-should-retry"] == "false"
    assert response.headers["x-switchyard-error-source"] == "switchyard"
    error = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("authentication_error", "invalid_api_key", None)
    assert engine.started == 0
    assert running.files("") == []


@pytest.mark.parametrize("key", ["caller-key", "caller-key-2"])
@pytest.mark.parametrize("place", ["authorization", "x-api-key", "x-switchyard-api-key"])
async def test_every_caller_key_calls(proxy: StartProxy, engine: ScriptedEngine, key: str, place: str) -> None:
    running = await proxy(auth=AUTH)
    engine.default(chat(HELLO))
    headers = {place: f"Bearer {key}" if place == "authorization" else key}
    assert (await running.chat({}, "s", headers)).status_code == 200
    assert await fates(running, "s") == {"valid": 1}
    assert dict(engine.generations[0].headers)["authorization"] == "Bearer dummy"
    assert not any(key in value for _, value in engine.generations[0].headers)


async def test_a_call_is_refused_before_its_body_is_read(proxy: StartProxy) -> None:
    running = await proxy(auth=AUTH)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n")
    async with asyncio.timeout(5):
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
    writer.close()


async def test_readers_are_refused_in_their_own_shape(proxy: StartProxy) -> None:
    running = await proxy(auth=AUTH)
    for path in ("/v1/sessions", "/v1/sessions/s/completions", "/v1/stats"):
        response = await running.client.get(path, headers=CALLER)
        assert response.status_code == 401
        assert set(response.json()) == {"detail", "code"}
        assert response.json()["code"] == "invalid_api_key"
        assert "reader key" in response.json()["detail"]
        assert response.headers["x-should-retry"] == "false"
        assert response.headers["www-authenticate"] == "Bearer"
        for key in ("reader-key", "reader-key-2"):
            assert (await running.client.get(path, headers={"x-api-key": key})).status_code in (200, 404)
    # Of a path that does not exist nobody needs a key to learn that.
    assert (await running.client.get("/nope")).status_code == 404


async def test_readers_only_lets_agents_call_without_a_key_or_with_any(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy(auth={"reader_keys": ["reader-key"]})
    engine.default(chat(HELLO))
    for headers in ({}, {"authorization": "Bearer sk-dummy"}, {"x-api-key": "sycap-session:s"}):
        assert (await running.chat({}, None if "x-api-key" in headers else "s", headers)).status_code == 200
    assert (await running.client.get("/v1/models")).status_code == 200
    assert (await running.client.get("/v1/sessions/s/completions")).status_code == 401
    assert await fates(running, "s") == {"valid": 3}


async def test_callers_only_leaves_reading_open(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(auth={"caller_keys": ["caller-key"]})
    engine.default(chat(HELLO))
    assert (await running.chat({}, "s")).status_code == 401
    assert (await running.client.get("/v1/models")).json()["error"]["code"] == "invalid_api_key"
    assert (await running.chat({}, "s", CALLER)).status_code == 200
    assert await running.fates("s") == {"valid": 1}


@pytest.mark.parametrize("session_id", ["rollout-1", "a.b.c", "日本/é"])
@pytest.mark.parametrize("secret", AUTH["session_secrets"])
async def test_a_signed_key_calls_for_its_session_and_reads_nothing(
    proxy: StartProxy, engine: ScriptedEngine, session_id: str, secret: str
) -> None:
    running = await proxy(auth=AUTH)
    engine.default(chat(HELLO))
    key = signed(session_id, secret)["authorization"].encode()
    # A harness's own id does not win over it.
    headers: Any = {"authorization": key, "x-litellm-session-id": "own"}
    assert (await running.chat({}, headers=headers)).status_code == 200
    assert (await running.client.get("/v1/models", headers=headers)).status_code == 200
    assert (await running.client.get("/v1/sessions", headers=headers)).status_code == 401
    assert await fates(running, session_id) == {"valid": 1}
    mac = key.rpartition(b".")[2]
    (record,) = running.files(".json")
    assert mac not in record.read_bytes()
    assert not any(mac.decode() in value for _, value in engine.generations[0].headers)


async def test_a_signed_key_alone_opens_no_other_session_however_that_is_named(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy(auth=AUTH)
    engine.default(chat(HELLO))
    body = {"model": ROUTE, "messages": [{"role": "user", "content": "hi"}]}
    attempts = [
        await running.chat({}, "other", signed("mine")),
        await running.chat({}, headers={**signed("mine"), "x-switchyard-session-id": "other"}),
        await running.chat({}, headers={**signed("mine"), "x-session-id": "other"}),
        await running.chat({"proxy_x_session_id": "other"}, headers=signed("mine")),
        await running.client.post("/s/other/v1/chat/completions", json=body, headers=signed("mine")),
    ]
    for response in attempts:
        assert response.status_code == 403
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("permission_error", "permission_denied")
        assert response.headers["x-should-retry"] == "false"
    assert engine.started == 0
    assert running.files("") == []
    # Its own name, said twice, is no other session; and a caller key opens all.
    assert (await running.chat({}, "mine", signed("mine"))).status_code == 200
    assert (await running.chat({}, "other", {**signed("mine"), "x-api-key": "caller-key"})).status_code == 200
    assert (await fates(running, "mine"), await fates(running, "other")) == ({"valid": 1}, {"valid": 1})


@pytest.mark.parametrize("auth", [AUTH, {"session_secrets": [SECRET]}], ids=["callers asked", "open"])
async def test_an_unsigned_session_key_names_no_session_where_keys_are_signed(
    proxy: StartProxy, engine: ScriptedEngine, auth: dict[str, Any]
) -> None:
    running = await proxy(auth=auth)
    engine.default(chat(HELLO))
    for key in ("sycap-session:s", "sycap-session:s.AAAAAAAAAAAAAAAAAAAAAA", signed_session_key("s", "x" * 16)):
        response = await running.chat({}, headers={"authorization": f"Bearer {key}"})
        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
        assert key.rpartition(".")[2] not in response.text
    assert engine.started == 0
    assert running.files("") == []


async def test_the_openai_client_is_told_and_does_not_try_again(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(auth=AUTH)
    engine.default(chat(HELLO))
    for key in ("wrong", signed_session_key("s", SECRET)):
        client = openai.AsyncOpenAI(base_url=running.url + "/v1", api_key=key, max_retries=2)
        async with client:
            call = client.chat.completions.create(model=ROUTE, messages=[{"role": "user", "content": "hi"}])
            if key == "wrong":
                with pytest.raises(openai.AuthenticationError):
                    await call
            else:
                assert (await call).choices[0].message.content == "hello"
    stats = await running.client.get("/v1/stats", headers=READER)
    assert stats.json()["calls"] == 2
    assert await fates(running, "s") == {"valid": 1}
