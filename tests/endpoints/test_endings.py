"""Sealing and deleting sessions over HTTP: what the trainer is told, and what an agent that calls late is told."""

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_proxy import RunningProxy, StartProxy, session_path
from scripted_engine import Exchange, ScriptedEngine, Turn, chat, json_reply
from stored_calls import FaultyFilesystem

TURN = Turn(text="hello")


async def _when_stepped(exchange: Exchange) -> None:
    await exchange.gate()
    await chat(TURN)(exchange)


async def _calling(running: RunningProxy, engine: ScriptedEngine) -> asyncio.Task[httpx.Response]:
    """A call that the engine answers after a step."""
    engine.reply(_when_stepped)
    before = engine.started
    calling = asyncio.create_task(running.chat({}, "s"))
    await engine.until(lambda: engine.started == before + 1)
    return calling


async def _seal(running: RunningProxy, session_id: str = "s", **query: float) -> httpx.Response:
    return await running.client.post(session_path(session_id) + "/seal", params=query)


async def _delete(running: RunningProxy, session_id: str = "s") -> httpx.Response:
    return await running.client.delete(session_path(session_id))


def _digest(envelope: httpx.Response) -> str:
    """As the page tells trainers to."""
    page = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text()
    named: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], named)
    digest: str = named["digest"](envelope.content)
    return digest


async def _refused(running: RunningProxy, engine: ScriptedEngine, code: str, session_id: str = "s") -> None:
    """A late call is refused in the shape of the dialect, told not to try again, and the engine hears nothing."""
    before = engine.started
    for stream in (False, True):
        response = await running.chat({"stream": stream}, session_id)
        error = response.json()["error"]
        assert (response.status_code, error["type"], error["code"]) == (409, "conflict_error", code)
        assert response.headers["x-should-retry"] == "false"
        assert response.headers["x-switchyard-error-source"] == "switchyard"
        assert "retry-after" not in response.headers
        assert error["message"].startswith("The call was not sent, because its session ")
    assert engine.started == before


