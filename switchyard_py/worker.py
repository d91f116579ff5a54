"""One thread that runs functions in order, for work that must not run on an event loop.

Results go back in batches: the loop is woken once for all results that are ready by the time it looks, which costs
about half of `loop.run_in_executor` per step.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger(__name__)

# A look costs 20 microseconds; the kernel moves a busy thread far less often.
FOLLOW_SECONDS = 0.005
# Place of the core a thread ran on last in /proc/.../stat, counted behind the name of the program (proc(5)).
_CORE_FIELD = 36

T = TypeVar("T")


class WorkThread:
    """A thread with a queue. Functions run one at a time in the order they were handed in, delayed ones when due.

    Those of `submit_when_idle` and `post_when_idle` keep an order of their own and run when nothing else waits. Usable
    from any thread and from several event loops at once.
    """

    def __init__(self, name: str, *, beside: int | None = None) -> None:
        """`beside` is the native id of a thread on whose core this one is to run, on Linux.

        For a thread with many short system calls whose results one loop waits for: each call hands the interpreter's
        lock over, and between two cores that costs more than the call (32 connections: 1.17 against 0.81 ms a call).
        """
        self._beside = beside if hasattr(os, "sched_setaffinity") else None
        self._cores = os.sched_getaffinity(0) if self._beside is not None else set()
        self._core = -1
        self._look_at = 0.0
        self._jobs: deque[Callable[[], None]] = deque()
        self._idle_jobs: deque[Callable[[], None]] = deque()
        self._delayed: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        # One token for each job, and some without one. Waiting for it costs less than for a Condition.
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closing = False
        self._mailboxes: dict[asyncio.AbstractEventLoop, _Mailbox] = {}
        # A daemon: a function that hangs on a dead disk must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Run `function(*args)` in the thread and return or raise what it did.

        Cancelling the waiter does not cancel the function. Raises RuntimeError when the thread is closed.
        """
        return await self._submit(self._jobs, function, args)

    def submit_when_idle(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Like `run` without waiting for it; the function runs only when nothing else waits."""
        return self._submit(self._idle_jobs, function, args)

    def _submit(
        self, jobs: deque[Callable[[], None]], function: Callable[..., T], args: tuple[Any, ...]
    ) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        mailbox = self._mailbox(loop)

        def job() -> None:
            try:
                result = function(*args)
            except BaseException as error:
                mailbox.put(future, None, error)
            else:
                mailbox.put(future, result, None)

        self._enqueue(jobs, job)
        return future

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Run `function(*args)` in the thread and forget it; what it raises is logged."""
        self._enqueue(self._jobs, lambda: _run_logged(function, args))

    def post_when_idle(self, function: Callable[..., object], *args: Any) -> None:
        """Like `post`, but only when nothing else waits."""
        self._enqueue(self._idle_jobs, lambda: _run_logged(function, args))

    def post_after(self, seconds: float, function: Callable[..., object], *args: Any) -> None:
        """Like `post`, not before `seconds` have passed; dropped when the thread closes first."""
        due = time.monotonic() + seconds
        with self._lock:
            self._refuse_when_closing()
            heapq.heappush(self._delayed, (due, next(self._order), lambda: _run_logged(function, args)))
            self._tokens.put(None)

    def close(self, timeout: float | None = None) -> bool:
        """Take no more work, finish what is queued and join. False when that took longer than `timeout` seconds."""
        with self._lock:
            self._closing = True
            self._tokens.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _enqueue(self, jobs: deque[Callable[[], None]], job: Callable[[], None]) -> None:
        with self._lock:
            self._refuse_when_closing()
            jobs.append(job)
            self._tokens.put(None)

    def _refuse_when_closing(self) -> None:
        if self._closing:
            raise RuntimeError(f"the work thread {self._thread.name!r} is closed")

    def _mailbox(self, loop: asyncio.AbstractEventLoop) -> _Mailbox:
        mailbox = self._mailboxes.get(loop)
        if mailbox is None:
            for ended in [known for known in self._mailboxes if known.is_closed()]:
                del self._mailboxes[ended]
            mailbox = self._mailboxes[loop] = _Mailbox(loop)
        return mailbox

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            if self._beside is not None and time.monotonic() >= self._look_at:
                self._follow(self._beside)
            job()
            # Not kept while waiting: its arguments can be a record of many megabytes.
            del job

    def _follow(self, thread: int) -> None:
        self._look_at = time.monotonic() + FOLLOW_SECONDS
        try:
            with open(f"/proc/self/task/{thread}/stat", "rb") as file:
                core = int(file.read().rpartition(b")")[2].split()[_CORE_FIELD])
            if core != self._core:
                os.sched_setaffinity(0, {core})
                self._core = core
        except (OSError, ValueError, IndexError):
            # The thread is gone, or this is another kind of kernel: run anywhere.
            self._beside = None
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self._cores)

    def _next_job(self) -> Callable[[], None] | None:
        while True:
            timeout = None
            if self._delayed and not self._closing:
                timeout = self._delayed[0][0] - time.monotonic()
                if timeout <= 0:
                    with self._lock:
                        return heapq.heappop(self._delayed)[2]
            try:
                self._tokens.get(timeout=timeout)
            except queue.Empty:
                continue
            if self._jobs:
                return self._jobs.popleft()
            if self._idle_jobs:
                return self._idle_jobs.popleft()
            if self._closing:
                return None


class _Mailbox:
    """Finished results on their way to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._called = False

    def put(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._ready.append((future, result, error))
        # `_deliver` clears the mark before it empties the deque, so what is appended while the mark is set is seen.
        if not self._called:
            self._called = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                self._ready.clear()  # the loop is closed: nobody waits any more

    def _deliver(self) -> None:
        self._called = False
        while self._ready:
            future, result, error = self._ready.popleft()
            if future.done():
                if error is not None:
                    log.error("work whose waiter is gone failed", exc_info=error)
            elif error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):
                # A future refuses StopIteration, and the waiter would hang.
                future.set_exception(RuntimeError("the function raised StopIteration"))
            else:
                future.set_exception(error)


def _run_logged(function: Callable[..., object], args: tuple[Any, ...]) -> None:
    try:
        function(*args)
    except BaseException:
        log.exception("posted work failed")
