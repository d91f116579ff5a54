import time
from typing import Any

import httpx
import pytest

BODY = {"messages": [{"role": "user", "content": "hello"}], "return_token_ids": True, "logprobs": True}


async def post(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post("/v1/chat/completions", json={**BODY, **fields})


async def test_the_chosen_call_is_refused(running: Any) -> None:
    async with running(faults=[{"call": 2, "status": 503}]) as client:
        statuses = [(await post(client)).status_code for _ in range(3)]
        refused = (await client.get("/simulator/requests")).json()
    assert statuses == [200, 503, 200]
    assert (refused["failed"], refused["finished"]) == (1, 2)


async def test_a_refusal_has_the_shape_of_an_engine_error(running: Any) -> None:
    async with running(faults=[{"request_id": "x", "status": 429}]) as client:
        refused = await client.post("/v1/chat/completions", json=BODY, headers={"x-request-id": "x"})
        served = await client.post("/v1/chat/completions", json=BODY, headers={"x-request-id": "y"})
    assert refused.json()["error"] == {
        "message": "Simulated failure with status 429.",
        "type": "RateLimitError",
        "param": None,
        "code": 429,
    }
    assert served.status_code == 200


async def test_a_stream_is_cut_after_its_chunks(running: Any) -> None:
    received = ""
    async with running(faults=[{"cut_after": 3}]) as client:
        async with client.stream("POST", "/v1/chat/completions", json={**BODY, "stream": True}) as reply:
            texts = reply.aiter_text()
            while received.count("data: {") < 3:
                received += await anext(texts)
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(texts)
        report = (await client.get("/simulator/requests")).json()
    assert received.count("data: {") == 3
    assert "[DONE]" not in received
    assert (report["failed"], report["running"]) == (1, 0)


async def test_a_reply_breaks_off_in_the_middle(running: Any) -> None:
    async with running(faults=[{"cut_after": 0}]) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await post(client)
        assert (await client.get("/simulator/requests")).json()["failed"] == 1


async def test_a_dying_engine_says_so(running: Any) -> None:
    async with running(faults=[{"die_after": 2}]) as client:
        whole = await post(client)
        events = (await post(client, stream=True)).text.split("\n\n")
    assert whole.status_code == 500
    assert "EngineCore encountered an issue" in whole.json()["error"]["message"]
    assert '"code": 500' in events[2]
    assert events[3:] == ["data: [DONE]", ""]


async def test_keys_are_stripped_everywhere(running: Any) -> None:
    async with running(faults=[{"strip": ["token_ids", "logprobs"]}]) as client:
        whole = await post(client)
        stream = await post(client, stream=True)
    for text in (whole.text, stream.text):
        assert '"token_ids"' not in text
        assert '"logprobs"' not in text
        assert '"prompt_token_ids"' in text


async def test_faults_add_up(running: Any) -> None:
    async with running(faults=[{"delay": 0.05}, {"call": 1, "delay": 0.05, "status": 500}]) as client:
        began = time.monotonic()
        assert (await post(client)).status_code == 500
        assert time.monotonic() - began >= 0.1
        assert (await post(client)).status_code == 200
