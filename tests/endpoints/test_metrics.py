"""What `/metrics` and `/v1/stats` say, against what happened and against the accounts of the sessions."""

import asyncio
import errno
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from running_proxy import RunningProxy, StartProxy
from scripted_engine import ScriptedEngine, Turn, chat, json_reply
from stored_calls import FaultyFilesystem

from switchyard_py.metrics import Metrics
from switchyard_py.store import Filesystem

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
HELLO = chat(Turn(text="hello"))


async def scrape(running: RunningProxy) -> dict[str, Metric]:
    response = await running.client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {family.name: family for family in text_string_to_metric_families(response.text)}


def value(families: Mapping[str, Metric], name: str, **labels: str) -> float:
    """The sum of the samples `switchyard_<name>` that have these labels."""
    samples = [sample for family in families.values() for sample in family.samples]
    return sum(s.value for s in samples if s.name == f"switchyard_{name}" and labels.items() <= s.labels.items())


def test_the_page_lists_every_metric_with_its_type_and_labels() -> None:
    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", PAGE, re.MULTILINE)
    }
    registered = {}
    for metric in Metrics()._registry._collector_to_names:
        (family,) = metric.collect()
        name = family.name + ("_total" if family.type == "counter" else "")
        registered[name] = (family.type, tuple(metric._labelnames))  # type: ignore[attr-defined]
    assert documented == registered


def test_the_alert_names_metrics_that_exist_and_results_that_are_there_from_the_start() -> None:
    samples = {(s.name, s.labels.get("result")) for family in Metrics().families() for s in family.samples}
    alert = PAGE.partition("```yaml")[2].partition("```")[0]
    used = re.findall(r'(switchyard_\w+)(?:\{result="(\w+)"\})?', alert)
    assert len(used) == 3
    for name, result in used:
        assert any(name == known and result in ("", known_result) for known, known_result in samples)


async def test_it_starts_at_zero_and_raises_no_alarm(proxy: StartProxy) -> None:
    running = await proxy()
    families = await scrape(running)
    assert value(families, "capture_records_total", result="lost") == 0
    assert len(families["switchyard_capture_records"].samples) == 5
    assert value(families, "workers") == 1
    assert value(families, "disk_free_bytes") > value(families, "disk_min_free_bytes")


async def test_without_capture_the_disk_is_not_looked_at(proxy: StartProxy) -> None:
    running = await proxy(captures=False)
    assert value(await scrape(running), "disk_free_bytes") == float("inf")


async def test_the_disk_and_its_budget(proxy: StartProxy) -> None:
    running = await proxy(capture={"min_free_bytes": "5KiB"})
    async with asyncio.timeout(5):
        while value(await scrape(running), "disk_min_free_bytes") != 5120:
            await asyncio.sleep(0.01)
    families = await scrape(running)
    assert 0 < value(families, "disk_free_bytes") < float("inf")


async def test_every_call_is_counted_once_and_as_the_accounts_of_the_sessions_have_it(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)
    engine.default(HELLO)

    async def leave(session: str) -> None:
        engine.reply(chat(Turn(text="one two three"), stepped=True))
        async with running.chat_stream({"stream": True}, session) as response:
            engine.step(3)
            await anext(response.aiter_bytes())
        await running.until_fates(session, {"failed": 1})

    for number in range(3):
        await running.chat({"stream": number == 1}, f"sid-valid-{number}")
    engine.reply(json_reply({"id": "x", "model": "m", "choices": [{"message": {}, "finish_reason": "stop"}]}))
    assert (await running.chat({}, "sid-invalid")).status_code == 200
    engine.reply(json_reply({"error": {"message": "busy"}}, 429), json_reply({}))
    assert (await running.chat({}, "sid-refused")).status_code == 429
    assert (await running.chat({}, "sid-broken")).status_code == 502
    await leave("sid-left")
    await running.chat({})
    assert (await running.chat(b"[]", "s")).status_code == 400
    assert (await running.chat({"model": "nope"}, "s")).status_code == 404
    filesystem.errors = {"create": errno.ENOSPC}
    assert (await running.chat({}, "sid-not-begun")).status_code == 503
    filesystem.heal()
    engine.reply(chat(Turn(text="hello"), stepped=True))
    async with running.chat_stream({"stream": True}, "sid-lost") as response:
        filesystem.fill()
        engine.step(100)
        assert (await response.aread()).endswith(b"data: [DONE]\n\n")
    filesystem.heal()

    families = await scrape(running)
    names = ("valid-0", "valid-1", "valid-2", "invalid", "refused", "broken", "left", "lost")
    sessions = [f"sid-{name}" for name in names]
    accounts = sum([Counter(await running.fates(session)) for session in sessions], Counter[str]())
    results = ("valid", "invalid", "undelivered", "lost", "failed")
    counted = Counter({r: int(value(families, "capture_records_total", result=r)) for r in results})
    assert +counted == accounts == Counter(valid=3, invalid=1, failed=3, lost=1)
    reasons = {
        (s.labels["result"], s.labels["reason"]) for s in families["switchyard_capture_records"].samples if s.value
    }
    assert ("failed", "engine_429") in reasons
    assert ("failed", "upstream_error") in reasons
    assert ("failed", "agent_gone") in reasons
    assert {reason for result, reason in reasons if result == "invalid"} == {"no_prompt_token_ids"}

    outcomes = {s.labels["outcome"]: s.value for s in families["switchyard_calls"].samples}
    assert outcomes == {
        "answered": 6,
        "engine_429": 1,
        "upstream_error": 1,
        "agent_gone": 1,
        "invalid_body": 1,
        "model_not_found": 1,
        "capture_unavailable": 1,
    }
    assert value(families, "calls_total", route="policy_model", dialect="chat") == 10
    assert value(families, "calls_total", route="") == 2
    assert value(families, "call_seconds_count") == 12
    assert value(families, "proxy_overhead_seconds_count", until="first_byte") == 6
    assert value(families, "proxy_overhead_seconds_count", until="last_byte") == 6
    assert value(families, "unidentified_calls_total") == 1
    assert value(families, "client_disconnects_total") == 1
    assert value(families, "capture_refused_calls_total") == 1
    assert value(families, "capture_commit_seconds_count") == 5
    assert value(families, "capture_open_calls") == value(families, "calls_in_flight") == 0
    written = sum(file.stat().st_size for file in running.files(".json"))
    assert value(families, "capture_written_bytes_total") == written
    usages = [(await running.records(session))[0]["token_count"] for session in sessions[:3]]
    lost = Turn(text="hello")
    assert value(families, "tokens_total", kind="completion") == sum(u["completion_tokens"] for u in usages) + len(
        lost.token_ids
    )

    stats = await running.stats()
    assert (stats["calls"], stats["captured"], stats["unidentified"], stats["agent_gone"]) == (12, 8, 1, 1)
    assert stats["errors_told"] == stats["total_errors"] == 5
    ledger = {key: stats["ledger"][key] for key in ("begun", "valid", "invalid", "lost", "failed", "open", "refused")}
    assert ledger == {"begun": 8, "valid": 3, "invalid": 1, "lost": 1, "failed": 3, "open": 0, "refused": 1}
    model = stats["models"]["actual-model"]
    assert (model["calls"], model["errors"]) == (10, 3)
    assert model["completion_tokens"] == stats["total_tokens"]["completion"] > 0
    assert stats["routing_overhead"]["count"] == 6
    assert "sid-" not in (await running.client.get("/metrics")).text


