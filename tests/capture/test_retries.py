"""What is remembered of calls whose agents got no answer, and for how long."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stored_calls import intent

from switchyard_py.capture import retries
from switchyard_py.capture.ledger import Ledger, OpenCall
from switchyard_py.capture.retries import MissedCall, Retries

KEY = ("s", "ab" * 32)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = Ledger.open(tmp_path)
    yield ledger
    assert await ledger.close()


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def memory(clock: _Clock) -> Retries:
    return Retries(60, 100, clock=clock)


async def call(ledger: Ledger, session: str = "s", digest: str = KEY[1]) -> OpenCall:
    return await ledger.begin(intent(session, digest=digest))


async def claimed(memory: Retries, key: tuple[str, str] = KEY) -> tuple[OpenCall, bytes | None] | None:
    missed = await memory.claim(key)
    return None if missed is None else (missed.call, missed.answer)


async def test_each_call_is_claimed_once_and_those_with_an_answer_first(ledger: Ledger, memory: Retries) -> None:
    failed, undelivered = await call(ledger), await call(ledger)
    memory.add(failed)
    memory.add(undelivered, b"answer")
    assert await claimed(memory) == (undelivered, b"answer")
    assert await claimed(memory) == (failed, None)
    assert await claimed(memory) is None


async def test_another_session_or_request_claims_nothing(ledger: Ledger, memory: Retries) -> None:
    memory.add(await call(ledger))
    assert await claimed(memory, ("t", KEY[1])) is None
    assert await claimed(memory, ("s", "cd" * 32)) is None


async def test_an_answer_is_given_up_after_its_time_and_the_call_is_not(
    ledger: Ledger, memory: Retries, clock: _Clock
) -> None:
    first, second = await call(ledger), await call(ledger)
    memory.add(first, b"answer")
    clock.now = 30
    memory.add(second, b"answer")
    clock.now = 60
    assert await claimed(memory) == (second, b"answer")
    assert await claimed(memory) == (first, None)


async def test_the_oldest_answers_are_given_up_for_new_ones(ledger: Ledger, memory: Retries) -> None:
    calls = [await call(ledger) for _ in range(3)]
    for each in calls:
        memory.add(each, bytes(40))
    assert await claimed(memory) == (calls[1], bytes(40))
    # What was claimed takes no place any more.
    another = await call(ledger)
    memory.add(another, bytes(60))
    assert [await claimed(memory) for _ in range(3)] == [(calls[2], bytes(40)), (another, bytes(60)), (calls[0], None)]


async def test_an_answer_larger_than_the_limit_is_not_kept(ledger: Ledger, memory: Retries) -> None:
    large = await call(ledger)
    memory.add(large, bytes(101))
    assert await claimed(memory) == (large, None)


async def test_zero_seconds_keep_no_answer(ledger: Ledger) -> None:
    memory, undelivered = Retries(0, 100), await call(ledger)
    memory.add(undelivered, b"answer")
    assert await claimed(memory) == (undelivered, None)


async def test_what_is_restored_can_be_claimed_again(ledger: Ledger, memory: Retries, clock: _Clock) -> None:
    undelivered = await call(ledger)
    memory.add(undelivered, b"answer")
    missed = await memory.claim(KEY)
    assert isinstance(missed, MissedCall)
    clock.now = 59
    memory.restore(missed)
    clock.now = 118
    assert await claimed(memory) == (undelivered, b"answer")


async def test_the_number_of_calls_is_bounded(ledger: Ledger, memory: Retries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "MOST_CALLS", 2)
    calls = [await call(ledger) for _ in range(3)]
    for each in calls:
        memory.add(each, b"answer")
    assert [await claimed(memory) for _ in range(3)] == [(calls[1], b"answer"), (calls[2], b"answer"), None]


async def test_a_claim_waits_for_the_end_of_a_call_whose_agent_has_gone(ledger: Ledger, memory: Retries) -> None:
    leaving = await call(ledger)
    with memory.attempt(KEY, lambda: True):
        claim = asyncio.ensure_future(claimed(memory))
        await asyncio.sleep(0.01)
        assert not claim.done()
        memory.add(leaving, b"answer")
    assert await claim == (leaving, b"answer")


async def test_a_claim_does_not_wait_for_a_call_whose_agent_is_there(memory: Retries) -> None:
    with memory.attempt(KEY, lambda: False):
        assert await claimed(memory) is None


async def test_a_claim_does_not_wait_for_ever(memory: Retries, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Retries(60, 100)
    monkeypatch.setattr(retries, "WAIT_SECONDS", 0.02)
    with memory.attempt(KEY, lambda: True):
        assert await claimed(memory) is None


async def test_of_two_claims_that_wait_one_gets_the_call(ledger: Ledger, memory: Retries) -> None:
    leaving = await call(ledger)
    with memory.attempt(KEY, lambda: True):
        claims = [asyncio.ensure_future(claimed(memory)) for _ in range(2)]
        await asyncio.sleep(0)
        memory.add(leaving)
    assert await asyncio.gather(*claims) == [(leaving, None), None]
