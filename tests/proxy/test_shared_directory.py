"""Several workers and processes write to one directory and are read as one."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import yaml
from running_proxy import HELLO, ProxyProcess, StartProxy, bundle
from scripted_engine import Exchange, ScriptedEngine, ScriptedEngineThread, Turn, chat

HOUR = 3600 * 10**9


class _SteppingClock:
    """Nanoseconds since 1970, until somebody sets it back."""

    def __init__(self) -> None:
        self.offset = 0

    def __call__(self) -> int:
        return time.time_ns() + self.offset


async def test_order_and_account_hold_when_the_clock_steps_back_between_calls_of_two_writers(
    proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path
) -> None:
    clocks = [_SteppingClock(), _SteppingClock()]
    workers = [await proxy(directory=tmp_path / "shared", clock=clock) for clock in clocks]
    engine.default(chat(Turn(text="hello")))
    for number in range(12):
        if number % 3 == 2:
            clocks[number % 2].offset -= HOUR
        content = [{"role": "user", "content": str(number)}]
        response = await workers[number % 2].chat({"messages": content, "stream": number % 5 == 0}, "s")
        assert response.status_code == 200
    for reader in workers:
        records = await reader.records("s")
        assert [record["messages"][0]["content"] for record in records] == [str(number) for number in range(12)]
        assert [record["uuid"] for record in records] == sorted(record["uuid"] for record in records)
        assert await reader.fates("s") == {"valid": 12}


async def test_order_holds_when_a_proxy_with_a_slow_clock_takes_over(
    proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path
) -> None:
    engine.default(chat(Turn(text="hello")))
    ahead = await proxy(directory=tmp_path / "shared", clock=lambda: time.time_ns() + HOUR)
    first = await ahead.chat({}, "s")
    behind = await proxy(directory=tmp_path / "shared", clock=time.time_ns)
    second = await behind.chat({}, "s")
    assert [record["uuid"] for record in await behind.records("s")] == [
        first.headers["x-request-id"],
        second.headers["x-request-id"],
    ]


async def test_an_open_call_of_another_writer_counts_as_open(
    proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path
) -> None:
    async def wait(exchange: Exchange) -> None:
        await exchange.gate()
        await chat(Turn(text="hello"))(exchange)

    reader = await proxy(directory=tmp_path / "shared")
    other = await proxy(directory=tmp_path / "shared")
    engine.reply(wait)
    calling = asyncio.create_task(other.chat({}, "s"))
    await engine.until(lambda: engine.started == 1)
    assert await reader.fates("s") == {"open": 1}
    engine.step()
    await calling
    assert await reader.fates("s") == {"valid": 1}


@pytest.fixture
def engine_thread() -> Iterator[ScriptedEngineThread]:
    with ScriptedEngineThread() as thread:
        yield thread


def test_two_processes_of_two_workers_share_a_directory(engine_thread: ScriptedEngineThread, tmp_path: Path) -> None:
    engine_thread.default(chat(Turn(text="hello")))
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(bundle(engine_thread.engine.base_url)))
    command = ["-c", "x.yaml", "--", "serve", "--host", "127.0.0.1", "--port", "0", "--workers", "2"]
    with ProxyProcess(command, tmp_path) as first, ProxyProcess(command, tmp_path) as second:
        uuids = []
        for number in range(12):
            # A new connection each time, so that all workers get some.
            url = (first, second)[number % 2].url + "/v1/chat/completions"
            response = httpx.post(url, json=HELLO, headers={"proxy_x_session_id": "s"}, trust_env=False, verify=False)
            uuids.append(response.headers["x-request-id"])
        for process in (first, second):
            with process.client() as client:
                envelope = client.get("/v1/sessions/s/completions").json()
            assert [record["uuid"] for record in envelope["completions"]] == uuids
            assert envelope["accounting"]["begun"] == envelope["accounting"]["valid"] == 12


def test_a_killed_process_leaves_a_balanced_account_and_masks_nothing(
    engine_thread: ScriptedEngineThread, tmp_path: Path
) -> None:
    async def stall(exchange: Exchange) -> None:
        await exchange.stall()

    (tmp_path / "x.yaml").write_text(yaml.safe_dump(bundle(engine_thread.engine.base_url)))
    command = ["-c", "x.yaml", "--", "serve", "--host", "127.0.0.1", "--port", "0"]
    engine_thread.reply(chat(Turn(text="hello")), stall)
    headers = {"proxy_x_session_id": "s"}
    with ProxyProcess(command, tmp_path) as first, first.client() as client, ThreadPoolExecutor(1) as agent:
        client.post("/v1/chat/completions", json=HELLO, headers=headers)
        calling = agent.submit(client.post, "/v1/chat/completions", json=HELLO, headers=headers)
        engine_thread.until(lambda: engine_thread.engine.started == 2)
        first.kill()
        assert isinstance(calling.exception(), httpx.TransportError)
    with ProxyProcess(command, tmp_path) as second, second.client() as client:
        envelope = client.get("/v1/sessions/s/completions?settled=5").json()
    account = envelope["accounting"]
    assert (account["begun"], account["valid"], account["abandoned"], account["open"]) == (2, 1, 1, 0)
    assert [record["is_valid"] for record in envelope["completions"]] == [True]
