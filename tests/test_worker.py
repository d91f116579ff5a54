import asyncio
import gc
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from switchyard_py.worker import FOLLOW_SECONDS, WorkThread


@pytest.fixture
def thread() -> Iterator[WorkThread]:
    thread = WorkThread("test")
    yield thread
    assert thread.close(5)


async def test_returns_what_the_function_returns_and_runs_it_elsewhere(thread: WorkThread) -> None:
    assert await thread.run(lambda *args: (threading.current_thread().name, args), 1, "a") == ("test", (1, "a"))


async def test_raises_what_the_function_raises(thread: WorkThread) -> None:
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 / 0)
    assert await thread.run(int, "7") == 7


async def test_a_function_that_raises_stop_iteration_does_not_hang_its_waiter(thread: WorkThread) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(thread.run(next, iter(())), 5)


async def test_runs_in_the_order_of_the_calls(thread: WorkThread) -> None:
    seen: list[int] = []
    for number in range(50):
        thread.post(seen.append, number)
    await asyncio.gather(*(thread.run(seen.append, number) for number in range(50, 100)))
    assert seen == list(range(100))


async def test_idle_work_runs_in_order_when_nothing_else_waits(thread: WorkThread) -> None:
    seen: list[str] = []
    go = threading.Event()
    thread.post(go.wait, 5)
    idle = thread.submit_when_idle(seen.append, "idle 1")
    thread.post_when_idle(seen.append, "idle 2")
    thread.post(seen.append, "first")
    thread.post(lambda: thread.post(seen.append, "asked for meanwhile"))
    last = thread.submit_when_idle(seen.append, "idle 3")
    go.set()
    await idle
    await last
    assert seen == ["first", "asked for meanwhile", "idle 1", "idle 2", "idle 3"]


async def test_wakes_the_loop_once_for_all_results_that_are_ready(
    thread: WorkThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    woken = 0
    wake: Callable[..., Any] = loop.call_soon_threadsafe

    def count(*args: Any) -> Any:
        nonlocal woken
        woken += 1
        return wake(*args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", count)
    done = threading.Event()
    waiters = [asyncio.ensure_future(thread.run(abs, -number)) for number in range(200)]
    waiters.append(asyncio.ensure_future(thread.run(done.set)))
    await asyncio.sleep(0)  # all of them are queued
    done.wait(5)  # the loop stands still while the thread works
    assert await asyncio.gather(*waiters[:-1]) == list(range(200))
    await waiters[-1]
    assert woken <= 3


async def test_a_cancelled_waiter_does_not_cancel_the_function(
    thread: WorkThread, caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()
    seen: list[str] = []
    thread.post(go.wait, 5)
    waiter = asyncio.ensure_future(thread.run(seen.append, "done"))
    failing = asyncio.ensure_future(thread.run(lambda: 1 / 0))
    await asyncio.sleep(0)
    waiter.cancel()
    failing.cancel()
    await asyncio.gather(waiter, failing, return_exceptions=True)
    go.set()
    await thread.run(lambda: None)
    assert seen == ["done"]
    assert "division by zero" in caplog.text  # its waiter is gone: the log is the only place left


async def test_what_a_posted_function_raises_is_logged(thread: WorkThread, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        thread.post(lambda: 1 / 0)
        await thread.run(lambda: None)
    assert "ZeroDivisionError" in caplog.text


async def test_delayed_work_waits_its_time_and_does_not_hold_up_other_work(thread: WorkThread) -> None:
    seen: list[str] = []
    start = time.monotonic()
    times: list[float] = []
    thread.post_after(0.06, seen.append, "later")
    thread.post_after(0.03, seen.append, "sooner")
    thread.post_after(0.06, lambda: times.append(time.monotonic() - start))
    await thread.run(seen.append, "now")
    while not times:
        await asyncio.sleep(0.005)
    assert seen == ["now", "sooner", "later"]
    assert times[0] >= 0.06


def test_several_loops_use_one_thread_at_the_same_time(thread: WorkThread) -> None:
    results: list[list[int]] = []

    def loop_of_its_own() -> None:
        async def work() -> list[int]:
            return [await thread.run(abs, -number) for number in range(100)]

        results.append(asyncio.run(work()))

    others = [threading.Thread(target=loop_of_its_own) for _ in range(4)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert results == [list(range(100))] * 4


def test_a_loop_that_closed_in_the_meantime_does_no_harm(thread: WorkThread) -> None:
    go = threading.Event()

    async def leave() -> None:
        waiter = asyncio.ensure_future(thread.run(go.wait, 5))
        await asyncio.sleep(0)
        waiter.cancel()

    asyncio.run(leave())
    go.set()
    assert asyncio.run(thread.run(abs, -1)) == 1


def test_close_finishes_what_is_queued_and_drops_what_is_delayed() -> None:
    thread = WorkThread("closing")
    seen: list[str] = []
    thread.post(time.sleep, 0.02)
    thread.post_when_idle(seen.append, "idle")
    thread.post(seen.append, "queued")
    thread.post_after(60, seen.append, "delayed")
    assert thread.close(5)
    assert seen == ["queued", "idle"]
    with pytest.raises(RuntimeError, match="closed"):
        thread.post(seen.append, "late")
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(thread.run(seen.append, "late"))


def test_close_tells_when_the_thread_hangs() -> None:
    thread, go = WorkThread("hanging"), threading.Event()
    thread.post(go.wait)
    assert not thread.close(0.01)
    go.set()
    assert thread.close(5)


async def test_nothing_of_a_finished_job_is_kept(thread: WorkThread) -> None:
    class Record:
        pass

    record = Record()
    gone = weakref.ref(record)
    await thread.run(id, record)
    del record
    async with asyncio.timeout(5):
        while gone() is not None:
            gc.collect()
            await asyncio.sleep(0.005)


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two cores"
)
async def test_it_follows_a_thread_from_core_to_core() -> None:
    cores = os.sched_getaffinity(0)
    worker = WorkThread("test", beside=threading.get_native_id())
    try:
        for core in cores:
            os.sched_setaffinity(0, {core})
            await asyncio.sleep(FOLLOW_SECONDS)
            assert await worker.run(os.sched_getaffinity, 0) == {core}
    finally:
        os.sched_setaffinity(0, cores)
        worker.close()


async def test_it_works_beside_a_thread_that_is_gone() -> None:
    worker = WorkThread("test", beside=2**30)
    assert await worker.run(lambda: 1) == 1
    worker.close()
