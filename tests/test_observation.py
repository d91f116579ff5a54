"""What is known of a call when it is over: how long the proxy itself took, and what became of the call."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from switchyard_py.capture.ledger import OpenCall
from switchyard_py.errors import EngineRefused, Kind, SwitchyardError
from switchyard_py.observation import AGENT_GONE, ANSWERED, Observation, Waiting
from switchyard_py.store import State


def test_waits_in_several_places_at_a_time_count_once() -> None:
    waiting, before = Waiting(), time.perf_counter()
    with waiting:
        time.sleep(0.01)
        with waiting:
            time.sleep(0.01)
        assert 0.02 <= waiting.seconds <= time.perf_counter() - before
        time.sleep(0.01)
    after = time.perf_counter() - before
    time.sleep(0.01)
    assert 0.03 <= waiting.seconds <= after


def test_overhead_is_the_time_without_the_waits() -> None:
    observation = Observation("chat")
    with observation.waiting:
        time.sleep(0.03)
    time.sleep(0.01)
    observation.first_byte()
    time.sleep(0.01)
    observation.first_byte()
    observation.end("r", ANSWERED)
    assert observation.first_byte_seconds is not None
    assert observation.first_byte_seconds >= 0.04
    assert 0.01 <= observation.first_byte_overhead < observation.first_byte_seconds - 0.025
    assert observation.first_byte_overhead + 0.01 <= observation.overhead < observation.seconds - 0.025


def test_the_first_end_counts_and_is_told_once() -> None:
    told: list[Observation] = []
    observation = Observation("chat", [told.append, told.append])
    observation.refused(EngineRefused(429, "busy"))
    observation.end("r1", ANSWERED)
    observation.end("r2", "shutting_down")
    assert told == [observation, observation]
    assert (observation.request_id, observation.outcome) == ("r1", "engine_429")


def test_a_listener_that_fails_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Observation] = []

    def fail(_: Observation) -> None:
        raise OSError("no space for counts")

    observation = Observation("chat", [fail, told.append])
    observation.end("r1", ANSWERED)
    assert told == [observation]
    assert "call r1 is not told of by a mistake in this program" in caplog.text


def test_the_code_of_an_error_is_the_outcome() -> None:
    observation = Observation("chat")
    observation.refused(SwitchyardError(Kind.UPSTREAM_TIMEOUT, "late"))
    assert observation.outcome == "upstream_timeout"


@pytest.mark.parametrize(
    ("state", "outcome", "fate"),
    [
        (State.COMMITTED, ANSWERED, "valid"),
        (State.COMMITTED, AGENT_GONE, "undelivered"),
        (State.UNDELIVERED, AGENT_GONE, "undelivered"),
        (State.UNDELIVERED, "capture_unavailable", "undelivered"),
        (State.LOST, ANSWERED, "lost"),
        (State.LOST, "capture_unavailable", "failed"),
        (State.FAILED, "upstream_error", "failed"),
        (State.OPEN, "shutting_down", "failed"),
        (None, "capture_unavailable", ""),
    ],
)
def test_the_fate_is_the_state_the_account_will_have(state: State | None, outcome: str, fate: str) -> None:
    observation = Observation("chat")
    call: Any = SimpleNamespace(state=state)  # of the ledger's call only the state is read
    observation.call, observation.outcome = call, outcome
    assert observation.fate == fate
    assert hasattr(OpenCall, "state")


def test_reasons_make_a_record_invalid_and_a_replay_is_no_call_of_the_account() -> None:
    observation = Observation("chat", outcome=ANSWERED, invalid_reasons=["no_usage"])
    call: Any = SimpleNamespace(state=State.COMMITTED)
    observation.call = call
    assert observation.fate == "invalid"
    observation.replayed = True
    assert observation.fate == "replayed"


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (None, {}),
        (b"null", {}),
        (b"[1]", {}),
        (b'{"prompt_tokens": 5, "completion_tokens": 7}', {"prompt": 5, "completion": 7}),
        (b'{"prompt_tokens": -1, "completion_tokens": 7.5}', {}),
        (b'{"prompt_tokens": true, "completion_tokens": 1e400}', {}),
        (b'{"prompt_tokens": 99999999999999999999}', {}),
        (
            b'{"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details":'
            b' {"reasoning_tokens": 3}}',
            {"prompt": 5, "cached": 4, "reasoning": 3},
        ),
        (b'{"prompt_tokens": 5, "prompt_tokens_details": null}', {"prompt": 5}),
    ],
)
def test_tokens_are_counted_where_the_engine_reports_a_count(usage: bytes | None, tokens: dict[str, int]) -> None:
    observation = Observation("chat", usage=usage)
    observation.end("r", ANSWERED)
    assert observation.tokens == tokens