async def test_a_seal_says_what_the_session_holds_and_stays_so(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.default(chat(Turn(text="hällo")))
    for _ in range(3):
        await running.chat({}, "s")
    engine.reply(json_reply({"error": {"message": "no"}}, 500))
    await running.chat({}, "s")
    response = await _seal(running)
    assert response.status_code == 200
    seal = response.json()
    assert list(seal) == [
        "schema_version", "session_id", "sealed", "sealed_at", "accounting", "records", "digest"
    ]  # fmt: skip
    assert (seal["schema_version"], seal["session_id"], seal["sealed"], seal["records"]) == (1, "s", True, 3)
    assert (seal["accounting"]["begun"], seal["accounting"]["valid"], seal["accounting"]["failed"]) == (4, 3, 1)
    envelope = await running.client.get("/v1/sessions/s/completions")
    assert seal["digest"] == _digest(envelope)
    assert envelope.json()["sealed"] is True
    assert envelope.json()["accounting"] == seal["accounting"]
    await _refused(running, engine, "session_sealed")
    assert (await _seal(running)).content == response.content
    assert (await running.client.get("/v1/sessions/s/completions")).content == envelope.content
    assert running.files(".open") == []


async def test_sealing_waits_for_open_calls_and_refuses_new_ones_meanwhile(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    calling = await _calling(running, engine)
    sealing = asyncio.create_task(_seal(running, wait=10))
    await asyncio.sleep(0.1)
    await _refused(running, engine, "session_sealed")
    assert not sealing.done()
    assert (await running.session("s"))["sealed"] is False
    engine.step()
    assert (await calling).status_code == 200
    assert (await sealing).json()["accounting"]["valid"] == 1


async def test_at_the_deadline_the_answer_is_no_seal_and_asking_again_gets_one(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    calling = await _calling(running, engine)
    began = time.monotonic()
    response = await _seal(running, wait=0.1)
    assert 0.1 <= time.monotonic() - began < 2
    assert (response.status_code, response.json()["code"]) == (409, "open_calls")
    assert response.json()["detail"].startswith("1 call is still open; no more can begin")
    await _refused(running, engine, "session_sealed")
    engine.step()
    await calling
    assert (await _seal(running, wait=0)).json()["accounting"]["valid"] == 1


@pytest.mark.parametrize("session_id", ["s", "Unknown/1"])
async def test_a_session_without_calls_can_be_sealed_against_late_ones(
    proxy: StartProxy, engine: ScriptedEngine, session_id: str
) -> None:
    running = await proxy()
    seal = (await _seal(running, session_id)).json()
    assert (seal["session_id"], seal["records"], seal["accounting"]["begun"]) == (session_id, 0, 0)
    assert seal["digest"] == hashlib.sha256().hexdigest()
    await _refused(running, engine, "session_sealed", session_id)
    envelope = await running.session(session_id)
    assert (envelope["completions"], envelope["sealed"]) == ([], True)
    assert list(running.directory.glob("sessions/*")) == []


async def test_workers_share_seals_and_deletions(proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path) -> None:
    here, there = [await proxy(directory=tmp_path / "shared") for _ in range(2)]
    engine.default(chat(TURN))
    await here.chat({}, "s")
    await there.chat({}, "s")
    seal = (await _seal(there)).json()
    assert seal["accounting"]["valid"] == 2
    await _refused(here, engine, "session_sealed")
    assert (await _seal(here)).json() == seal
    assert (await _delete(here)).status_code == 200
    await _refused(there, engine, "session_deleted")
    assert (await there.client.get("/v1/sessions")).json()["sessions"] == []


async def test_the_list_and_the_summary_say_which_sessions_are_sealed(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    engine.default(chat(TURN))
    for session_id in ("a", "b"):
        await running.chat({}, session_id)
    await _seal(running, "a")
    listed = (await running.client.get("/v1/sessions")).json()["sessions"]
    assert [(session["session_id"], session["sealed"]) for session in listed] == [("a", True), ("b", False)]
    assert (await running.client.get("/v1/sessions/a")).json() == listed[0]


@pytest.mark.parametrize("sealed", [False, True])
async def test_a_deleted_session_is_gone_and_takes_no_more_calls(
    proxy: StartProxy, engine: ScriptedEngine, sealed: bool
) -> None:
    running = await proxy()
    engine.default(chat(TURN))
    uuid = (await running.chat({}, "s")).headers["x-request-id"]
    await running.chat({}, "other")
    # As the original proxy named directories.
    twin = running.directory / "sessions" / hashlib.sha256(b"s").hexdigest()
    twin.mkdir()
    (running.directory / "sessions" / "s" / f"{uuid}.json").rename(twin / f"{uuid}.json")
    await running.chat({}, "s")
    if sealed:
        await _seal(running)
    response = await _delete(running)
    assert (response.status_code, response.json()) == (200, {"session_id": "s", "deleted": True})
    for path in ("", "/completions", f"/completions/{uuid}"):
        read = await running.client.get(f"/v1/sessions/s{path}")
        assert (read.status_code, read.json()["code"]) == (404, "session_gone")
    assert (await _delete(running)).json()["code"] == "session_gone"
    assert (await _seal(running)).json()["code"] == "session_gone"
    await _refused(running, engine, "session_deleted")
    assert [path.name for path in (running.directory / "sessions").iterdir()] == ["other"]
    listed = (await running.client.get("/v1/sessions")).json()["sessions"]
    assert [session["session_id"] for session in listed] == ["other"]


async def test_a_session_with_open_calls_is_not_deleted(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    calling = await _calling(running, engine)
    response = await _delete(running)
    assert (response.status_code, response.json()["code"]) == (409, "open_calls")
    assert response.json()["detail"].startswith("1 call is still open")
    engine.step()
    assert (await calling).status_code == 200
    engine.reply(chat(TURN))
    assert (await running.chat({}, "s")).status_code == 200
    assert await running.fates("s") == {"valid": 2}
    assert (await _delete(running)).status_code == 200


async def test_deleting_what_never_was_is_404(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    response = await _delete(running)
    assert (response.status_code, response.json()) == (404, {"detail": "unknown session"})
    engine.reply(chat(TURN))
    assert (await running.chat({}, "s")).status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/sessions/s/seal?wait=601", 400, "invalid_parameter"),
        ("/v1/sessions/s/seal?wait=x", 400, "invalid_parameter"),
        ("/v1/sessions/%2E%2E/seal", 400, "invalid_session"),
        ("/v1/sessions/" + "x" * 513 + "/seal", 400, "invalid_session"),
    ],
)
async def test_what_cannot_be_sealed(
    proxy: StartProxy, engine: ScriptedEngine, path: str, status: int, code: str
) -> None:
    running = await proxy()
    # Not through the client's own normalisation of paths.
    response = await running.client.send(httpx.Request("POST", running.url + path))
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert not (running.directory / "closed").exists() or list((running.directory / "closed").glob("[!.]*")) == []


@pytest.mark.parametrize("action", [_seal, _delete])
async def test_a_store_that_refuses_the_mark_changes_nothing(
    proxy: StartProxy, engine: ScriptedEngine, action: Any
) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)
    engine.default(chat(TURN))
    await running.chat({}, "s")
    closed = running.directory / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    (closed / ".new").mkdir()  # nobody can write there, not even root
    response = await action(running)
    assert (response.status_code, response.json()["code"]) == (503, "capture_unavailable")
    assert (await running.chat({}, "s")).status_code == 200
    assert await running.fates("s") == {"valid": 2}


async def test_without_capture_nothing_can_be_sealed_or_deleted(proxy: StartProxy) -> None:
    running = await proxy(captures=False)
    for response in (await _seal(running), await _delete(running)):
        assert (response.status_code, response.json()["code"]) == (404, "capture_off")


async def test_old_sealed_sessions_are_deleted_and_others_kept(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(capture={"retention_seconds": 0.4})
    engine.default(chat(TURN))
    for session_id in ("sealed", "unsealed"):
        await running.chat({}, session_id)
    await _seal(running, "sealed")
    deadline = time.monotonic() + 5
    while (running.directory / "sessions" / "sealed").exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    await _refused(running, engine, "session_deleted", "sealed")
    assert await running.fates("unsealed") == {"valid": 1}
