"""The official OpenAI client, unmodified, with nothing but its base URL and key set."""

import asyncio
from typing import Any

import openai
import pytest
from running_proxy import ROUTE, RunningProxy, StartProxy
from scripted_engine import ScriptedEngine, Turn, chat, chat_stream, json_reply

TOOLS: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
MESSAGES: Any = [{"role": "user", "content": "hi"}]
CALLING = Turn(reasoning="look it up", tool_calls=[("get_weather", {"city": "Paris"})])


def _settings(running: RunningProxy, **more: Any) -> dict[str, Any]:
    return {"base_url": f"{running.url}/v1", "api_key": "sycap-session:s", "max_retries": 0, **more}


async def test_async_buffered(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(CALLING))
    async with openai.AsyncOpenAI(**_settings(running)) as client:
        completion = await client.chat.completions.create(model=ROUTE, messages=MESSAGES, tools=TOOLS)
    (call,) = completion.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": "Paris"}')
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == len(CALLING.tokens)
    assert await running.fates("s") == {"valid": 1}


async def test_async_streaming(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.reply(chat(CALLING))
    async with openai.AsyncOpenAI(**_settings(running)) as client:
        manager = client.chat.completions.stream(
            model=ROUTE, messages=MESSAGES, tools=TOOLS, stream_options={"include_usage": True}
        )
        async with manager as stream:
            completion = await stream.get_final_completion()
    (call,) = completion.choices[0].message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": "Paris"}')
    assert completion.usage is not None
    assert completion.usage.completion_tokens == len(CALLING.tokens)
    assert await running.fates("s") == {"valid": 1}


@pytest.mark.parametrize("stream", [False, True])
async def test_sync(proxy: StartProxy, engine: ScriptedEngine, stream: bool) -> None:
    running = await proxy()
    engine.reply(chat(Turn(text="hello you")))

    def call() -> str:
        with openai.OpenAI(**_settings(running)) as client:
            if not stream:
                completion = client.chat.completions.create(model=ROUTE, messages=MESSAGES)
                return completion.choices[0].message.content or ""
            chunks = client.chat.completions.create(model=ROUTE, messages=MESSAGES, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    assert await asyncio.to_thread(call) == "hello you"
    assert await running.fates("s") == {"valid": 1}


async def test_the_session_by_header_and_by_extra_body(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.default(chat(Turn(text="hello")))
    headers = {"proxy_x_session_id": "by-header"}
    async with openai.AsyncOpenAI(**_settings(running, default_headers=headers)) as client:
        await client.chat.completions.create(model=ROUTE, messages=MESSAGES)
    async with openai.AsyncOpenAI(**_settings(running, api_key="x")) as client:
        extra = {"proxy_x_session_id": "by-body"}
        await client.chat.completions.create(model=ROUTE, messages=MESSAGES, extra_body=extra)
    assert await running.fates("by-header") == await running.fates("by-body") == {"valid": 1}


async def test_errors_are_the_ones_the_client_knows(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    overflow = "This model's maximum context length is 4096 tokens."
    refusal = {"error": {"message": overflow, "type": "BadRequestError", "param": "input_tokens", "code": 400}}
    engine.reply(
        json_reply(refusal, 400),
        json_reply({"error": {"message": "slow down"}}, 429),
        chat_stream(Turn(text="hello you"), events=3, then="reset"),
    )
    async with openai.AsyncOpenAI(**_settings(running)) as client:
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            await client.chat.completions.create(model=ROUTE, messages=MESSAGES)
        with pytest.raises(openai.RateLimitError, match="slow down"):
            await client.chat.completions.create(model=ROUTE, messages=MESSAGES)
        with pytest.raises(openai.NotFoundError, match="nope"):
            await client.chat.completions.create(model="nope", messages=MESSAGES)
        chunks = await client.chat.completions.create(model=ROUTE, messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="broke off its reply"):
            async for _ in chunks:
                pass


async def test_models(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    async with openai.AsyncOpenAI(**_settings(running)) as client:
        assert [model.id async for model in client.models.list()] == [ROUTE]
        assert (await client.models.retrieve(ROUTE)).id == ROUTE
