"""The official OpenAI client works against the simulator as it is."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
ASKED: Any = [{"role": "user", "content": "weather in Paris"}]


@pytest.fixture
async def client(running: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        running(api_key="k") as plain,
        openai.AsyncOpenAI(base_url=f"{plain.base_url}/v1", api_key="k", max_retries=0) as client,
    ):
        yield client


async def test_replies(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["tiny"]
    first = await client.chat.completions.create(model="tiny", messages=ASKED, tools=TOOLS)
    message = first.choices[0].message
    assert message.tool_calls is not None
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
    continued: Any = [*ASKED, message, result]
    second = await client.chat.completions.create(model="tiny", messages=continued, tools=TOOLS)
    assert "rain" in (second.choices[0].message.content or "")
    text = await client.completions.create(model="tiny", prompt="once", max_tokens=4)
    assert text.choices[0].finish_reason == "length"


async def test_streams(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="tiny", messages=ASKED, tools=TOOLS, stream=True, stream_options={"include_usage": True}
    )
    arguments, usage = "", None
    async for chunk in stream:
        usage = chunk.usage
        for choice in chunk.choices:
            arguments += "".join(
                call.function.arguments or "" for call in choice.delta.tool_calls or [] if call.function
            )
    assert arguments == '{"city": "text"}'
    assert usage is not None
    async with client.chat.completions.stream(model="tiny", messages=ASKED) as events:
        completion = await events.get_final_completion()
    assert "weather in Paris" in (completion.choices[0].message.content or "")


async def test_errors(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        await client.chat.completions.create(model="nope", messages=ASKED)
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()
