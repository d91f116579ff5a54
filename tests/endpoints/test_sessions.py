"""The reading side: sessions, their records, and what is said when there are none."""

import asyncio
import json
import logging
import shutil
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from running_proxy import RunningProxy, StartProxy, session_path
from scripted_engine import Exchange, ScriptedEngine, Turn, chat, json_reply
from stored_calls import FaultyFilesystem

from switchyard_py.store.catalogue import Catalogue, Listing

TURN = Turn(text="hello")
UNKNOWN = {"detail": "unknown session"}


async def _session_of(running: RunningProxy, engine: ScriptedEngine, calls: int, session_id: str = "s") -> list[str]:
    """A session of so many calls; their uuids."""
    uuids = []
    for number in range(calls):
        engine.reply(chat(TURN))
        body = {"messages": [{"role": "user", "content": str(number)}]}
        uuids.append((await running.chat(body, session_id)).headers["x-request-id"])
    return uuids


def _uuids(records: list[dict[str, Any]]) -> list[str]:
    return [record["uuid"] for record in records]


async def test_a_session_is_the_envelope_trainers_know(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    uuids = await _session_of(running, engine, 3)
    response = await running.client.get("/v1/sessions/s/completions")
    assert response.headers["content-type"] == "application/json"
    envelope = orjson.loads(response.content)
    assert list(envelope) == ["schema_version", "session_id", "completions", "accounting", "sealed"]
    assert (envelope["schema_version"], envelope["session_id"]) == (1, "s")
    assert _uuids(envelope["completions"]) == uuids
    assert envelope["accounting"] == {
        "begun": 3, "valid": 3, "invalid": 0, "undelivered": 0, "lost": 0, "failed": 0, "open": 0, "abandoned": 0
    }  # fmt: skip
    # The bytes on disk are the bytes served.
    for file in running.files(".json"):
        assert file.read_bytes() in response.content


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/completions",
        "/completions?include=chain",
        "/completions/01890000-0000-7000-8000-000000000000",
        "/lineage",
        "/rollout",
    ],
)
@pytest.mark.parametrize("session_id", ["nope", "%ff", "a%2Fb"])
async def test_an_unknown_session_is_404_in_the_words_trainers_compare(
    proxy: StartProxy, session_id: str, path: str
) -> None:
    running = await proxy()
    response = await running.client.get(f"/v1/sessions/{session_id}{path}")
    assert (response.status_code, response.json()) == (404, UNKNOWN)


async def test_one_record(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    uuids = await _session_of(running, engine, 2)
    records = await running.records("s")
    response = await running.client.get(f"/v1/sessions/s/completions/{uuids[1]}")
    assert response.json() == records[1]
    for unknown in ("nope", "%2E%2E%2Fs", "01890000-0000-7000-8000-000000000000"):
        response = await running.client.get(f"/v1/sessions/s/completions/{unknown}")
        assert response.status_code == 404, unknown


async def test_pages_of_a_session(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    uuids = await _session_of(running, engine, 5)
    assert _uuids(await running.records("s", limit=2)) == uuids[:2]
    assert _uuids(await running.records("s", limit=2, after=uuids[1])) == uuids[2:4]
    assert _uuids(await running.records("s", limit=2, after=uuids[3])) == uuids[4:]
    assert _uuids(await running.records("s", after=uuids[4])) == []
    assert _uuids(await running.records("s", limit=100000)) == uuids
    page = await running.session("s", limit=1)
    assert page["accounting"]["begun"] == 5


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("limit=0", "limit is '0'; use a whole number from 1 to 100000"),
        ("limit=-1", "limit is '-1'"),
        ("limit=x", "limit is 'x'"),
        ("limit=1.5", "limit is '1.5'"),
        ("limit=100001", "limit is '100001'"),
        ("limit=%C2%B2", "limit is '²'"),
        ("after=x", "after: "),
        ("settled=x", "settled is 'x'; use seconds from 0 to 600"),
        ("settled=-1", "settled is '-1'"),
        ("settled=601", "settled is '601'"),
        ("settled=nan", "settled is 'nan'"),
        ("include=everything", "include is 'everything'; use delivered, all or chain"),
    ],
)
async def test_a_query_that_makes_no_sense_is_400_and_says_what_to_write(
    proxy: StartProxy, engine: ScriptedEngine, query: str, says: str
) -> None:
    running = await proxy()
    await _session_of(running, engine, 1)
    response = await running.client.get(f"/v1/sessions/s/completions?{query}")
    assert response.status_code == 400
    assert list(response.json()) == ["detail", "code"]
    assert response.json()["detail"].startswith(says)
    assert response.json()["code"] == "invalid_parameter"
    assert response.headers["x-switchyard-error-source"] == "switchyard"


