"""Durable before actionable: until the record is kept, the agent sees nothing it can act on."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from event_stream import DONE, arguments, events, finish_reason, joined
from running_proxy import StartProxy
from scripted_engine import Exchange, Script, ScriptedEngine, Turn, chat
from stored_calls import FaultyFilesystem, SlowFilesystem

ARGUMENTS = '{"command": "ls"}'
TURN = Turn(text="I run it.", tool_calls=[("run", ARGUMENTS), ("run", "{}")])

# Prints the last moment at which no record was there; monotonic time is the same for all processes.
WATCH = """
import glob, sys, time
absent = 0.0
print("ready", flush=True)
while not glob.glob(sys.argv[1] + "/sessions/*/*.json"):
    absent = time.monotonic()
    time.sleep(0.001)
print(absent)
"""


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that looks at the directory until it has a record."""
    command = [sys.executable, "-c", WATCH, str(tmp_path / "rl_data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


async def _last_absent(watcher: "subprocess.Popen[str]") -> float:
    output, _ = await asyncio.to_thread(watcher.communicate, timeout=10)
    return float(output)


async def test_no_complete_call_and_no_end_is_visible_before_the_record_in_a_stream(
    proxy: StartProxy, engine: ScriptedEngine, watcher: "subprocess.Popen[str]"
) -> None:
    running = await proxy(filesystem=SlowFilesystem(3.0))
    engine.reply(chat(TURN))
    began = time.monotonic()
    body = b""
    live_at = acted_at = 0.0
    async with running.chat_stream({"stream": True}, "s") as response:
        async for data in response.aiter_raw():
            body += data
            chunks = events(body)
            if _is_actionable(arguments(chunks)) or finish_reason(chunks) or DONE in chunks:
                acted_at = acted_at or time.monotonic()
            else:
                live_at = time.monotonic()
    assert await _last_absent(watcher) < acted_at
    assert acted_at - began > 3.0
    # All else was there long before: the text, and the arguments but for their last fragment.
    assert live_at - began < 2.0
    assert joined(events(body), "content") == "I run it."
    assert arguments(events(body)) == ARGUMENTS + "{}"
    assert await running.fates("s") == {"valid": 1}


async def test_nothing_is_visible_before_the_record_in_a_buffered_reply(
    proxy: StartProxy, engine: ScriptedEngine, watcher: "subprocess.Popen[str]"
) -> None:
    running = await proxy(filesystem=SlowFilesystem(0.5))
    engine.reply(chat(TURN))
    began = time.monotonic()
    async with running.chat_stream({}, "s") as response:
        head_at = time.monotonic()
        await response.aread()
    assert await _last_absent(watcher) < head_at
    assert head_at - began > 0.5


async def test_the_tail_comes_in_one_piece_with_the_end_of_the_body(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(filesystem=SlowFilesystem(0.1))
    engine.reply(chat(Turn(text="hello")))
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    body = json.dumps({"model": "policy_model", "messages": [{"role": "user", "content": "hi"}], "stream": True})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nproxy_x_session_id: s\r\ncontent-length: {len(body)}"
    writer.write(f"{head}\r\n\r\n{body}".encode())
    received = b""
    while b'finish_reason":"stop' not in received:
        last = await reader.read(1 << 20)
        received += last
    assert last.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    writer.close()
    await writer.wait_closed()


def _freezing(filesystem: FaultyFilesystem, turn: Turn) -> Script:
    """An engine during whose reply the disk stops to take anything."""

    async def script(exchange: Exchange) -> None:
        filesystem.freeze()
        await chat(turn)(exchange)

    return script


async def test_with_a_store_that_refuses_even_the_mark_the_call_never_completes_in_a_stream(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)
    engine.reply(_freezing(filesystem, TURN))
    response = await running.chat({"stream": True}, "s")
    chunks = events(response.content)
    assert joined(chunks, "content") == "I run it."
    assert not _is_actionable(arguments(chunks[:-1]))
    assert finish_reason(chunks[:-1]) is None
    # The error event is the last thing sent.
    assert chunks[-1]["error"]["code"] == "capture_unavailable"
    assert chunks[-1]["error"]["type"] == "server_error"
    filesystem.heal()
    await running.until_fates("s", {"failed": 1})
    assert await running.records("s") == []


async def test_with_a_store_that_refuses_even_the_mark_a_buffered_reply_is_503(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)
    engine.reply(_freezing(filesystem, TURN))
    response = await running.chat({}, "s")
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "capture_unavailable"
    assert response.headers["retry-after"] == "1"
    assert b"command" not in response.content
    filesystem.heal()
    await running.until_fates("s", {"failed": 1})


@pytest.mark.parametrize("stream", [False, True])
async def test_a_record_that_does_not_fit_is_lost_and_masks_its_session(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool
) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)

    async def fill(exchange: Exchange) -> None:
        filesystem.fill()
        await chat(Turn(text="hello"))(exchange)

    engine.reply(fill)
    response = await running.chat({"stream": stream}, "s")
    assert response.status_code == 200
    assert b"hello" in response.content
    assert (b"[DONE]" in response.content) is stream
    assert await running.fates("s") == {"lost": 1}
    (record,) = await running.records("s")
    assert (record["is_valid"], record["call"]["invalid_reasons"]) == (False, ["lost"])
    assert (record["messages"], record["tools"], record["prompt_token_ids"]) == ([], [], None)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_cannot_begin_is_503_and_nothing_is_sent(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool
) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)
    filesystem.freeze()
    response = await running.chat({"stream": stream}, "s")
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "capture_unavailable"
    assert engine.generations == []
    assert (await running.stats())["ledger"]["refused"] == 1


def _is_actionable(text: str) -> bool:
    """Whether an agent could run a tool: arguments that are JSON as far as they go."""
    try:
        json.JSONDecoder().raw_decode(text)
    except ValueError:
        return False
    return True


async def test_the_event_loop_does_not_wait_for_the_store(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(filesystem=SlowFilesystem(0.5))
    engine.reply(chat(TURN))
    calling = asyncio.create_task(running.chat({}, "s"))
    await engine.until(lambda: engine.completed == 1)
    began = time.monotonic()
    assert (await running.client.get("/health")).status_code == 200
    assert time.monotonic() - began < 0.25
    assert not calling.done()
    await calling
