"""A call that outlasts an engine that is full or restarts, and is still generated once."""

import asyncio
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from running_proxy import HELLO, ProxyProcess, StartProxy, bundle
from scripted_engine import (
    Exchange,
    Script,
    ScriptedEngine,
    ScriptedEngineThread,
    Turn,
    chat,
    chat_stream,
    json_reply,
    unanswered_port,
)

TURN = Turn(text="hello")
GIVEN = {"error": {"message": "the queue is full", "type": "ServiceUnavailable", "param": None, "code": 503}}


def refusal(status: int = 503, after: object = None) -> Script:
    return json_reply(GIVEN, status, {} if after is None else {"retry-after": str(after)})


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchyard_py.attempts.FIRST_PAUSE_SECONDS", 0.02)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_before_generating_is_absorbed(
    proxy: StartProxy, engine: ScriptedEngine, status: int, stream: bool
) -> None:
    running = await proxy(target={"retries": 2})
    engine.reply(refusal(status), refusal(status), chat(TURN))
    response = await running.chat({"stream": stream}, "s")
    assert response.status_code == 200
    assert await running.fates("s") == {"valid": 1}
    (record,) = await running.records("s")
    assert [request.header("x-request-id") for request in engine.generations] == [record["uuid"]] * 3
    assert len({request.body for request in engine.generations}) == 1
    assert (await running.stats())["repeated"] == 2


