"""Bodies of 100 MiB, within the limit, in both directions: what they cost in memory, and that others are served."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import orjson
import yaml
from running_proxy import HELLO, ProxyProcess, bundle
from scale import scaled
from scripted_engine import Exchange, Script, ScriptedEngine, Turn, chat, chat_body, chat_events, sse_reply
from wire_agent import Answer, WireAgent, http_request

MIB = 1024 * 1024
SIZE = scaled(100, 10) * MIB
# One event of a stream may have 64 MiB.
LINE = min(SIZE, 60 * MIB)
TURN = Turn(text="hello")
# Measured: at the peak 6 copies of a body or 8 of a line, and what does not depend on their size.
MOST_COPIES = 10
FIXED = 64 * MIB
HEALTH_SECONDS = 3
# Measured: 0.64 to 0.91; 0.26 when the event loop took a line apart itself.
LEAST_BESIDE = 0.45


class Watched:
    """A proxy process whose memory and liveness are watched while it serves a call."""

    def __init__(self, process: ProxyProcess) -> None:
        self._status = Path(f"/proc/{process.pid}/status")
        self._port = int(process.url.rpartition(":")[2])

    async def call(self, name: str, size: int, request: bytes) -> Answer:
        """Send a request with `size` bytes in it or in its answer."""
        self._status.with_name("clear_refs").write_text("5")  # the peak starts anew (proc(5))
        before, busy_before = self._peak(), self._busy()
        agent = WireAgent(self._port)
        calling = asyncio.create_task(agent.call(request))
        slowest = await self._slowest_health(calling)
        await agent.close()
        copies = (self._peak() - before) / size
        loop, others = (now - then for now, then in zip(self._busy(), busy_before, strict=True))
        print(
            f"{name}: {size / MIB:.0f} MiB, {copies:.1f} times that in memory, /health within {slowest:.2f} s,"
            f" {others / (loop + others):.0%} of the work beside the event loop"
        )
        assert self._peak() - before < MOST_COPIES * size + FIXED
        assert slowest < HEALTH_SECONDS
        assert others / (loop + others) > LEAST_BESIDE
        return calling.result()

    async def _slowest_health(self, calling: "asyncio.Task[Answer]") -> float:
        slowest = 0.0
        prober = WireAgent(self._port)
        while not calling.done():
            began = time.monotonic()
            assert (await prober.call(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")).status == 200
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(0.02)
        await prober.close()
        return slowest

    def _busy(self) -> tuple[int, int]:
        """CPU time of the first thread, which has the event loop, and of all others, in clock ticks (proc(5))."""
        ticks = {}
        for stat in self._status.parent.glob("task/*/stat"):
            fields = stat.read_text().rpartition(")")[2].split()
            ticks[stat.parent.name] = int(fields[11]) + int(fields[12])
        loop = ticks.pop(self._status.parent.name)
        return loop, sum(ticks.values())

    def _peak(self) -> int:
        (line,) = (line for line in self._status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024


def _request(session: str, size: int, chunk_bytes: int | None = None, **fields: Any) -> bytes:
    body = json.dumps({**HELLO, **fields, "messages": [{"role": "user", "content": "@"}]}).encode()
    body = body.replace(b"@", b"x" * size)
    return http_request(body, {"proxy_x_session_id": session}, chunk_bytes=chunk_bytes)


def _saying(size: int) -> Script:
    """A reply whose text is one piece of so many bytes."""
    text, long = b'"content":"hello"', b'"content":"%b"' % (b"y" * size)

    async def script(exchange: Exchange) -> None:
        if exchange.request.json.get("stream"):
            await sse_reply([event.replace(text, long) for event in chat_events(exchange.request, TURN)])(exchange)
        else:
            body = json.dumps(chat_body(exchange.request, TURN), separators=(",", ":")).encode()
            await exchange.json(body.replace(text, long))

    return script


async def test_large_bodies(engine: ScriptedEngine, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(bundle(engine.base_url)))
    process = ProxyProcess(["-c", "x.yaml", "--", "serve", "--host", "127.0.0.1", "--port", "0"], tmp_path)
    await asyncio.to_thread(process.__enter__)
    try:
        watched = Watched(process)
        for name, chunk_bytes in (("request", None), ("request-in-chunks", MIB)):
            engine.reply(chat(TURN))
            assert (await watched.call(name, SIZE, _request(name, SIZE, chunk_bytes))).status == 200
            assert b"x" * SIZE in engine.generations[-1].body
        for name, size, stream in (("reply", SIZE, False), ("line", LINE, True)):
            engine.reply(_saying(size))
            answer = await watched.call(name, size, _request(name, 1, stream=stream))
            assert (answer.status, b"y" * size in answer.body) == (200, True)
    finally:
        await asyncio.to_thread(process.__exit__)
    assert "Traceback" not in process.log
    records = {file.parent.name: orjson.loads(file.read_bytes()) for file in tmp_path.glob("rl_data/sessions/*/*.json")}
    assert {name: (each["is_valid"], each["generation_token_ids"]) for name, each in records.items()} == dict.fromkeys(
        ("request", "request-in-chunks", "reply", "line"), (True, TURN.token_ids)
    )
    assert records["request"]["messages"][0]["content"] == "x" * SIZE
    assert records["reply"]["messages"][-1]["content"] == "y" * SIZE
    assert records["line"]["messages"][-1]["content"] == "y" * LINE
