"""Every answer to a model call has an id and tells what the proxy itself took, and that is not what others took."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from running_proxy import HELLO, RunningProxy, StartProxy
from scripted_engine import Exchange, ScriptedEngine, Turn, chat, json_reply

from switchyard_py.store import Filesystem

OVERHEAD = "x-switchyard-overhead-duration-ms"
SLOW = 0.3


async def lines(path: Path, count: int) -> list[dict[str, Any]]:
    """The lines of the access log, once there are so many."""
    async with asyncio.timeout(5):
        while not path.exists() or len(path.read_bytes().splitlines()) < count:
            await asyncio.sleep(0.01)
    return [json.loads(line) for line in path.read_bytes().splitlines()]


async def test_every_answer_has_an_id_of_its_own_and_its_overhead(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(sessions={"required": True})
    engine.reply(chat(Turn(text="a")), chat(Turn(text="b")), json_reply({"error": {}}, 503), json_reply({}))
    responses = [
        await running.chat({}, "s"),
        await running.chat({"stream": True}, "s"),
        await running.chat({}, "s"),
        await running.chat({}, "s"),
        await running.chat({}),
        await running.chat(b"[]", "s"),
        await running.chat({"model": "nope"}, "s"),
        await running.chat({}, "."),
    ]
    assert [response.status_code for response in responses] == [200, 200, 503, 502, 400, 400, 404, 400]
    assert len({response.headers["x-request-id"] for response in responses}) == len(responses)
    assert all(0 < float(response.headers[OVERHEAD]) < 1000 for response in responses)
    uuids = [record["uuid"] for record in await running.records("s")]
    assert [response.headers["x-request-id"] for response in responses[:2]] == uuids


@pytest.mark.parametrize("stream", [False, True])
async def test_waiting_for_the_engine_is_no_overhead(
    proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path, stream: bool
) -> None:
    async def slow(exchange: Exchange) -> None:
        await exchange.pause(SLOW)
        await chat(Turn(text="one two"), gap_seconds=SLOW / 5)(exchange)

    running = await proxy(server={"access_log": str(tmp_path / "log")})
    engine.reply(slow)
    response = await running.chat({"stream": stream}, "s")
    assert float(response.headers[OVERHEAD]) < SLOW * 500
    (line,) = await lines(tmp_path / "log", 1)
    assert line["first_byte_ms"] > SLOW * 1000
    assert line["total_ms"] > SLOW * (2000 if stream else 1000)
    assert line["overhead_ms"] < line["total_ms"] - SLOW * 900


async def test_waiting_for_the_agent_is_no_overhead(proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path) -> None:
    engine.default(chat(Turn(text="a")))
    running = await proxy(server={"access_log": str(tmp_path / "log")})
    body = json.dumps(HELLO).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body[:5])
    await asyncio.sleep(SLOW)
    writer.write(body[5:])
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert b" 200 " in answer.splitlines()[0]
    (line,) = await lines(tmp_path / "log", 1)
    assert line["total_ms"] > SLOW * 1000
    assert line["overhead_ms"] < SLOW * 900


class SlowFilesystem(Filesystem):
    def rename(self, source: str, target: str) -> None:
        if target.endswith(".json"):
            time.sleep(SLOW)
        super().rename(source, target)


async def test_a_slow_store_is_overhead(proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path) -> None:
    engine.default(chat(Turn(text="a")))
    running = await proxy(filesystem=SlowFilesystem(), server={"access_log": str(tmp_path / "log")})
    response = await running.chat({}, "s")
    assert float(response.headers[OVERHEAD]) > SLOW * 1000
    response = await running.chat({"stream": True}, "s")
    assert float(response.headers[OVERHEAD]) < SLOW * 900  # as of the beginning of the stream
    assert all(line["overhead_ms"] > SLOW * 1000 for line in await lines(tmp_path / "log", 2))


async def test_an_agent_that_reads_slowly_is_no_overhead(
    proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path
) -> None:
    running = await proxy(server={"access_log": str(tmp_path / "log")})
    await _read_late(running, engine)
    (line,) = await lines(tmp_path / "log", 1)
    assert line["total_ms"] > SLOW * 1000
    assert line["overhead_ms"] < line["total_ms"] - SLOW * 500


async def _read_late(running: RunningProxy, engine: ScriptedEngine) -> None:
    """Call for a stream larger than all buffers on the way and let it wait."""
    event = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"x" * 100_000)
    end = {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    async def much(exchange: Exchange) -> None:
        await exchange.stream_headers()
        for _ in range(200):
            await exchange.send(event)
        await exchange.send(b"data: " + json.dumps(end).encode() + b"\n\ndata: [DONE]\n\n")

    engine.default(much)
    body = json.dumps({**HELLO, "stream": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=4096)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await asyncio.sleep(SLOW * 2)
    while await reader.read(1 << 20):
        pass
    writer.close()
    await writer.wait_closed()
