"""Which session a call lands in, seen from the reading side."""

import json
from pathlib import Path
from typing import Any

import pytest
from running_proxy import StartProxy, session_path
from scripted_engine import ScriptedEngine, Turn, chat

# The headers harnesses sent when they were recorded, without the session header they had been given.
HARNESSES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "harness_headers.json").read_text())

IDS = [
    "a",
    "a/b",
    "a/completions",
    "a/completions/b",
    "a%2Fb",
    "a%2fb",
    "../../etc/passwd",
    "..",
    "é",
    "e\u0301",
    "x" * 512,
    "x" * 511,
    "Case",
    "case",
    "a b",
    "a?b#c",
    "0" * 64,
    "%",
]
USABLE = [each for each in IDS if each != ".."]


async def test_every_id_is_written_listed_and_fetched_and_none_touches_or_answers_for_another(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    for number, session_id in enumerate(USABLE):
        engine.reply(chat(Turn(text=f"answer {number}")))
        before = set(running.directory.glob("sessions/*/*"))
        assert (await running.chat({"proxy_x_session_id": session_id})).status_code == 200
        (file,) = set(running.directory.glob("sessions/*/*")) - before
        assert file.parent.parent == running.directory / "sessions"
    assert len({file.parent for file in running.files(".json")}) == len(USABLE)
    for number, session_id in enumerate(USABLE):
        envelope = await running.session(session_id)
        assert envelope["session_id"] == session_id
        (record,) = envelope["completions"]
        assert record["session_id"] == session_id
        assert record["messages"][-1]["content"] == f"answer {number}"
        assert (await running.client.get(session_path(session_id))).json()["session_id"] == session_id
        single = await running.client.get(f"{session_path(session_id)}/completions/{record['uuid']}")
        assert single.json() == record
        other = await running.client.get(f"{session_path('a b c')}/completions/{record['uuid']}")
        assert other.status_code == 404
    listed = (await running.client.get("/v1/sessions")).json()["sessions"]
    assert [session["session_id"] for session in listed] == USABLE
    assert not Path("/etc/passwd.json").exists()


async def test_an_id_that_is_not_quoted_is_no_other_session(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.default(chat(Turn(text="hello")))
    for session_id in ("a", "a/b"):
        await running.chat({"proxy_x_session_id": session_id})
    for path in (
        "/v1/sessions/a/b/completions",
        "/v1/sessions/a/b",
        "/v1/sessions/a//completions",
        "/v1/sessions//completions",
    ):
        assert (await running.client.get(path)).status_code == 404, path


@pytest.mark.parametrize("session_id", ["..", ".", "x" * 513, "a\nb", "a\x00b", "a\x85b"])
async def test_an_id_that_cannot_be_used_is_400_and_nothing_is_sent_or_written(
    proxy: StartProxy, engine: ScriptedEngine, session_id: str
) -> None:
    running = await proxy()
    response = await running.chat({"proxy_x_session_id": session_id})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_session"
    assert engine.generations == []
    assert list((running.directory / "sessions").iterdir()) == []


async def test_an_id_is_the_same_in_header_body_key_and_url(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.default(chat(Turn(text="hello")))
    session_id = "日本/é"
    await running.chat({}, headers={"proxy_x_session_id": session_id.encode()})  # type: ignore[dict-item]
    await running.chat({}, headers={"proxy-x-session-id": session_id.encode()})  # type: ignore[dict-item]
    await running.chat({"proxy_x_session_id": f" {session_id} "})
    await running.chat({}, headers={"authorization": f"Bearer sycap-session:{session_id}".encode()})  # type: ignore[dict-item]
    url = "/s/%E6%97%A5%E6%9C%AC%2F%C3%A9/v1/chat/completions"
    await running.client.post(url, json={"model": "policy_model", "messages": [{"role": "user", "content": "hi"}]})
    assert await running.fates(session_id) == {"valid": 5}
    # The engine's router is told the same id.
    told = [dict(request.headers)["x-session-id"].encode("latin-1").decode() for request in engine.generations]
    assert told == [session_id] * 5


async def test_the_session_of_the_base_url_reaches_models_too(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    listed = await running.client.get("/s/abc/v1/models")
    assert [model["id"] for model in listed.json()["data"]] == ["policy_model"]


@pytest.mark.parametrize("harness", HARNESSES)
@pytest.mark.parametrize("key_header", ["authorization", "x-api-key", "x-switchyard-api-key"])
async def test_a_session_key_beats_what_each_harness_sends_on_its_own(
    proxy: StartProxy, engine: ScriptedEngine, harness: str, key_header: str
) -> None:
    running = await proxy()
    engine.default(chat(Turn(text="hello")))
    recorded = HARNESSES[harness]
    key = "sycap-session:assigned-1"
    headers = {**recorded["headers"], key_header: f"Bearer {key}" if key_header == "authorization" else key}
    body = {"stream": True} if recorded["streams"] else {}
    assert (await running.chat(body, headers=headers)).status_code == 200
    assert await running.fates("assigned-1") == {"valid": 1}
    (record,) = await running.records("assigned-1")
    # What the harness calls its session is kept beside it.
    own = {name: headers[name] for name in ("x-litellm-session-id", "session_id", "x-session-id") if name in headers}
    assert record["call"]["agent"] == own
    assert record["parent_session_id"] == headers.get("x-parent-session-id")
    assert record["call"]["client"]["user_agent"] == headers["user-agent"]


@pytest.mark.parametrize(
    "harness", [name for name, each in HARNESSES.items() if "x-session-affinity" in each["headers"]]
)
async def test_without_a_key_the_session_is_the_harness_own(
    proxy: StartProxy, engine: ScriptedEngine, harness: str
) -> None:
    running = await proxy()
    engine.default(chat(Turn(text="hello")))
    headers = HARNESSES[harness]["headers"]
    await running.chat({}, headers=headers)
    assert await running.fates(headers["x-session-affinity"]) == {"valid": 1}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_of_no_session_is_forwarded_as_it_is_and_belongs_to_none(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool
) -> None:
    running = await proxy()
    turn = Turn(text="hello")
    engine.reply(chat(turn))
    body = {"stream": stream, "proxy_x_session_id": 5}
    response = await running.chat(body, headers={"authorization": "Bearer sk-something"})
    assert b"hello" in response.content
    assert engine.generations[0].json == {
        "model": "actual-model",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": stream,
    }
    assert "x-session-id" not in dict(engine.generations[0].headers)
    assert list((running.directory / "sessions").iterdir()) == []
    assert (await running.client.get("/v1/sessions")).json()["sessions"] == []
    assert (await running.stats())["unidentified"] == 1


async def test_where_sessions_are_required_a_call_of_none_is_400(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(sessions={"required": True})
    engine.default(chat(Turn(text="hello")))
    response = await running.chat({})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "session_required"
    assert engine.generations == []
    assert (await running.chat({}, "s")).status_code == 200


async def test_the_bundle_can_replace_the_list_of_native_headers(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(sessions={"native_ids": ["x-my-session"]})
    engine.default(chat(Turn(text="hello")))
    await running.chat({}, headers={"x-my-session": "mine", "x-litellm-session-id": "other"})
    assert await running.fates("mine") == {"valid": 1}
    assert (await running.client.get(session_path("other"))).status_code == 404
