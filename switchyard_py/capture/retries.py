"""Calls whose agent got no answer, as this process remembers them, so that a retry is known for what it is.

A retry claims the call it repeats, so each call is repeated once, however many equal requests come. A call whose first
connection is open is never claimed: equal calls side by side are several calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from switchyard_py.capture.ledger import OpenCall

MOST_CALLS = 4096
# A retry waits so long for the end of a call whose agent has gone: as long as for a slow store to begin one.
WAIT_SECONDS = 10.0

RequestKey = tuple[str, str]
"""Session id and digest of a request: the same for a call and its retries."""


@dataclass(slots=True, eq=False)
class MissedCall:
    """A call that has ended without its agent having the answer."""

    call: OpenCall
    answer: bytes | None
    """All of it, as long as it is kept; then the call's record may be in the store, undelivered."""
    expires_at: float = 0.0

    @property
    def key(self) -> RequestKey:
        return self.call.intent.session_id, self.call.intent.digest


@dataclass(slots=True, eq=False)
class _Attempt:
    left: Callable[[], bool]
    ended: asyncio.Future[None]


class Retries:
    """Answers are kept `seconds` long (0: not at all) and up to `max_bytes` of them; the oldest are given up first.

    Belongs to one event loop.
    """

    def __init__(self, seconds: float, max_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._bytes = 0
        # The same calls in three orders: all by age, those with an answer by age, and by request.
        self._calls: dict[str, MissedCall] = {}
        self._answers: dict[str, MissedCall] = {}
        self._requests: dict[RequestKey, list[MissedCall]] = {}
        self._attempts: dict[RequestKey, list[_Attempt]] = {}

    @contextmanager
    def attempt(self, key: RequestKey, left: Callable[[], bool]) -> Iterator[None]:
        """A call is served during the block. `left` tells whether its agent has gone: then retries wait for its end."""
        attempt = _Attempt(left, asyncio.get_running_loop().create_future())
        self._attempts.setdefault(key, []).append(attempt)
        try:
            yield
        finally:
            attempts = self._attempts[key]
            attempts.remove(attempt)
            if not attempts:
                del self._attempts[key]
            attempt.ended.set_result(None)

    def add(self, call: OpenCall, answer: bytes | None = None) -> None:
        """Remember a call that failed or, with its whole answer, one that may be undelivered."""
        self.restore(MissedCall(call, answer if self._seconds else None))

    def restore(self, missed: MissedCall) -> None:
        """Remember a call that was claimed in vain."""
        uuid = missed.call.uuid
        missed.expires_at = self._clock() + self._seconds
        self._calls[uuid] = missed
        self._requests.setdefault(missed.key, []).append(missed)
        if missed.answer is not None:
            self._answers[uuid] = missed
            self._bytes += len(missed.answer)
        self._give_up_answers()
        if len(self._calls) > MOST_CALLS:
            self._forget(next(iter(self._calls.values())))

    async def claim(self, key: RequestKey) -> MissedCall | None:
        """The call that a new request repeats, one with an answer first; None when it repeats none."""
        deadline = self._clock() + WAIT_SECONDS
        while (leaving := self._leaving(key)) and (seconds := deadline - self._clock()) > 0:
            await asyncio.wait([leaving], timeout=seconds)
        self._give_up_answers()
        candidates = self._requests.get(key)
        if not candidates:
            return None
        missed = next((each for each in candidates if each.answer is not None), candidates[0])
        self._forget(missed)
        return missed

    def _leaving(self, key: RequestKey) -> asyncio.Future[None] | None:
        return next((attempt.ended for attempt in self._attempts.get(key, ()) if attempt.left()), None)

    def _give_up_answers(self) -> None:
        """The calls are remembered without their answers: their retries generate anew."""
        now = self._clock()
        while self._answers:
            oldest = next(iter(self._answers.values()))
            if oldest.expires_at > now and self._bytes <= self._max_bytes:
                break
            self._drop_answer(oldest)
            oldest.answer = None

    def _drop_answer(self, missed: MissedCall) -> None:
        if missed.answer is not None:
            del self._answers[missed.call.uuid]
            self._bytes -= len(missed.answer)

    def _forget(self, missed: MissedCall) -> None:
        self._drop_answer(missed)
        del self._calls[missed.call.uuid]
        same = self._requests[missed.key]
        same.remove(missed)
        if not same:
            del self._requests[missed.key]