async def test_when_they_are_used_up_the_agent_gets_the_last_refusal(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(target={"retries": 2})
    engine.reply(refusal(429), refusal(), refusal(503, 0.01), chat(TURN))
    response = await running.chat({}, "s")
    assert (response.status_code, response.json(), response.headers["retry-after"]) == (503, GIVEN, "0.01")
    assert len(engine.generations) == 3
    assert await running.fates("s") == {"failed": 1}


async def _stall(exchange: Exchange) -> None:
    await exchange.stall()


async def _close(exchange: Exchange) -> None:
    exchange.close()


@pytest.mark.parametrize(
    "script",
    [*(refusal(status, 0) for status in (400, 408, 500, 502, 504, 529)), _stall, _close,
     chat_stream(TURN, events=2, then="close")],
    ids=["400", "408", "500", "502", "504", "529", "no reply in time", "closed without a reply", "broken off"],
)  # fmt: skip
async def test_nothing_else_is_sent_again(proxy: StartProxy, engine: ScriptedEngine, script: Script) -> None:
    running = await proxy(target={"retries": 5, "first_byte_timeout": 0.1})
    engine.reply(script)
    engine.default(chat(TURN))
    await running.chat({"stream": True}, "s")
    assert len(engine.generations) == 1
    assert await running.fates("s") == {"failed": 1}


async def test_a_refusal_is_let_go_of_before_the_next_attempt(proxy: StartProxy, engine: ScriptedEngine) -> None:
    async def refuse_without_end(exchange: Exchange) -> None:
        await exchange.headers(503, {"content-length": "100"})
        await exchange.stall()

    running = await proxy(target={"retries": 1})
    engine.reply(refuse_without_end, chat(TURN))
    assert (await running.chat({}, "s")).status_code == 200
    await engine.until(lambda: engine.aborted == 1)


async def test_the_engine_says_how_long_to_wait(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(target={"retries": 1})
    engine.reply(refusal(503, 0.3), chat(TURN))
    assert (await running.chat({}, "s")).status_code == 200
    first, second = engine.generations
    assert 0.3 <= second.at - first.at < 1.5


@pytest.mark.parametrize(("after", "budget"), [(30, 1), (None, 0.01)])
async def test_a_wait_beyond_the_budget_is_not_begun(
    proxy: StartProxy, engine: ScriptedEngine, after: int | None, budget: float
) -> None:
    running = await proxy(target={"retries": 100, "retry_budget": budget})
    engine.default(refusal(503, after))
    began = time.monotonic()
    response = await running.chat({}, "s")
    assert time.monotonic() - began < 1
    assert response.status_code == 503
    assert response.headers.get("retry-after") == (None if after is None else "30")
    assert await running.fates("s") == {"failed": 1}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_restart_of_the_engine_is_sat_out(proxy: StartProxy, engine: ScriptedEngine, stream: bool) -> None:
    running = await proxy(target={"retries": 20})
    engine.default(chat(TURN))
    await running.chat({}, "s")
    await engine.stop()
    calling = asyncio.create_task(running.chat({"stream": stream}, "s"))
    await asyncio.sleep(0.1)
    await engine.start()
    assert (await calling).status_code == 200
    assert engine.started == 2
    assert await running.fates("s") == {"valid": 2}


async def test_an_engine_that_stays_away_is_named_with_the_limits(proxy: StartProxy, engine: ScriptedEngine) -> None:
    await engine.stop()
    running = await proxy(target={"retries": 2})
    response = await running.chat({}, "s")
    assert response.status_code == 502
    where = f"127.0.0.1:{engine.port}"
    assert response.json()["error"]["message"] == (
        f"Target actual-model@{where}: cannot connect to {where}: connection refused;"
        " sent again 2 times (retries 2, retry_budget 60 s of the target)."
    )


async def test_a_connection_that_never_stands_is_tried_again(proxy: StartProxy, engine: ScriptedEngine) -> None:
    with unanswered_port() as port:
        target = {"base_url": f"http://127.0.0.1:{port}/v1", "connect_timeout": 0.05, "retries": 1}
        running = await proxy(target=target)
        response = await running.chat({}, "s")
    assert response.status_code == 504
    assert "(connect_timeout of the target); sent again once" in response.json()["error"]["message"]


async def test_an_agent_that_waits_for_its_stream_gets_heartbeats(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(target={"retries": 1, "early_headers_after": 0.05})
    engine.reply(refusal(503, 0.3), chat(TURN))
    response = await running.chat({"stream": True}, "s")
    assert response.content.count(b": keepalive\n") >= 2
    assert response.content.endswith(b"data: [DONE]\n\n")
    assert await running.fates("s") == {"valid": 1}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_that_goes_away_ends_the_waiting(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool
) -> None:
    running = await proxy(target={"retries": 1, "early_headers_after": 0.05})
    engine.reply(refusal(503, 0.4), chat(TURN))
    with pytest.raises(httpx.ReadTimeout):
        await running.client.post(
            "/v1/chat/completions",
            json={**HELLO, "stream": stream},
            headers={"proxy_x_session_id": "s"},
            timeout=httpx.Timeout(5, read=0.04),
        )
    await running.until_fates("s", {"failed": 1}, within=0.3)
    await asyncio.sleep(0.4)
    assert len(engine.generations) == 1


def test_the_end_of_the_process_ends_the_waiting(tmp_path: Path) -> None:
    with ScriptedEngineThread() as thread, ThreadPoolExecutor(1) as agents:
        thread.default(refusal(503, 20))
        server: dict[str, Any] = {"drain_seconds": 0, "grace_seconds": 0.2}
        given = bundle(thread.engine.base_url, target={"retries": 5}, server=server)
        (tmp_path / "bundle.yaml").write_text(yaml.safe_dump(given))
        command = ["-c", "bundle.yaml", "--", "serve", "--host", "127.0.0.1", "--port", "0"]
        with ProxyProcess(command, tmp_path) as process, process.client() as client:
            calling = agents.submit(client.post, "/v1/chat/completions", json=HELLO)
            thread.until(lambda: thread.engine.started == 1, within=5)
            process.send(signal.SIGTERM)
            response = calling.result(timeout=5)
            assert process.wait() == 0
    assert (response.status_code, response.json()["error"]["code"]) == (503, "shutting_down")
    assert "sent again in 20." in process.log
