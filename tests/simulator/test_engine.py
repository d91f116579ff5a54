"""Life of a call: pace, slots, pause, abort, disconnect, and the journal that counts them."""

import asyncio
import json
import time
from typing import Any

import httpx

BODY = {"messages": [{"role": "user", "content": "hello"}]}


async def journal(client: httpx.AsyncClient) -> dict[str, Any]:
    report: dict[str, Any] = (await client.get("/simulator/requests")).json()
    return report


async def until(client: httpx.AsyncClient, state: str, count: int = 1) -> None:
    async with asyncio.timeout(5):
        while (await journal(client))[state] != count:
            await asyncio.sleep(0.005)


def start(client: httpx.AsyncClient, **fields: Any) -> "asyncio.Task[httpx.Response]":
    return asyncio.ensure_future(client.post("/v1/chat/completions", json={**BODY, **fields}))


async def test_tokens_come_at_the_pace_that_is_set(running: Any) -> None:
    async with running(ttft=0.3, tokens_per_second=100) as client:
        began = time.monotonic()
        arrivals: list[float] = []
        body = {**BODY, "stream": True, "max_tokens": 11}
        async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    arrivals.append(time.monotonic() - began)
    # The role chunk comes with the first token.
    assert arrivals[0] >= 0.3
    assert arrivals[-1] >= 0.4


async def test_calls_beyond_the_slots_wait_in_line(running: Any) -> None:
    async with running(slots=1, tokens_per_second=500) as client:
        calls = [start(client, max_tokens=20) for _ in range(3)]
        await until(client, "waiting", 2)
        assert (await journal(client))["running"] == 1
        replies = await asyncio.gather(*calls)
        assert [reply.status_code for reply in replies] == [200] * 3
        assert (await journal(client))["finished"] == 3


async def test_a_client_that_leaves_stops_the_generation(running: Any) -> None:
    async with running(slots=1, tokens_per_second=200) as client:
        for stream in (True, False):
            leaving = start(client, stream=stream, ignore_eos=True, max_tokens=5000)
            await until(client, "running")
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            await until(client, "aborted", 1 + (not stream))
        # The slot is free again.
        assert (await start(client, max_tokens=2)).status_code == 200
        report = await journal(client)
    assert (report["started"], report["finished"], report["aborted"]) == (3, 1, 2)
    assert all(call["generated_tokens"] < 200 for call in report["requests"])


async def test_a_client_that_leaves_the_line_gives_up_its_place(running: Any) -> None:
    async with running(slots=1, tokens_per_second=200) as client:
        first = start(client, ignore_eos=True, max_tokens=5000)
        await until(client, "running")
        waiting = start(client, stream=True)
        await until(client, "waiting")
        for call in (waiting, first):
            call.cancel()
        await asyncio.gather(waiting, first, return_exceptions=True)
        await until(client, "aborted", 2)


async def test_one_request_is_aborted_by_its_id(running: Any) -> None:
    async with running(tokens_per_second=200) as client:
        calls = [start(client, request_id=name, ignore_eos=True, max_tokens=100) for name in ("a", "b")]
        await until(client, "running", 2)
        await client.post("/abort_requests", json={"request_ids": ["chatcmpl-a"]})
        aborted, finished = [reply.json()["choices"][0] for reply in await asyncio.gather(*calls)]
        report = await journal(client)
    assert (aborted["finish_reason"], finished["finish_reason"]) == ("abort", "length")
    assert (report["aborted"], report["finished"]) == (1, 1)


async def test_a_paused_engine_lets_new_requests_hang(running: Any) -> None:
    async with running() as client:
        await client.post("/pause", params={"mode": "wait"})
        assert (await client.get("/is_paused")).json() == {"is_paused": True}
        call = start(client)
        await until(client, "waiting")
        await client.post("/resume")
        assert (await call).status_code == 200
        assert (await client.get("/is_paused")).json() == {"is_paused": False}


async def test_silence_is_filled_with_comments(running: Any) -> None:
    async with running(ttft=0.1, keep_alive_interval=0.03) as client:
        text = (await start(client, stream=True, max_tokens=2)).text
    events = [event for event in text.split("\n\n") if event]
    assert events[0] == ": keep-alive"
    assert '"role":"assistant"' in next(event for event in events if event.startswith("data: "))
    assert events[-1] == "data: [DONE]"
    assert all(event == ": keep-alive" or event.startswith("data: ") for event in events)


async def test_a_stream_says_nothing_before_its_first_token(running: Any) -> None:
    async with running(ttft=0.2) as client:
        began = time.monotonic()
        async with client.stream("POST", "/v1/chat/completions", json={**BODY, "stream": True}) as response:
            async for _ in response.aiter_raw():
                break
            assert time.monotonic() - began > 0.15


async def test_the_key_is_asked_for_under_v1_only(running: Any) -> None:
    async with running(api_key="k") as client:
        wrong = await client.get("/v1/models", headers={"authorization": "Bearer x"})
        right = await client.get("/v1/models", headers={"authorization": "Bearer k"})
        open_to_all = [(await client.get(path)).status_code for path in ("/health", "/version", "/simulator/requests")]
    assert (wrong.status_code, wrong.json()) == (401, {"error": "Unauthorized"})
    assert right.status_code == 200
    assert open_to_all == [200] * 3


async def test_tokenize_and_detokenize_agree_with_the_prompt(running: Any) -> None:
    async with running() as client:
        tokens = (await client.post("/tokenize", json=BODY)).json()["tokens"]
        reply = await start(client, return_token_ids=True)
        text = (await client.post("/detokenize", json={"tokens": tokens})).json()["prompt"]
        refused = await client.post("/detokenize", json={"tokens": [9999]})
    assert reply.json()["prompt_token_ids"] == tokens
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert refused.status_code == 400
    assert json.loads(refused.text)["error"]["message"] == "Token id 9999 is out of vocabulary"
