"""The engine generates once for each call, whatever happens to connections."""

import asyncio

import pytest
from running_proxy import StartProxy
from scripted_engine import Exchange, ScriptedEngine, Turn, chat

TURN = Turn(text="hello")


@pytest.mark.parametrize("stream", [False, True])
async def test_each_call_is_one_generation_even_of_equal_requests_at_once(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool
) -> None:
    running = await proxy()
    engine.default(chat(TURN))
    await asyncio.gather(*(running.chat({"stream": stream}, "s") for _ in range(20)))
    assert (engine.started, engine.completed) == (20, 20)
    assert await running.fates("s") == {"valid": 20}
    assert len({dict(request.headers)["x-request-id"] for request in engine.generations}) == 20


async def test_the_engine_knows_the_call_by_the_name_of_its_record(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(TURN))
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sent = {
        "traceparent": trace,
        "authorization": "Bearer mine",
        "cookie": "a=b",
        "x-request-id": "rid-1",
        "user-agent": "me",
        "x-data-parallel-rank": "1",
        "openai-organization": "o",
    }
    response = await running.chat({}, "s", sent)
    (record,) = await running.records("s")
    headers = {name.lower(): value for name, value in engine.generations[0].headers}
    assert headers.pop("host") == f"127.0.0.1:{engine.port}"
    assert headers.pop("content-length") == str(len(engine.generations[0].body))
    assert headers == {
        "content-type": "application/json",
        "accept-encoding": "identity",
        "authorization": "Bearer dummy",
        "x-request-id": record["uuid"],
        "x-session-id": "s",
        "traceparent": trace,
    }
    assert response.headers["x-request-id"] == record["uuid"]
    assert record["call"]["client"] == {"request_id": "rid-1", "user_agent": "me"}


async def _drop(exchange: Exchange) -> None:
    exchange.close()


async def test_a_reused_connection_closed_without_a_reply_is_resent_once(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    engine.reply(chat(TURN), _drop, chat(TURN))
    await running.chat({}, "s")
    response = await running.chat({}, "s")
    assert response.status_code == 200
    assert [request.connection for request in engine.generations] == [1, 1, 2]
    assert (await running.stats())["resent"] == 1
    assert await running.fates("s") == {"valid": 2}


async def test_it_is_not_resent_twice(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(TURN), _drop, _drop, chat(TURN))
    await running.chat({}, "s")
    assert (await running.chat({}, "s")).status_code == 502
    assert len(engine.generations) == 3
    assert await running.fates("s") == {"valid": 1, "failed": 1}


async def test_a_new_connection_closed_without_a_reply_is_not_resent(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(_drop, chat(TURN))
    assert (await running.chat({}, "s")).status_code == 502
    assert len(engine.generations) == 1


async def test_a_reused_connection_that_broke_in_mid_reply_is_not_resent(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    async def cut(exchange: Exchange) -> None:
        await exchange.headers(200, {"content-type": "application/json", "content-length": "100"})
        exchange.reset()

    running = await proxy()
    engine.reply(chat(TURN), cut, chat(TURN))
    await running.chat({}, "s")
    assert (await running.chat({}, "s")).status_code == 502
    assert len(engine.generations) == 2


async def test_a_connection_is_used_again_after_each_kind_of_reply(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.default(chat(TURN))
    for body in ({}, {"stream": True}, {}, {"stream": True}):
        await running.chat(body, "s")
        await running.chat(body)
    assert engine.connections == 1
