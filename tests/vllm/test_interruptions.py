"""What ends or delays a call of a real vLLM: an agent that goes away, a paused engine, an aborted generation."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import httpx
import orjson
import pytest
from event_stream import DONE, events, finish_reason
from running_proxy import RunningProxy, StartProxy

# Several seconds of tokens, so that nothing ends by itself.
LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3500, "ignore_eos": True}
SHORT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 20, "temperature": 0}

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["buffered", "streamed"])
RunningCalls = Callable[[], Awaitable[int]]


@pytest.fixture
async def pausable(vllm: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    """The engine, going on again afterwards."""
    yield vllm
    (await vllm.post("/resume")).raise_for_status()


@STREAMED
async def test_an_agent_that_goes_away_stops_the_generation(
    proxy: StartProxy, running_calls: RunningCalls, streamed: bool
) -> None:
    running = await proxy()
    await _go_away(running, running_calls, {**LONG, "stream": streamed})
    left_at = time.monotonic()
    while await running_calls():
        assert time.monotonic() - left_at < 1
    await running.until_fates("s", {"failed": 1})
    (file,) = running.files(".failed")
    failed = orjson.loads(file.read_bytes())
    assert failed["reason"] == "agent_gone"
    # What streamed until then is kept; of a buffered reply nothing was seen.
    assert bool(failed["seen"] and failed["seen"]["generation_token_ids"]) is streamed


async def _go_away(running: RunningProxy, running_calls: RunningCalls, body: dict[str, Any]) -> None:
    async def read() -> None:
        async with running.chat_stream(body, "s") as response:
            async for _ in response.aiter_raw():
                pass

    agent = asyncio.create_task(read())
    while not await running_calls():
        assert not agent.done()
    await asyncio.sleep(0.1)
    agent.cancel()
    with suppress(asyncio.CancelledError):
        await agent


@STREAMED
async def test_a_call_to_a_paused_engine_waits_and_is_answered(
    proxy: StartProxy, pausable: httpx.AsyncClient, streamed: bool
) -> None:
    running = await proxy()
    (await pausable.post("/pause", params={"mode": "wait"})).raise_for_status()
    call = asyncio.create_task(running.chat({**SHORT, "stream": streamed}, "s"))
    await asyncio.sleep(0.5)
    assert not call.done()
    assert await running.fates("s") == {"open": 1}
    (await pausable.post("/resume")).raise_for_status()
    assert (await call).status_code == 200
    assert await running.fates("s") == {"valid": 1}


@STREAMED
@pytest.mark.parametrize(
    ("path", "query"), [("/pause", {"mode": "abort"}), ("/abort_requests", {})], ids=["pause", "abort"]
)
async def test_an_aborted_call_is_answered_and_its_record_invalid(
    proxy: StartProxy,
    pausable: httpx.AsyncClient,
    running_calls: RunningCalls,
    streamed: bool,
    path: str,
    query: dict[str, str],
) -> None:
    running = await proxy()
    # Seen once on a busy machine: a call after a resume ended without ever being counted as running. It is tried again.
    for attempt in map(str, range(3)):
        call = asyncio.create_task(running.chat({**LONG, "stream": streamed}, attempt))
        while not call.done() and not await running_calls():
            pass
        (await pausable.post(path, params=query, json={})).raise_for_status()
        response = await call
        (await pausable.post("/resume")).raise_for_status()
        (record,) = await running.records(attempt)
        if record["finish_reason"] == "abort":
            break
    assert response.status_code == 200
    if streamed:
        chunks = events(response.content)
        assert (finish_reason(chunks), chunks[-1]) == ("abort", DONE)
    else:
        assert response.json()["choices"][0]["finish_reason"] == "abort"
    assert (record["finish_reason"], record["is_valid"]) == ("abort", False)
    assert record["call"]["invalid_reasons"] == ["aborted"]
    assert len(record["generation_token_ids"]) == len(record["generation_log_probs"]) < LONG["max_tokens"]