async def test_settled_waits_until_no_call_is_open(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    await _session_of(running, engine, 1)
    engine.reply(_when_stepped)
    calling = asyncio.create_task(running.chat({}, "s"))
    await engine.until(lambda: engine.started == 2)
    assert (await running.session("s"))["accounting"]["open"] == 1
    began = time.monotonic()
    at_deadline = await running.session("s", settled=0.15)
    assert 0.15 <= time.monotonic() - began < 1
    assert at_deadline["accounting"]["open"] == 1
    assert len(at_deadline["completions"]) == 1
    waiting = asyncio.create_task(running.session("s", settled=10))
    await asyncio.sleep(0.02)
    engine.step()
    await calling
    settled = await waiting
    assert settled["accounting"]["open"] == 0
    assert len(settled["completions"]) == 2
    assert time.monotonic() - began < 5


async def _when_stepped(exchange: Exchange) -> None:
    await exchange.gate()
    await chat(TURN)(exchange)


async def test_the_list_tells_calls_times_and_account_of_each_session(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    engine.default(chat(TURN))
    await running.chat({}, "b", {"x-parent-session-id": "root"})
    await running.chat({}, "a/1")
    engine.reply(json_reply({"error": {"message": "no"}}, 500))
    await running.chat({}, "b")
    response = await running.client.get("/v1/sessions")
    listing = response.json()
    assert list(listing) == ["schema_version", "sessions", "next_cursor"]
    first, second = listing["sessions"]
    assert list(first)[:2] == ["session_id", "parent_session_id"]
    assert (first["session_id"], first["parent_session_id"], first["calls"]) == ("b", "root", 2)
    assert (second["session_id"], second["parent_session_id"], second["calls"]) == ("a/1", None, 1)
    assert first["accounting"]["valid"] == first["accounting"]["failed"] == 1
    assert first["first_call_at"] < second["first_call_at"] < first["last_call_at"]
    assert (await running.client.get(session_path("b"))).json() == first
    assert listing["next_cursor"] is None


async def test_pages_of_the_list(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.default(chat(TURN))
    names = [f"s{number}" for number in range(5)]
    for name in names:
        await running.chat({}, name)
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = (await running.client.get(f"/v1/sessions?limit=2&cursor={cursor}")).json()
        assert len(page["sessions"]) <= 2
        seen += [session["session_id"] for session in page["sessions"]]
        cursor = page["next_cursor"]
    assert seen == names
    exact = (await running.client.get("/v1/sessions?limit=5")).json()
    assert (len(exact["sessions"]), exact["next_cursor"]) == (5, None)
    for limit in ("0", "x"):
        assert (await running.client.get(f"/v1/sessions?limit={limit}")).status_code == 400


async def test_without_any_session_the_list_is_empty(proxy: StartProxy) -> None:
    running = await proxy()
    listing = (await running.client.get("/v1/sessions")).json()
    assert listing == {"schema_version": 1, "sessions": [], "next_cursor": None}


@pytest.mark.parametrize("path", ["", "/s", "/s/completions", "/s/completions/x"])
async def test_without_capture_there_are_no_sessions_to_read(proxy: StartProxy, path: str) -> None:
    running = await proxy(captures=False)
    response = await running.client.get(f"/v1/sessions{path}")
    assert response.status_code == 404
    assert response.json()["code"] == "capture_off"
    assert "nothing is captured" in response.json()["detail"]


async def test_faulty_files_are_named_and_counted_and_the_rest_is_served(
    proxy: StartProxy, engine: ScriptedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    running = await proxy()
    await _session_of(running, engine, 1, "other")
    uuids = await _session_of(running, engine, 6)
    directory = running.directory / "sessions" / "s"
    corrupt, truncated, foreign, no_object = (directory / f"{uuid}.json" for uuid in uuids[1:5])
    corrupt.write_bytes(b"\x00\x01 no JSON")
    truncated.write_bytes(truncated.read_bytes()[:-20])
    foreign.write_bytes(running.files(".json")[0].read_bytes())
    no_object.write_text("[1, 2]")
    shutil.copy(directory / f"{uuids[0]}.json", directory / "notes.txt")
    (directory / f"{uuids[0]}@somebody.tmp").write_bytes(b"{")
    with caplog.at_level(logging.WARNING):
        envelope = await running.session("s")
    assert _uuids(envelope["completions"]) == [uuids[0], uuids[5]]
    # They were calls, and nobody can prove them complete.
    account = envelope["accounting"]
    assert (account["begun"], account["valid"], account["invalid"]) == (6, 2, 4)
    for file, reason in (
        (corrupt, "corrupt"),
        (truncated, "corrupt"),
        (foreign, "foreign"),
        (no_object, "not a record"),
    ):
        assert f"faulty file {file}: {reason}" in caplog.text
    assert (await running.stats())["faulty_files"] == 4
    await running.session("s")
    assert (await running.stats())["faulty_files"] == 4
    assert (await running.client.get(f"/v1/sessions/s/completions/{uuids[1]}")).status_code == 404
    listed = (await running.client.get("/v1/sessions")).json()["sessions"]
    assert [(session["session_id"], session["faults"]) for session in listed] == [("other", 0), ("s", 4)]


async def test_records_of_the_original_proxy_are_read_in_their_order(proxy: StartProxy, engine: ScriptedEngine) -> None:
    """It named directories by digest and files by random uuids."""
    running = await proxy()
    directory = running.directory / "sessions" / "043a718774c572bd8a25adbeb1bfcd5c0256ae11cecf9f9c3f925d0e52beaf89"
    directory.mkdir()
    await _session_of(running, engine, 1, "template")
    (record,) = await running.records("template")
    del record["call"]
    for number, uuid in enumerate(("f14703e0-daf8-4df3-81f4-71f5526b9b2c", "0a4703e0-daf8-4df3-81f4-71f5526b9b2c")):
        old = record | {"session_id": "s", "uuid": uuid, "captured_at": f"2026-01-01T00:00:0{number}.000000+00:00"}
        (directory / f"{uuid}.json").write_text(json.dumps(old, indent=2))
    (new,) = await _session_of(running, engine, 1)
    assert [uuid[:8] for uuid in _uuids(await running.records("s"))] == ["f14703e0", "0a4703e0", new[:8]]
    assert await running.fates("s") == {"valid": 3}


async def test_undelivered_records_are_in_all_and_lost_calls_in_both(proxy: StartProxy, engine: ScriptedEngine) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)
    await _session_of(running, engine, 3)
    valid, undelivered, lost = running.files(".json")
    undelivered.rename(undelivered.with_suffix(".undelivered"))
    lost.with_suffix(".lost").write_bytes(b"")
    lost.unlink()
    delivered, everything = await running.records("s"), await running.records("s", include="all")
    assert _uuids(delivered) == [valid.stem, lost.stem]
    assert _uuids(everything) == [valid.stem, undelivered.stem, lost.stem]
    assert delivered[1]["is_valid"] is False
    assert await running.fates("s") == {"valid": 1, "undelivered": 1, "lost": 1}


async def test_files_are_private(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    await _session_of(running, engine, 1)
    for path in running.directory.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


async def test_a_large_session_is_read_without_holding_up_others(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    await _session_of(running, engine, 1)
    (file,) = running.files(".json")
    record = orjson.loads(file.read_bytes()) | {"prompt_token_ids": list(range(100_000))}
    directory: Path = file.parent
    for number in range(40):
        uuid = f"01890000-0000-7000-8000-{number:012d}"
        (directory / f"{uuid}.json").write_bytes(orjson.dumps(record | {"uuid": uuid}))
    reading = asyncio.create_task(running.client.get("/v1/sessions/s/completions"))
    waits = []
    while not reading.done():
        began = time.monotonic()
        await running.client.get("/health")
        waits.append(time.monotonic() - began)
    assert len(orjson.loads((await reading).content)["completions"]) == 41
    assert len(waits) > 5
    assert sorted(waits)[len(waits) // 2] < 0.1


async def test_a_list_of_many_sessions_keeps_nobody_else_waiting(
    proxy: StartProxy, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await proxy()
    await _session_of(running, engine, 1)
    listing = Catalogue.listing

    def slow_listing(catalogue: Catalogue, session_id: str) -> Listing | None:
        time.sleep(0.5)
        return listing(catalogue, session_id)

    monkeypatch.setattr(Catalogue, "listing", slow_listing)
    reading = asyncio.create_task(running.client.get("/v1/sessions"))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await running.client.get("/health")
    assert time.monotonic() - began < 0.2
    assert len((await reading).json()["sessions"]) == 1


@pytest.mark.parametrize("path", ["", "/completions", "/completions?settled=1", "/completions/x"])
async def test_a_store_that_cannot_be_read_is_no_mistake_of_this_program(
    proxy: StartProxy, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    running = await proxy()
    (running.directory / "sessions" / "loop").symlink_to("loop")
    response = await running.client.get(f"/v1/sessions/loop{path}")
    assert (response.status_code, response.json()["code"]) == (503, "capture_unavailable")
    assert response.headers["x-should-retry"] == "true"
    assert "Traceback" not in caplog.text


async def test_a_mistake_in_this_program_is_told_in_json(proxy: StartProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    running = await proxy()
    monkeypatch.delattr(Catalogue, "listing")
    response = await running.client.get("/v1/sessions/s/completions")
    assert response.status_code == 500
    assert response.json() == {"detail": "The proxy failed; its log says why.", "code": "internal_error"}
