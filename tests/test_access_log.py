"""The access log: a line for each call, nothing of what was said, and nobody waits for it."""

import asyncio
import fcntl
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from running_proxy import ROUTE, StartProxy
from scripted_engine import ScriptedEngine, Turn, chat, json_reply

from switchyard_py import access_log
from switchyard_py.access_log import AccessLog
from switchyard_py.observation import ANSWERED, Observation

KEYS = """time request_id client_request_id session route dialect target streamed status outcome fate invalid_reasons
prompt_tokens generation_tokens first_byte_ms total_ms overhead_ms pid"""
PAGE = (Path(__file__).parents[1] / "docs" / "operations.md").read_text()


def over() -> Observation:
    observation = Observation("chat")
    observation.end("r", ANSWERED)
    return observation


async def lines(path: Path, count: int) -> list[dict[str, Any]]:
    """The lines of the log, once there are so many; each must be a line of ASCII by any reader's idea of lines."""
    async with asyncio.timeout(5):
        while path.read_bytes().count(b"\n") < count:
            await asyncio.sleep(0.01)
    text = path.read_bytes().decode("ascii")
    assert len(text.splitlines()) == count
    return [json.loads(line) for line in text.splitlines()]


async def test_a_line_tells_what_became_of_a_call(proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"
    running = await proxy(server={"access_log": str(path)})
    engine.reply(chat(Turn(text="hello")), json_reply({"error": {"message": "no"}}, 429), chat(Turn(text="hello")))
    responses = [
        await running.chat({"stream": True}, "s", {"x-request-id": "mine"}),
        await running.chat({}, "s"),
        await running.chat({}),
        await running.chat({"model": "nope"}, "t"),
        await running.chat(b"[]", "s"),
    ]
    answered, refused, unidentified, unrouted, malformed = await lines(path, 5)
    assert [list(line) for line in (answered, malformed)] == [KEYS.split(), KEYS.split()]
    (record,) = await running.records("s")
    counts = record["token_count"]
    expected = {
        "request_id": record["uuid"],
        "client_request_id": "mine",
        "session": "s",
        "route": ROUTE,
        "dialect": "chat",
        "target": record["call"]["target"],
        "streamed": True,
        "status": 200,
        "outcome": "answered",
        "fate": "valid",
        "invalid_reasons": [],
        "prompt_tokens": counts["prompt_tokens"],
        "generation_tokens": counts["completion_tokens"],
        "pid": os.getpid(),
    }
    assert answered | expected == answered
    assert 0 < answered["first_byte_ms"] <= answered["total_ms"]
    assert 0 < answered["overhead_ms"] <= answered["total_ms"]
    assert (refused["status"], refused["outcome"], refused["fate"]) == (429, "engine_429", "failed")
    assert (unidentified["session"], unidentified["fate"], unidentified["outcome"]) == (None, None, "answered")
    assert (unrouted["session"], unrouted["route"], unrouted["status"]) == ("t", None, 404)
    assert (malformed["session"], malformed["outcome"], malformed["fate"]) == (None, "invalid_body", None)
    assert [line["request_id"] for line in (refused, unidentified, unrouted, malformed)] == [
        response.headers["x-request-id"] for response in responses[1:]
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_key_is_documented() -> None:
    table = PAGE.partition("## Access log")[2].partition("\n## ")[0]
    documented = [key for row in table.splitlines() if row.startswith("| `") for key in row.split("|")[1].split(", ")]
    assert [key.strip(" `") for key in documented] == KEYS.split()


@pytest.mark.parametrize(
    "value", [b'a"\\ {}', "\u2028\u2029\u0085é🙂".encode(), b"\xff\xfe", b"a\ttab" * 50, b"x" * 5000]
)
async def test_no_header_breaks_a_line(proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path, value: bytes) -> None:
    path = tmp_path / "access.jsonl"
    running = await proxy(server={"access_log": str(path)})
    engine.default(chat(Turn(text="hello")))
    headers = [(b"proxy_x_session_id", "é\u2028 🙂".encode()), (b"x-request-id", value)]
    response = await running.client.post("/v1/chat/completions", json={"model": ROUTE, "messages": []}, headers=headers)
    assert response.status_code == 400
    await running.client.post("/v1/chat/completions", json={"model": ROUTE, "messages": [{}]}, headers=headers)
    _, line = await lines(path, 2)
    try:
        sent = value.decode()
    except UnicodeDecodeError:
        sent = value.decode("latin-1")
    assert line["client_request_id"] == sent.strip(" \t")[:1024]
    assert line["session"] == "é\u2028 🙂"


async def test_nothing_that_was_said_and_no_key_is_logged(
    proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path
) -> None:
    path = tmp_path / "access.jsonl"
    running = await proxy(server={"access_log": str(path)}, target={"api_key": "canary-key"})
    engine.default(chat(Turn(text="canary-reply", tool_calls=[("canary-tool", {"canary": 1})])))
    body = {"messages": [{"role": "user", "content": "canary-prompt"}], "user": "canary-user", "stream": True}
    keys = {"authorization": "Bearer canary-bearer", "x-api-key": "canary-api", "cookie": "canary-cookie"}
    await running.chat(body, "s", keys)
    await lines(path, 1)
    assert "canary" not in path.read_text()


async def test_a_pipe_that_nobody_reads_delays_no_call_and_the_log_says_what_is_dropped(
    proxy: StartProxy,
    engine: ScriptedEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(access_log, "MOST_WAITING", 20)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    try:
        running = await proxy(server={"access_log": str(pipe)}, captures=False)
        engine.default(chat(Turn(text="hello")))
        before = time.monotonic()
        # A line has 400 bytes.
        await asyncio.gather(*(running.client.post("/v1/chat/completions", content=b"[]") for _ in range(60)))
        assert time.monotonic() - before < 5
        assert (await running.client.get("/livez")).status_code == 200
        assert caplog.text.count("lines of the access log are dropped: it does not take them in time") == 1
        read = b""
        async with asyncio.timeout(5):
            while read.count(b"\n") < 30:
                try:
                    read += os.read(reader, 1 << 20)
                except BlockingIOError:
                    await asyncio.sleep(0.01)
        assert all(json.loads(line)["outcome"] == "invalid_body" for line in read.splitlines()[:30])
    finally:
        os.close(reader)


def test_a_full_disk_is_told_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    full = AccessLog("/dev/full")
    for _ in range(10):
        full.write(over())
    full.close(5)
    assert caplog.text.count("lines of the access log are dropped: No space left on device") == 1


def test_what_waits_is_written_before_the_end_and_several_share_a_file(tmp_path: Path) -> None:
    logs = [AccessLog(str(tmp_path / "log")) for _ in range(3)]
    for number in range(300):
        logs[number % 3].write(over())
    for each in logs:
        each.close(5)
    assert len([json.loads(line) for line in (tmp_path / "log").read_bytes().splitlines()]) == 300


def test_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    stderr = AccessLog("-")
    stderr.write(over())
    stderr.close(5)
    (line,) = capfd.readouterr().err.splitlines()
    assert json.loads(line)["request_id"] == "r"
