"""Nothing is left behind by a call: no descriptor, no thread, no task."""

import asyncio
import gc
import os
import threading

from running_proxy import RunningProxy, StartProxy, bundle, running_proxy
from scripted_engine import ScriptedEngine, Turn, chat, chat_stream, json_reply


def _held() -> tuple[int, int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(asyncio.all_tasks())


async def _call_in_every_way(running: RunningProxy, engine: ScriptedEngine, rounds: int) -> None:
    turn = Turn(text="hello")
    for number in range(rounds):
        session = f"s{number % 7}"
        engine.reply(chat(turn), chat(turn), chat(turn), json_reply({"error": {"message": "no"}}, 500))
        engine.reply(chat_stream(turn, events=2, then="reset"))
        await running.chat({}, session)
        await running.chat({"stream": True}, session)
        await running.chat({})
        await running.chat({}, session)
        await running.chat({"stream": True}, session)
        await running.chat(b"[]", session)
        await running.client.get(f"/v1/sessions/{session}/completions")
        await running.client.get("/v1/models")


async def test_after_200_calls_everything_is_as_before(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    # Pools of threads and connections have reached their sizes after some calls.
    await _call_in_every_way(running, engine, 4)
    before = _held()
    await _call_in_every_way(running, engine, 40)
    await asyncio.sleep(0.05)
    after = _held()
    # A pool may grow by a thread or two, a connection may just be open; 200 calls would show.
    assert all(now <= then + 3 for now, then in zip(after, before, strict=True)), (before, after)


async def test_a_proxy_that_has_ended_holds_nothing(proxy: StartProxy, engine: ScriptedEngine) -> None:
    first = await proxy()
    before = _held()
    async with running_proxy(bundle(engine.base_url), first.directory.with_name("other")) as second:
        await _call_in_every_way(second, engine, 2)
    await asyncio.sleep(0.02)
    descriptors, threads, tasks = _held()
    assert descriptors <= before[0] + 1
    assert tasks <= before[2]
    assert {thread.name for thread in threading.enumerate()} >= {"ledger", "large-bodies"}
    assert [thread.name for thread in threading.enumerate()].count("ledger") == 1
    assert threads <= before[1] + 3  # of the event loop's own pool, which ends with the loop
