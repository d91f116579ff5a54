"""Text completions through the proxy: what a real vLLM said is told as it would be without capture, and recorded."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from running_proxy import ROUTE, RunningProxy, StartProxy
from scripted_engine import ScriptedEngine, json_reply, sse_reply

WIRE = Path(__file__).parents[1] / "wire_text"
Exchange = dict[str, Any]


def exchange(name: str) -> Exchange:
    recorded: Exchange = json.loads((WIRE / f"{name}.json").read_text())
    return recorded


def script(engine: ScriptedEngine, recorded: Exchange, key: str = "captured") -> None:
    """Let the engine answer as recorded."""
    if recorded["request"].get("stream"):
        engine.reply(
            sse_reply([event.encode() + b"\n\n" for event in recorded[key].split("\n\n") if event], done=False)
        )
    else:
        engine.reply(json_reply(json.loads(recorded[key])))


async def ask(running: RunningProxy, recorded: Exchange, session: str | None = "s") -> httpx.Response:
    headers = {} if session is None else {"proxy_x_session_id": session}
    body = {**recorded["request"], "model": ROUTE}
    return await running.client.post("/v1/completions", json=body, headers=headers)


def without_identity(text: str) -> list[str]:
    lines = []
    for line in text.split("\n"):
        data = line.removeprefix("data: ")
        if data.startswith("{"):
            value = json.loads(data)
            lines.append(json.dumps({**value, "id": "", "created": 0}))
        elif data:
            lines.append(data)
    return lines


@pytest.mark.parametrize(
    "name", ["text", "text_stream", "ids", "ids_stream", "usage_stream", "two_choices", "echo_stream"]
)
async def test_a_completion_is_told_as_without_capture_and_recorded(
    proxy: StartProxy, engine: ScriptedEngine, name: str
) -> None:
    running, recorded = await proxy(), exchange(name)
    script(engine, recorded)
    response = await ask(running, recorded)
    assert response.status_code == 200
    assert without_identity(response.text) == without_identity(recorded["plain"])
    (request,) = engine.requests
    assert request.path == "/v1/completions"
    assert request.json == {**recorded["captured_request"], "model": "actual-model"}
    (record,) = await running.records("s")
    assert record["call"]["dialect"] == "completions"
    assert record["call"]["streamed"] == ("stream" in name)
    prompt = recorded["request"]["prompt"]
    user, assistant = record["messages"]
    assert user == {"role": "user", "content": prompt if isinstance(prompt, str) else ""}
    assert (assistant["role"], record["tools"]) == ("assistant", [])
    if name.startswith(("two", "echo")):
        assert record["is_valid"] is False
        assert record["call"]["invalid_reasons"][0] == ("echo" if "echo" in name else "more_than_one_choice")
        return
    assert record["is_valid"] is True
    whole = json.loads(exchange(name.removesuffix("_stream").replace("usage", "own_ids"))["captured"])["choices"][0]
    assert record["generation_token_ids"] == whole["token_ids"]
    assert record["prompt_token_ids"] == whole["prompt_token_ids"]
    assert record["generation_log_probs"] == pytest.approx(whole["logprobs"]["token_logprobs"])
    assert assistant["content"] == whole["text"]


async def test_several_prompts_make_no_valid_record(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running, recorded = await proxy(), exchange("several_prompts")
    script(engine, recorded)
    assert (await ask(running, recorded)).status_code == 200
    (record,) = await running.records("s")
    assert record["call"]["invalid_reasons"][:2] == ["several_prompts", "more_than_one_choice"]


@pytest.mark.parametrize("name", ["text", "text_stream"])
async def test_without_a_session_it_is_passed_on(proxy: StartProxy, engine: ScriptedEngine, name: str) -> None:
    running, recorded = await proxy(), exchange(name)
    script(engine, recorded, "plain")
    response = await ask(running, recorded, session=None)
    assert without_identity(response.text) == without_identity(recorded["plain"])
    assert engine.requests[0].json == {**recorded["request"], "model": "actual-model"}


async def test_the_openai_client_reads_it(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    script(engine, exchange("text"))
    script(engine, exchange("text_stream"))
    async with AsyncOpenAI(
        base_url=f"{running.url}/v1", api_key="none", default_headers={"proxy_x_session_id": "s"}
    ) as client:
        whole = await client.completions.create(model=ROUTE, prompt="x", max_tokens=24)
        stream = await client.completions.create(model=ROUTE, prompt="x", max_tokens=24, stream=True)
        pieces = [chunk.choices[0].text async for chunk in stream]
    assert "".join(pieces) == whole.choices[0].text
    assert await running.fates("s") == {"valid": 2}


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_tokens_are_counted_by_the_engine_and_nothing_is_captured(
    proxy: StartProxy, engine: ScriptedEngine, path: str
) -> None:
    running = await proxy(target={"max_tokens_cap": 5}, sessions={"required": True})
    engine.reply(json_reply({"count": 2, "tokens": [1, 2]}))
    body = {"model": ROUTE, "prompt": "hi", "proxy_x_session_id": "s"}
    response = await running.client.post(path, json=body)
    assert (response.status_code, response.json()) == (200, {"count": 2, "tokens": [1, 2]})
    (request,) = engine.requests
    assert (request.path, request.json) == (path, {"model": "actual-model", "prompt": "hi"})
    assert (await running.client.get("/v1/sessions/s/completions")).status_code == 404


async def test_an_error_of_the_engine_keeps_its_words(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    error = {
        "error": {"message": "max_tokens must be at least 1", "type": "BadRequestError", "param": None, "code": 400}
    }
    engine.reply(json_reply(error, status=400), json_reply(error, status=400))
    for path in ("/v1/completions", "/tokenize"):
        response = await running.client.post(path, json={"model": ROUTE, "prompt": "x"})
        assert (response.status_code, response.json()) == (400, error)
