"""OpenAI Responses through a running proxy, with the official client and with an engine that has a chat template."""

import asyncio
import json
import socket
from itertools import pairwise
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from openai_responses import Event, assembled, read_events, read_response
from recorded_responses import REQUESTS, full_size
from running_proxy import ROUTE, RunningProxy, StartProxy
from scripted_engine import Exchange, ScriptedEngine, Turn, chat, chat_stream, json_reply
from stored_calls import FaultyFilesystem

from switchyard_py.demo.stage import serving
from switchyard_py.simulator import SimulatorSettings, create_simulator
from switchyard_py.simulator.settings import ScriptedCall, ScriptedReply

FUNCTION: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}
CALLING = Turn(reasoning="look it up", tool_calls=[("get_weather", {"city": "Paris"})])
OVERFLOW = "This model's maximum context length is 4096 tokens."


def settings(running: RunningProxy, **more: Any) -> dict[str, Any]:
    return {"base_url": f"{running.url}/v1", "api_key": "sycap-session:s", "max_retries": 0, **more}


async def ask(running: RunningProxy, session: str = "s", **fields: Any) -> bytes:
    """One call; its answer."""
    headers = {"proxy_x_session_id": session}
    body = {"model": ROUTE, "input": "hi", **fields}
    response = await running.client.post("/v1/responses", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.content


async def test_async_buffered(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(CALLING))
    async with openai.AsyncOpenAI(**settings(running)) as client:
        response = await client.responses.create(model=ROUTE, input="hi", tools=[FUNCTION])
    (record,) = await running.records("s")
    assert response.id == "resp_" + record["uuid"].replace("-", "")
    assert [item.type for item in response.output] == ["reasoning", "function_call"]
    assert response.usage is not None
    assert response.usage.output_tokens == len(CALLING.tokens) == len(record["generation_token_ids"])
    assert (record["prompt_token_ids"], record["is_valid"]) == (list(CALLING.prompt_token_ids), True)
    assert record["call"]["dialect"] == "responses"
    assert record["messages"][0] == {"role": "user", "content": "hi"}


async def test_async_streaming(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(CALLING))
    async with (
        openai.AsyncOpenAI(**settings(running)) as client,
        client.responses.stream(model=ROUTE, input="hi", tools=[FUNCTION]) as stream,
    ):
        response = await stream.get_final_response()
    call = response.output[1]
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("get_weather", '{"city": "Paris"}')
    (record,) = await running.records("s")
    assert response.id == "resp_" + record["uuid"].replace("-", "")
    assert record["generation_token_ids"] == CALLING.token_ids
    assert await running.fates("s") == {"valid": 1}


async def test_sync_streaming(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(Turn(reasoning="hm", text="hello you")))

    def call() -> tuple[list[str], Response]:
        with openai.OpenAI(**settings(running)) as client, client.responses.stream(model=ROUTE, input="hi") as stream:
            said = [event.delta for event in stream if event.type == "response.output_text.delta"]
            return said, stream.get_final_response()

    said, response = await asyncio.to_thread(call)
    assert said == ["hello", " ", "you"]
    assert (response.output_text, response.status) == ("hello you", "completed")


async def test_a_conversation_by_the_official_client_s_own_items(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(CALLING), chat(Turn(text="Warm.")))
    conversation: list[Any] = [{"role": "user", "content": "hi"}]
    async with openai.AsyncOpenAI(**settings(running)) as client:
        first = await client.responses.create(model=ROUTE, input=conversation, tools=[FUNCTION])
        conversation += [item.to_dict() for item in first.output]
        conversation.append({"type": "function_call_output", "call_id": CALLING.calls[0]["id"], "output": "21"})
        await client.responses.create(model=ROUTE, input=conversation, tools=[FUNCTION])
    asked, result = engine.generations[1].json["messages"][1:]
    assert asked == {
        "role": "assistant",
        "content": None,
        "reasoning": "look it up",
        "tool_calls": CALLING.calls,
    }
    assert result == {"role": "tool", "tool_call_id": CALLING.calls[0]["id"], "content": "21"}


async def test_arguments_written_anew_go_back_as_they_were_generated(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(CALLING), chat(Turn(text="Warm.")))
    (_, call) = read_response(await ask(running))["output"]
    anew = call | {"arguments": json.dumps(json.loads(call["arguments"]), separators=(",", ":"))}
    assert anew["arguments"] != call["arguments"]
    await ask(running, input=[{"role": "user", "content": "hi"}, anew])
    function = engine.generations[1].json["messages"][1]["tool_calls"][0]["function"]
    assert function["arguments"] == call["arguments"]


async def test_a_call_without_a_session_is_answered_all_the_same(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.default(chat(Turn(text="hello you")))
    for stream in (False, True):
        body = {"model": ROUTE, "input": "hi", "stream": stream}
        answer = (await running.client.post("/v1/responses", json=body)).content
        response = assembled(read_events(answer)) if stream else read_response(answer)
        assert response["output"][0]["content"][0]["text"] == "hello you"
        assert "return_token_ids" not in engine.generations[-1].json


async def test_errors_are_the_ones_the_client_knows(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    refusal = {"error": {"message": OVERFLOW, "type": "BadRequestError", "param": "input_tokens", "code": 400}}
    engine.reply(
        json_reply(refusal, 400),
        json_reply({"error": {"message": "slow down"}}, 429),
        chat_stream(Turn(text="hello you"), events=3, then="reset"),
    )
    async with openai.AsyncOpenAI(**settings(running)) as client:
        with pytest.raises(openai.BadRequestError, match="maximum context length") as too_long:
            await client.responses.create(model=ROUTE, input="hi")
        assert too_long.value.code == "context_length_exceeded"
        with pytest.raises(openai.RateLimitError, match="slow down"):
            await client.responses.create(model=ROUTE, input="hi")
        with pytest.raises(openai.BadRequestError, match="stores no responses") as refused:
            await client.responses.create(model=ROUTE, input="hi", previous_response_id="resp_1")
        assert refused.value.param == "previous_response_id"
        events = await client.responses.create(model=ROUTE, input="hi", stream=True)
        with pytest.raises(openai.APIError, match="broke off its reply"):
            await _read(events)
    assert await running.fates("s") == {"failed": 3}


async def test_an_error_goes_on_with_the_numbers_of_its_stream(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat_stream(Turn(text="hello you"), events=3, then="reset"))
    created, *_, error, failed = read_events(await ask(running, stream=True))
    assert (error["type"], failed["type"]) == ("error", "response.failed")
    assert failed["response"] == created["response"] | {"status": "failed", "error": failed["response"]["error"]}


async def test_an_error_after_nothing_but_heartbeats(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(target={"early_headers_after": 0.05})

    async def late(exchange: Exchange) -> None:
        await exchange.pause(0.15)
        await json_reply({"error": {"message": "no such thing"}}, 400)(exchange)

    engine.reply(late)
    answer = (await ask(running, stream=True)).replace(b": keepalive\n", b"")
    error, failed = read_events(answer)
    assert error["message"] == "no such thing"
    assert failed["response"]["error"] == {"code": "invalid_prompt", "message": "no such thing"}


@pytest.mark.parametrize(
    "name", ["codex-3", "reason-codex-2", "codex-subagent-5", "codex-compact-2", "reason-openhands-2"]
)
async def test_full_size_requests_of_the_real_agents(name: str, proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(Turn(reasoning="hm", tool_calls=[("exec_command", {"cmd": "ls"})])))
    body = full_size(REQUESTS[name], 4000) | {"model": ROUTE}
    assert len(json.dumps(body)) > 32 * 1024
    answer = await ask(running, **body)
    response = assembled(read_events(answer)) if body.get("stream") else read_response(answer)
    assert [item["type"] for item in response["output"]] == ["reasoning", "function_call"]
    assert "encrypted_content" in response["output"][0]
    (record,) = await running.records("s")
    assert record["is_valid"]
    assert record["call"]["agent"]["prompt_cache_key"] == body["prompt_cache_key"]


CALLS = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 1.0}}\n</tool_call>',
    '<tool_call>\n{"name": "weather__of", "arguments": {"city": "Zürich"}}\n</tool_call>',
)


@pytest.mark.parametrize("refuses", ["a_record", "even_the_mark"])
async def test_without_a_record_no_call_is_complete(refuses: str, proxy: StartProxy, engine: ScriptedEngine) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)

    async def failing(exchange: Exchange) -> None:
        (filesystem.fill if refuses == "a_record" else filesystem.freeze)()
        await chat(Turn(text="I look.", tool_calls=[("get_weather", "{}"), ("get_weather", "{}")]))(exchange)

    engine.reply(failing)
    events = read_events(await ask(running, stream=True))
    if refuses == "a_record":
        # The call is marked lost first, then the agent gets the answer it would have got.
        assembled(events)
        assert await running.fates("s") == {"lost": 1}
        return
    kinds = [event["type"] for event in events]
    assert "response.output_text.done" in kinds
    assert "response.function_call_arguments.delta" in kinds
    assert "response.function_call_arguments.done" not in kinds
    assert kinds[-2:] == ["error", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "server_error"
    filesystem.heal()
    await running.until_fates("s", {"failed": 1})


REPLIES = (
    ScriptedReply(raw="<think>\nI need a tool.\n</think>\n\n" + "\n".join(CALLS)),
    ScriptedReply(thinking="One more.", tool_calls=(ScriptedCall(name="get_weather"),)),
    ScriptedReply(thinking="Enough.", content="It is warm."),
)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("resends", ["all", "encrypted", "no_ids"])
async def test_the_next_prompt_continues_what_was_generated(stream: bool, resends: str, proxy: StartProxy) -> None:
    app = create_simulator(SimulatorSettings(model="actual-model", replies=REPLIES))
    namespace = {"type": "namespace", "name": "weather", "description": "d", "tools": [FUNCTION | {"name": "of"}]}
    asked: dict[str, Any] = {
        "tools": [FUNCTION, namespace],
        "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.",
    }
    conversation: list[Event] = [{"role": "user", "content": "Is it warm?"}]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with serving(app, listener) as url:
            running = await proxy(target={"base_url": f"{url}/v1"})
            for _ in REPLIES:
                answer = await ask(running, input=conversation, stream=stream, **asked)
                output = (assembled(read_events(answer)) if stream else read_response(answer))["output"]
                conversation += [_resent(item, resends) for item in output]
                calls = [item["call_id"] for item in output if item["type"] == "function_call"]
                conversation += [{"type": "function_call_output", "call_id": each, "output": "21"} for each in calls]
            records = await running.records("s")
    assert [record["is_valid"] for record in records] == [True] * 3
    for before, after in pairwise(records):
        continued = before["prompt_token_ids"] + before["generation_token_ids"]
        assert after["prompt_token_ids"][: len(continued)] == continued


def _resent(item: Event, how: str) -> Event:
    """An item as agents send it back: whole, without readable reasoning, or without ids."""
    if how == "encrypted" and item["type"] == "reasoning":
        return {key: value for key, value in item.items() if key not in ("content", "status")}
    return {key: value for key, value in item.items() if how == "all" or key not in ("id", "status")}


async def _read(events: openai.AsyncStream[ResponseStreamEvent]) -> None:
    async for _ in events:
        pass
