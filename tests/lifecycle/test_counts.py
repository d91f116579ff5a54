"""The counts of several workers: one answer for all, whichever gives it and whoever has died."""

import os
import signal

from prometheus_client.parser import text_string_to_metric_families
from scripted_engine import ScriptedEngineThread, chat
from stopping import TURN, StartStopping, Stopping, counts_directory

CALLS = 12


def sample(exposition: str, name: str, **labels: str) -> float:
    """The sum of the samples of that name, without the prefix, that have these labels."""
    samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    return sum(s.value for s in samples if s.name == f"switchyard_{name}" and labels.items() <= s.labels.items())


def metric(proxy: Stopping, name: str, **labels: str) -> float:
    return sample(proxy.get("/metrics").text, name, **labels)


def test_any_worker_answers_for_all_and_for_those_that_were_killed(
    start: StartStopping, engine: ScriptedEngineThread
) -> None:
    proxy = start(workers=2)
    engine.reply(*[chat(TURN)] * CALLS)
    for number in range(CALLS):
        assert proxy.post(stream=number % 2 == 0).status_code == 200
    for exposition in [proxy.get("/metrics").text for _ in range(8)]:
        assert sample(exposition, "calls_total", outcome="answered") == CALLS
        assert sample(exposition, "capture_records_total", result="valid") == CALLS
        assert sample(exposition, "call_seconds_count") == sample(exposition, "call_seconds_bucket", le="+Inf") == CALLS
        assert sample(exposition, "workers") == 2
        assert 'pid="' not in exposition
    assert {proxy.get("/v1/stats").json()["ledger"]["valid"] for _ in range(4)} == {CALLS}

    proxy.call(stream=True)
    for name in ("capture_open_calls", "streams_in_flight", "calls_in_flight"):
        proxy.until(lambda name=name: metric(proxy, name) == 1)  # type: ignore[misc]
    (intent,) = proxy.directory.glob("sessions/*/*.open")
    before = proxy.workers()
    (holder,) = (pid for pid in before if f":{pid}:" in intent.read_text())
    os.kill(holder, signal.SIGKILL)
    proxy.until(lambda: metric(proxy, "capture_abandoned_calls") == 1, within=15)
    exposition = proxy.get("/metrics").text
    for name in ("capture_open_calls", "streams_in_flight", "calls_in_flight"):
        assert sample(exposition, name) == 0
    assert sample(exposition, "workers") == 2
    assert sample(exposition, "calls_total") == sample(exposition, "capture_records_total") == CALLS
    assert proxy.account() == {"valid": CALLS, "abandoned": 1}

    counts = counts_directory(proxy.workers())
    assert counts.is_dir()
    proxy.stop()
    assert proxy.process.wait() == 0
    assert not counts.exists()
