"""`on_store_failure: uncaptured`: agents go on working while the store takes nothing, and their sessions are masked."""

import asyncio
import threading

import pytest
from event_stream import DONE, events, joined
from running_proxy import StartProxy
from scripted_engine import Exchange, ScriptedEngine, Turn, chat
from stored_calls import FaultyFilesystem

from switchyard_py.store import Filesystem

UNCAPTURED = {"on_store_failure": "uncaptured"}
TURN = Turn(text="hello", tool_calls=[("run", {"a": 1})])


@pytest.mark.parametrize("trouble", ["freeze", "fill"])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_call_is_answered_and_lost(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool, trouble: str
) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem, capture=UNCAPTURED)
    engine.reply(chat(TURN), chat(TURN))
    getattr(filesystem, trouble)()
    response = await running.chat({"stream": stream}, "s")
    assert response.status_code == 200
    if stream:
        chunks = events(response.content)
        assert (joined(chunks, "content"), chunks[-1]) == (TURN.text, DONE)
    else:
        assert response.json()["choices"][0]["message"]["content"] == TURN.text
    # Nothing that capture adds, in either direction; the session field is not sent.
    assert not {"return_token_ids", "logprobs", "proxy_x_session_id"} & set(engine.generations[0].json)
    assert b'"token_ids":[' not in response.content.replace(b" ", b"")
    uuid = response.headers["x-request-id"]
    assert engine.generations[0].header("x-request-id") == uuid
    (record,) = await running.records("s")
    assert (record["uuid"], record["is_valid"], record["call"]["invalid_reasons"]) == (uuid, False, ["lost"])
    assert await running.fates("s") == {"lost": 1}
    ready = await running.client.get("/readyz")
    assert (ready.status_code, "store" in ready.json()["failing"]) == (503, True)
    assert (await running.stats())["uncaptured"] == 1
    filesystem.heal()
    async with asyncio.timeout(5):
        while [file.stem for file in running.files(".lost")] != [uuid]:
            await asyncio.sleep(0.01)
    assert await running.records("s") == [record]
    await running.chat({"stream": stream}, "s")
    assert await running.fates("s") == {"lost": 1, "valid": 1}


async def test_a_sealed_session_stays_as_it_is(proxy: StartProxy, engine: ScriptedEngine) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem, capture=UNCAPTURED)
    engine.reply(chat(TURN))
    await running.chat({}, "s")
    assert (await running.client.post("/v1/sessions/s/seal")).status_code == 200
    filesystem.fill()
    response = await running.chat({}, "s")
    assert (response.status_code, response.json()["error"]["code"]) == (409, "session_sealed")
    assert engine.started == 1
    assert await running.fates("s") == {"valid": 1}


async def test_a_store_that_hangs_delays_the_call_and_no_more(proxy: StartProxy, engine: ScriptedEngine) -> None:
    hanging = threading.Event()
    going = threading.Event()

    class Hanging(Filesystem):
        def create(self, path: str, data: bytes) -> None:
            if hanging.is_set():
                assert going.wait(5)
            super().create(path, data)

    running = await proxy(filesystem=Hanging(), capture={**UNCAPTURED, "begin_timeout": 0.05})
    engine.default(chat(TURN))
    hanging.set()
    responses = await asyncio.gather(*(running.chat({}, "s") for _ in range(3)))
    assert [response.status_code for response in responses] == [200] * 3
    assert await running.fates("s") == {"lost": 3}
    going.set()
    # The first of them had been under way to the disk; it is failed under a name of its own.
    await running.until_fates("s", {"lost": 3, "failed": 1})
    async with asyncio.timeout(5):
        while len(running.files(".lost")) != 3:
            await asyncio.sleep(0.01)


async def test_a_call_that_the_engine_refuses_is_lost_as_well(proxy: StartProxy, engine: ScriptedEngine) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.json({"error": {"message": "no"}}, 400)

    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem, capture=UNCAPTURED)
    engine.reply(refuse)
    filesystem.freeze()
    assert (await running.chat({}, "s")).status_code == 400
    assert await running.fates("s") == {"lost": 1}


async def test_other_sessions_are_not_touched(proxy: StartProxy, engine: ScriptedEngine) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem, capture=UNCAPTURED)
    engine.default(chat(TURN))
    await running.chat({}, "before")
    filesystem.freeze()
    await running.chat({}, "s")
    assert await running.fates("before") == {"valid": 1}
    listed = (await running.client.get("/v1/sessions")).json()["sessions"]
    assert [(each["session_id"], each["accounting"]["lost"]) for each in listed] == [("before", 0), ("s", 1)]
