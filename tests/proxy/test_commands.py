"""The commands a user types, as processes, in front of a scripted engine."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from event_stream import arguments, events, finish_reason, joined
from running_proxy import HELLO, ROUTE, ProxyProcess, bundle
from scripted_engine import ScriptedEngineThread, Turn, chat

TURN = Turn(reasoning="let me look", tool_calls=[("get_weather", {"city": "Paris"})])
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]


@pytest.fixture
def engine_thread() -> Iterator[ScriptedEngineThread]:
    with ScriptedEngineThread() as thread:
        thread.default(chat(TURN))
        yield thread


@pytest.fixture
def profiles(engine_thread: ScriptedEngineThread, tmp_path: Path) -> dict[str, str]:
    """Two bundles, by where the engine key stands."""
    inside = bundle(engine_thread.engine.base_url)
    beside = copy.deepcopy(inside)
    route = beside["routes"][ROUTE]
    route["token_capture_engine"] = route["target"].pop("token_capture_engine")
    for name, given in (("inside", inside), ("beside", beside)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(given))
    return {"inside": "inside.yaml", "beside": "beside.yaml"}


@pytest.mark.parametrize("engine_key", ["inside", "beside"])
@pytest.mark.parametrize(
    ("flags", "log_dir"), [(["--enable-rl-logging", "--rl-log-dir", "DIR"], "DIR"), ([], "rl_data")]
)
def test_both_commands_work_as_written(
    profiles: dict[str, str], tmp_path: Path, engine_key: str, flags: list[str], log_dir: str
) -> None:
    command = ["--routing-profiles", profiles[engine_key], *flags, "--", "serve"]
    # The commands have no options after `serve`: address and port come from the environment.
    with (
        ProxyProcess(command, tmp_path, {"SWITCHYARD_HOST": "127.0.0.1", "SWITCHYARD_PORT": "0"}) as process,
        process.client() as client,
    ):
        _call_and_read(client)
    assert len(list((tmp_path / log_dir / "sessions").glob("*/*.json"))) == 2
    assert "Traceback" not in process.log


@pytest.mark.parametrize("engine_key", ["inside", "beside"])
def test_both_commands_work_with_two_workers(profiles: dict[str, str], tmp_path: Path, engine_key: str) -> None:
    command = ["--routing-profiles", profiles[engine_key], "--", "serve", "--host", "127.0.0.1", "--port", "0"]
    with ProxyProcess([*command, "--workers", "2"], tmp_path) as process:
        # Each client is a connection of its own, which either worker may take.
        for number in range(6):
            with process.client() as client:
                _call_and_read(client, f"s{number}")
    assert len(list((tmp_path / "rl_data" / "sessions").glob("*/*.json"))) == 12
    assert "Traceback" not in process.log


def test_no_capture_forwards_only(profiles: dict[str, str], tmp_path: Path) -> None:
    command = ["--routing-profiles", profiles["inside"], "--no-capture", "--", "serve", "--host", "127.0.0.1"]
    with ProxyProcess([*command, "-p", "0"], tmp_path) as process, process.client() as client:
        assert _post(client, "s", stream=False).status_code == 200
        assert client.get("/v1/sessions").status_code == 404
    assert not (tmp_path / "rl_data").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_ends_the_command_in_good_order(profiles: dict[str, str], tmp_path: Path, workers: int) -> None:
    command = ["--routing-profiles", profiles["inside"], "--", "serve", "--host", "127.0.0.1", "--port", "0"]
    with ProxyProcess([*command, "--workers", str(workers)], tmp_path) as process, process.client() as client:
        assert client.get("/health").status_code == 200
    assert process.exit_status == 0
    assert "Traceback" not in process.log
    assert list((tmp_path / "rl_data" / "writers").iterdir()) == []


def _post(client: httpx.Client, session: str, *, stream: bool) -> httpx.Response:
    body = {**HELLO, "tools": TOOLS, "stream": stream}
    return client.post("/v1/chat/completions", json=body, headers={"proxy_x_session_id": session})


def _call_and_read(client: httpx.Client, session: str = "s") -> None:
    buffered, streamed = _post(client, session, stream=False), _post(client, session, stream=True)
    message = buffered.json()["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("let me look", None)
    assert message["tool_calls"] == TURN.calls
    chunks = events(streamed.content)
    assert joined(chunks, "reasoning") == "let me look"
    assert arguments(chunks) == TURN.calls[0]["function"]["arguments"]
    assert finish_reason(chunks) == "tool_calls"
    assert chunks[-1] == "[DONE]"
    envelope = client.get(f"/v1/sessions/{session}/completions").json()
    records: list[dict[str, Any]] = envelope["completions"]
    assert [record["call"]["streamed"] for record in records] == [False, True]
    for record in records:
        assert record["is_valid"] is True, record["call"]["invalid_reasons"]
        assert record["prompt_token_ids"] == list(TURN.prompt_token_ids)
        assert record["generation_token_ids"] == TURN.token_ids
        assert record["generation_log_probs"] == TURN.logprobs
        assert record["messages"][-1] == {
            "role": "assistant",
            "tool_calls": TURN.calls,
            "reasoning": "let me look",
        }
    assert envelope["accounting"]["valid"] == envelope["accounting"]["begun"] == 2