async def test_what_is_under_way(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.default(chat(Turn(text="one two three"), stepped=True))
    async with running.chat_stream({"stream": True}, "s") as response:
        families = await scrape(running)
        for name in ("calls_in_flight", "streams_in_flight", "capture_open_calls"):
            assert value(families, name) == 1
        assert value(families, "upstream_connections", state="busy") == 1
        assert value(families, "calls_total") == 0
        engine.step(100)
        await response.aread()
        # Who has the end of an answer finds it counted, even if it is not yet out of the proxy's hands.
        assert value(await scrape(running), "calls_total") == 1
    async with asyncio.timeout(5):
        while value(families := await scrape(running), "calls_in_flight"):
            await asyncio.sleep(0.01)
    assert value(families, "streams_in_flight") == value(families, "capture_open_calls") == 0
    assert value(families, "upstream_connections", state="busy") == 0
    assert value(families, "upstream_connections", state="idle") == 1


async def test_calls_the_store_cannot_mark_are_open_until_it_can(proxy: StartProxy, engine: ScriptedEngine) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)

    async def freeze_then_fail(_: object) -> None:
        filesystem.freeze()

    engine.reply(freeze_then_fail)
    assert (await running.chat({}, "s")).status_code == 502
    families = await scrape(running)
    assert value(families, "capture_unwritten_marks") == value(families, "capture_open_calls") == 1
    filesystem.heal()
    await running.until_fates("s", {"failed": 1})
    families = await scrape(running)
    assert value(families, "capture_unwritten_marks") == value(families, "capture_open_calls") == 0
    assert value(families, "capture_records_total", result="failed") == 1


class HangingFilesystem(Filesystem):
    """A disk that answers only while `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()

    def create(self, path: str, data: bytes) -> None:
        self.answers.wait()
        super().create(path, data)


@pytest.mark.parametrize("path", ["/metrics", "/v1/stats"])
async def test_it_answers_while_the_disk_hangs_and_everybody_waits_for_it(
    proxy: StartProxy, engine: ScriptedEngine, path: str
) -> None:
    filesystem = HangingFilesystem()
    running = await proxy(filesystem=filesystem)
    engine.default(HELLO)
    filesystem.answers.clear()
    try:
        call = asyncio.create_task(running.chat({}, "s"))
        # The threads in which sessions are read.
        readers = [asyncio.create_task(asyncio.to_thread(filesystem.answers.wait)) for _ in range(40)]
        for _ in range(3):
            await asyncio.sleep(0.05)
            before = time.monotonic()
            assert (await running.client.get(path)).status_code == 200
            assert time.monotonic() - before < 1
        assert not any(task.done() for task in (call, *readers))
    finally:
        filesystem.answers.set()
    assert (await call).status_code == 200
    await asyncio.gather(*readers)


async def test_how_late_the_loop_is(proxy: StartProxy) -> None:
    running = await proxy()
    await asyncio.sleep(0.05)
    time.sleep(0.6)  # keeps the loop of the proxy busy, which is this one
    await asyncio.sleep(0.05)
    families = await scrape(running)
    assert value(families, "event_loop_lag_seconds_sum") >= 0.3
    assert value(families, "event_loop_lag_seconds_bucket", le="0.2") < value(families, "event_loop_lag_seconds_count")
