"""`sessions verify`: whether sessions can be trained on, and why not, in words a user understands."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mixed_sessions import KINDS
from running_proxy import HELLO, StartProxy
from scripted_engine import ScriptedEngine, Turn, chat


@pytest.mark.parametrize("mode", ["strict", "lineage"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_session_gets_the_verdict_it_deserves(invoke: Any, mixed: Path, kind: str, mode: str) -> None:
    result = invoke("sessions", "verify", "--mode", mode, f"{kind}-0", "--dir", mixed)
    accepted = getattr(KINDS[kind], mode)
    assert result.stderr == ""
    assert (result.exit_code, result.stdout[:3]) == ((0, "  ✓") if accepted else (1, "  ✗"))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("loop", ["✓ loop-0  3 records, 777 tokens, 210 generated\n"]),
        ("truncated", ["generated; truncated\n"]),
        (
            "forgets",
            [
                "R10 record 1 (",
                "): at position 504 the record before had the ids [",
                "rule R10: the prompt begins with the ids of the record before it, prompt and generation",
                "record 1 seems to continue record 0, but does not repeat its tokens: id 504, of what it",
                "most likely cause: the agent did not send the reasoning back",
                "--mode lineage accepts it: the main chain is records 1 of 2",
            ],
        ),
        (
            "title",
            [
                "R9 record 1 (",
                "record 0 is beside the turns: it has no tools while others have",
                "--mode lineage accepts it: the main chain is records 1-3 of 4",
            ],
        ),
        (
            "retry",
            ["record 2 has the prompt of record 1: a retry, or a second sample", "main chain is records 0, 2, 3 of 4"],
        ),
        ("subagent", ["record 1 is the call of a sub-agent"]),
        ("compaction", ["most likely cause: the agent replaced the history by a shorter one"]),
        ("tools", ["tools differ from those of the first record", "most likely cause: the agent changed the tools"]),
        ("invalid", ["R3 record 1 (", "it is not valid: no_generation_token_ids"]),
        ("failures", ["E4: the session has no records", "its calls: 1 begun, 1 failed", "1 failed: upstream_error: "]),
        (
            "corrupt",
            [
                "delivered calls without a record that can be read: 1",
                ".json: corrupt: ",
                "its calls: 3 begun, 2 valid, 1 invalid",
            ],
        ),
        ("foreign", [".json: foreign: a record of another session"]),
        ("lost", ["R3 record 2 (", "it is not valid: lost"]),
    ],
)
def test_what_strict_mode_says(invoke: Any, mixed: Path, kind: str, says: list[str]) -> None:
    text = invoke("sessions", "verify", f"{kind}-0", "--dir", mixed).stdout
    for words in says:
        assert words in text


@pytest.mark.parametrize("kind", ["undecided", "constrained", "invalid", "corrupt", "lost"])
def test_nothing_is_promised_that_lineage_mode_refuses(invoke: Any, mixed: Path, kind: str) -> None:
    assert "--mode lineage accepts it" not in invoke("sessions", "verify", f"{kind}-0", "--dir", mixed).stdout


def test_all_sessions_are_verified_unless_some_are_named(invoke: Any, mixed: Path) -> None:
    count = len(list((mixed / "sessions").iterdir()))
    for mode in ("strict", "lineage"):
        result = invoke("sessions", "verify", "--mode", mode, "--dir", mixed)
        accepted = sum(getattr(KINDS[each.name.rpartition("-")[0]], mode) for each in (mixed / "sessions").iterdir())
        assert result.exit_code == 1
        assert result.stdout.endswith(f"\n  {accepted} of {count} sessions can be trained on in {mode} mode\n")
        assert 0 < accepted < count
    result = invoke("sessions", "verify", "loop-0", "loop-1", "--dir", mixed)
    assert result.exit_code == 0
    assert "2 of 2 sessions" in result.stdout


def test_an_unknown_session_fails_and_the_others_are_told(invoke: Any, mixed: Path) -> None:
    result = invoke("sessions", "verify", "nope", "loop-0", "--dir", mixed)
    assert result.exit_code == 1
    assert f"✗ nope\n      there is no session 'nope' in {mixed}\n" in result.stdout
    assert "✓ loop-0" in result.stdout


def test_no_sessions_are_no_success(invoke: Any, tmp_path: Path) -> None:
    (tmp_path / "rl_data" / "sessions").mkdir(parents=True)
    result = invoke("sessions", "verify")
    assert (result.exit_code, result.stderr) == (1, "error: there are no sessions to verify\n")


def test_json(invoke: Any, mixed: Path) -> None:
    result = invoke("sessions", "verify", "loop-0", "forgets-0", "corrupt-0", "nope", "--json", "--dir", mixed)
    assert result.exit_code == 1
    loop, forgets, corrupt, nope = map(json.loads, result.stdout.splitlines())
    records = sorted(file.stem for file in (mixed / "sessions" / "loop-0").iterdir())
    assert loop == {
        "session_id": "loop-0",
        "mode": "strict",
        "accepted": True,
        "records": records,
        "tokens": 777,
        "generated": 210,
        "reasons": [],
    }
    assert list(forgets) == ["session_id", "mode", "accepted", "refusal", "diagnoses"]
    assert (forgets["accepted"], forgets["refusal"]["code"], forgets["refusal"]["record"]) == (False, "R10", 1)
    assert forgets["diagnoses"][0]["cause"] == "reasoning_not_resent"
    assert corrupt["refusal"]["code"] == "incomplete"
    assert nope["refusal"]["code"] == "unreadable"


async def test_a_directory_that_is_written_to(
    invoke: Any, proxy: StartProxy, engine: ScriptedEngine, tmp_path: Path
) -> None:
    running = await proxy()
    engine.reply(chat(Turn(text="first", prompt_token_ids=(1, 2))))
    await running.chat(HELLO, "s")
    engine.reply(chat(Turn(text="late", prompt_token_ids=(1, 2)), stepped=True))
    late = asyncio.create_task(running.chat(HELLO | {"stream": True}, "s"))
    await running.until_fates("s", {"valid": 1, "open": 1})
    listed = await asyncio.to_thread(invoke, "sessions", "list")
    assert listed.stdout.splitlines()[1].endswith("1 open")
    shown = await asyncio.to_thread(invoke, "sessions", "show", "s")
    assert "calls are still open: this is how it looks now" in shown.stdout
    for mode in ("strict", "lineage"):
        verdict = await asyncio.to_thread(invoke, "sessions", "verify", "s", "--mode", mode)
        assert verdict.exit_code == 1
        assert "calls that have not ended: 1" in verdict.stdout
    exported = await asyncio.to_thread(invoke, "sessions", "export", "out", "--mode", "lineage")
    assert "incomplete, such as s: calls that have not ended: 1" in exported.stdout
    while not late.done():
        engine.step()
        await asyncio.sleep(0.002)
    # Two answers to one question, and the later one may be the one that was used.
    verdict = await asyncio.to_thread(invoke, "sessions", "verify", "s", "--mode", "lineage")
    assert "the last step has several answers, and nothing says which one the agent used" in verdict.stdout
