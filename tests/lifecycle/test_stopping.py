"""From the signal to the end of the process, as load balancers, agents, trainers and operators see it."""

import asyncio
import os
import re
import signal
import socket
import time

import httpx
import orjson
import pytest
from event_stream import DONE, events, joined
from running_proxy import HELLO
from scripted_engine import Exchange, ScriptedEngineThread
from stopping import TURN, StartStopping
from stored_calls import intent

from switchyard_py.capture.ledger import Ledger

BOTH = pytest.mark.parametrize("workers", [1, 2])
EVERYTHING = 100


async def _without_end(exchange: Exchange) -> None:
    await exchange.stream_headers()
    chunk = {"choices": [{"index": 0, "delta": {"content": "x" * 60_000}}]}
    while True:
        await exchange.send(b"data: " + orjson.dumps(chunk) + b"\n\n")


@BOTH
def test_while_it_drains_it_refuses_calls_and_answers_everything_else(start: StartStopping, workers: int) -> None:
    proxy = start(workers, drain_seconds=1.0)
    assert proxy.get("/readyz").status_code == 200
    stopped_at = proxy.stop()
    proxy.until_draining()
    ready = proxy.get("/readyz")
    assert list(ready.json()["failing"]) == ["draining"]
    assert ready.headers["retry-after"] == "2"
    for stream in (False, True):
        refused = proxy.post(stream=stream)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert refused.json()["error"]["type"] == "server_error"
        assert int(refused.headers["retry-after"]) > 0
        assert refused.headers["connection"] == "close"
    assert proxy.get("/livez").status_code == 200
    assert proxy.get("/v1/sessions").json()["sessions"] == []
    proxy.until(lambda: not proxy.listens())
    assert time.monotonic() - stopped_at >= 1.0
    assert proxy.process.wait(within=15) == 0
    assert re.search(r"SIGTERM: no new calls; 0 calls may run for 20 s", proxy.process.log)
    assert re.search(r"the listener closes; 0 calls running", proxy.process.log)
    assert list((proxy.directory / "writers").iterdir()) == []


@BOTH
def test_calls_that_end_in_time_get_their_answers(
    start: StartStopping, engine: ScriptedEngineThread, workers: int
) -> None:
    proxy = start(workers)
    buffered, streamed = proxy.call(stream=False), proxy.call(stream=True)
    proxy.stop()
    proxy.until(lambda: not proxy.listens())
    assert not buffered.done()
    assert not streamed.done()
    engine.step(EVERYTHING)
    assert buffered.result().json()["choices"][0]["message"]["content"] == TURN.text
    chunks = events(streamed.result().content)
    assert (joined(chunks, "content"), chunks[-1]) == (TURN.text, DONE)
    assert proxy.process.wait(within=15) == 0
    assert proxy.account() == {"valid": 2}
    assert (engine.engine.completed, engine.engine.aborted) == (2, 0)


@BOTH
def test_calls_that_do_not_end_in_time_are_told_so_and_fail(
    start: StartStopping, engine: ScriptedEngineThread, workers: int
) -> None:
    proxy = start(workers, drain_seconds=0.2, grace_seconds=0.8)
    streamed = proxy.call(stream=True)
    engine.step(3)
    engine.until(lambda: engine.engine.gate.locked())
    buffered = proxy.call(stream=False)
    stopped_at = proxy.stop()
    error = buffered.result().json()["error"]
    assert 0.8 <= time.monotonic() - stopped_at < 2.0
    assert buffered.result().status_code == 503
    assert (error["type"], error["code"]) == ("server_error", "shutting_down")
    assert "did not end within 0.8 s, the limit `server.grace_seconds` of this proxy" in error["message"]
    assert "retry-after" in buffered.result().headers
    chunks = events(streamed.result().content)
    assert streamed.result().status_code == 200
    assert chunks[-1]["error"] == error
    assert proxy.process.wait(within=15) == 0
    assert proxy.account() == {"failed": 2}
    failures = proxy.failures()
    assert [failure["reason"] for failure in failures] == ["shutdown", "shutdown"]
    assert len([failure for failure in failures if failure.get("seen")]) == 1
    assert engine.engine.aborted == 2
    assert "did not end within 0.8 s of the signal" in proxy.process.log


def test_the_grace_counts_from_the_signal_even_while_it_drains(start: StartStopping) -> None:
    proxy = start(drain_seconds=1.2, grace_seconds=0.3)
    calling = proxy.call(stream=False)
    stopped_at = proxy.stop()
    assert calling.result().json()["error"]["code"] == "shutting_down"
    assert time.monotonic() - stopped_at < 1.0
    assert proxy.listens()
    assert proxy.process.wait(within=15) == 0
    assert time.monotonic() - stopped_at >= 1.2


@pytest.mark.parametrize(("workers", "how"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_a_second_signal_ends_it_at_once(start: StartStopping, workers: int, how: signal.Signals) -> None:
    proxy = start(workers, drain_seconds=20)
    buffered, streamed = proxy.call(stream=False), proxy.call(stream=True)
    proxy.stop(how)
    proxy.until_draining()
    again_at = proxy.stop(how)
    assert proxy.process.wait(within=15) == 128 + how
    assert time.monotonic() - again_at < 3.5
    assert buffered.result().json()["error"]["code"] == "shutting_down"
    assert events(streamed.result().content)[-1]["error"]["code"] == "shutting_down"
    assert proxy.account() == {"failed": 2}
    assert [failure["reason"] for failure in proxy.failures()] == ["shutdown", "shutdown"]


@BOTH
def test_ctrl_c_waits_only_for_running_calls(start: StartStopping, engine: ScriptedEngineThread, workers: int) -> None:
    proxy = start(workers, drain_seconds=20)
    calling = proxy.call(stream=False)
    # A terminal signals the whole group, and that is not a second signal.
    for pid in proxy.workers():
        os.kill(pid, signal.SIGINT)
    proxy.stop(signal.SIGINT)
    time.sleep(0.3)
    assert not calling.done()
    engine.step()
    assert calling.result().status_code == 200
    assert proxy.process.wait(within=15) == 0
    assert proxy.account() == {"valid": 1}


def test_an_agent_that_does_not_read_keeps_nobody_waiting(start: StartStopping, engine: ScriptedEngineThread) -> None:
    proxy = start(grace_seconds=0.5)
    engine.reply(_without_end)
    body = orjson.dumps({**HELLO, "stream": True})
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nproxy_x_session_id: s\r\ncontent-length: "
    with socket.create_connection(("127.0.0.1", httpx.URL(proxy.process.url).port)) as agent:
        agent.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body)
        # Until everything between engine and agent is full.
        proxy.until(lambda: engine.engine.started == 1)
        time.sleep(0.5)
        stopped_at = proxy.stop()
        assert proxy.process.wait(within=15) == 0
        assert time.monotonic() - stopped_at < 3.0
    assert proxy.account() == {"failed": 1}


def test_a_trainer_that_waits_is_answered_before_the_end(start: StartStopping) -> None:
    proxy = start(grace_seconds=0.5)

    async def begin_elsewhere() -> Ledger:
        ledger = Ledger.open(proxy.directory)
        await ledger.begin(intent())
        return ledger

    with asyncio.Runner() as runner:
        other = runner.run(begin_elsewhere())
        waiting = proxy.get_later("/v1/sessions/s/completions?settled=60")
        time.sleep(0.2)
        proxy.stop()
        assert waiting.result().json()["accounting"]["open"] == 1
        assert proxy.process.wait(within=15) == 0
        runner.run(other.close())
