"""A probe says what comes back of what was asked for."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_engine import (
    Exchange,
    Script,
    ScriptedEngineThread,
    Turn,
    chat,
    chat_body,
    chat_events,
    chat_stream,
    json_reply,
    refused_port,
    sse_reply,
)


@pytest.fixture
def engine() -> Iterator[ScriptedEngineThread]:
    with ScriptedEngineThread() as engine:
        engine.default(chat(Turn(text="Hello there")))
        yield engine


@pytest.fixture
def check(invoke: Any, tmp_path: Path, engine: ScriptedEngineThread) -> Callable[..., Any]:
    """Run `check --probe` on a bundle with one captured route to the engine."""

    def check(*flags: str, settings: str = "model: served-model", url: str | None = None) -> Any:
        path = tmp_path / "bundle.yaml"
        path.write_text(
            f"routes: {{policy: {{base_url: '{url or engine.engine.base_url}', "
            f"token_capture_engine: vllm, {settings}}}}}"
        )
        return invoke("check", path, "--probe", *flags)

    return check


def altered(change: Callable[[dict[str, Any]], object]) -> Script:
    """Answer in the mode asked for, with `change` applied to the reply or to each of its chunks."""

    async def script(exchange: Exchange) -> None:
        turn = Turn(text="Hello there")
        if not exchange.request.json["stream"]:
            body = chat_body(exchange.request, turn)
            change(body)
            await exchange.json(body)
            return
        chunks = [json.loads(event.removeprefix(b"data: ")) for event in chat_events(exchange.request, turn)]
        for chunk in chunks:
            change(chunk)
        await sse_reply(chunks)(exchange)

    return script


def unasked(*parameters: str) -> Script:
    """Answer as if these parameters had been dropped on the way to the engine."""

    async def script(exchange: Exchange) -> None:
        asked = exchange.request.json
        exchange.request.json = {key: value for key, value in asked.items() if key not in parameters}
        await chat(Turn(text="Hello there"))(exchange)

    return script


def lines(result: Any) -> dict[str, str]:
    """The finding of each mode."""
    probed = result.stdout.partition("probe of policy\n")[2].splitlines()
    return {mode: text.strip() for mode, _, text in (line.strip().partition(" ") for line in probed)}


def test_a_complete_engine(check: Any, engine: ScriptedEngineThread) -> None:
    result = check()
    assert result.exit_code == 0
    turn = Turn(text="Hello there")
    assert lines(result) == dict.fromkeys(
        ("buffered", "streamed"),
        f"complete: {len(turn.prompt_token_ids)} prompt ids, {len(turn.token_ids)} generated ids, "
        f"{len(turn.token_ids)} log-probs, counts agree with usage",
    )
    buffered, streamed = (request.json for request in engine.engine.generations)
    assert (buffered["stream"], streamed["stream"]) == (False, True)
    for asked in (buffered, streamed):
        assert (asked["model"], asked["logprobs"], asked["return_token_ids"]) == ("served-model", True, True)


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (
            unasked("return_token_ids"),
            "asked with return_token_ids: true, neither prompt_token_ids nor token_ids came back: the parameter is "
            "dropped on the way to the engine, or the answer to it on the way back, or the engine is older than",
        ),
        (unasked("logprobs"), "asked with logprobs: true and top_logprobs, no logprobs came back: "),
        (
            altered(lambda body: body.update(prompt_token_ids=None)),
            "prompt_token_ids did not come back, but token_ids did: prompt_token_ids is dropped on the way back",
        ),
        (
            altered(lambda body: [choice.pop("token_ids", None) for choice in body["choices"]]),
            "token_ids did not come back, but prompt_token_ids did: token_ids is dropped on the way back",
        ),
    ],
)
def test_what_does_not_come_back(check: Any, engine: ScriptedEngineThread, script: Script, fault: str) -> None:
    engine.default(script)
    result = check()
    assert result.exit_code == 1
    found = lines(result)
    for mode in ("buffered", "streamed"):
        assert found[mode].startswith(f"not complete: {fault}"), found


def test_missing_usage(check: Any, engine: ScriptedEngineThread) -> None:
    engine.default(altered(lambda body: body.pop("usage", None)))
    found = lines(check())
    assert found["buffered"] == (
        "not complete: no usage came back, which needs no asking: it is dropped on the way back"
    )
    assert found["streamed"].startswith(
        "not complete: asked with stream_options.include_usage: true, no usage came back: the parameter is dropped"
    )


def test_counts_that_disagree(check: Any, engine: ScriptedEngineThread) -> None:
    engine.default(altered(lambda body: (body.get("usage") or {}).update(completion_tokens=99)))
    found = lines(check())
    assert found["buffered"] == found["streamed"] == "not complete: completion tokens differ from usage"


def test_a_stream_that_is_cut(check: Any, engine: ScriptedEngineThread) -> None:
    engine.reply(chat(Turn(text="Hello there")), chat_stream(Turn(text="Hello there"), events=2))
    result = check()
    assert result.exit_code == 1
    assert lines(result)["buffered"].startswith("complete: ")
    assert "the engine's stream ended early" in lines(result)["streamed"]


def test_a_reply_in_the_other_mode(check: Any, engine: ScriptedEngineThread) -> None:
    engine.default(json_reply({"choices": []}))
    assert "asked for a streamed reply and sent a whole reply" in lines(check())["streamed"]


def test_a_refusal(check: Any, engine: ScriptedEngineThread) -> None:
    engine.default(json_reply({"error": {"message": "no such model", "code": 404}}, 404))
    result = check()
    assert result.exit_code == 1
    assert lines(result)["buffered"] == lines(result)["streamed"]
    assert lines(result)["buffered"].startswith("not complete: no such model (HTTP 404); does base_url end")


def test_an_engine_that_is_not_there(check: Any) -> None:
    with refused_port() as port:
        result = check(url=f"http://user:hidden@127.0.0.1:{port}/v1")
    assert result.exit_code == 1
    assert "cannot connect" in lines(result)["buffered"]
    assert "hidden" not in result.output


def test_a_passthrough_route_asks_for_a_model_the_engine_has(check: Any, engine: ScriptedEngineThread) -> None:
    assert check(settings="type: passthrough").exit_code == 0
    assert {request.json["model"] for request in engine.engine.generations} == {"served-model"}


def test_json(check: Any) -> None:
    found = json.loads(check("--json").stdout)["probe"]["policy"]
    turn = Turn(text="Hello there")
    assert found["buffered"] == {
        "complete": True,
        "prompt_token_ids": len(turn.prompt_token_ids),
        "generation_token_ids": len(turn.token_ids),
        "generation_log_probs": len(turn.token_ids),
        "faults": [],
    }


def test_nothing_to_probe(invoke: Any, uncaptured: Path) -> None:
    result = invoke("check", uncaptured, "--probe")
    assert result.exit_code == 0
    assert "there is nothing to probe" in result.stdout
