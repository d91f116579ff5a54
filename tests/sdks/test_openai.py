"""The helpers of the official OpenAI client, sync and async, over chat completions and Responses."""

import asyncio
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel
from running_proxy import ROUTE, RunningProxy

ASKED: Any = [{"role": "user", "content": "What is the weather in Paris?"}]


class Weather(BaseModel):
    """The weather of one place."""

    city: Literal["Paris"]
    degrees: int


def settings(running: RunningProxy) -> dict[str, Any]:
    return {"base_url": f"{running.url}/v1", "api_key": "sycap-session:s", "max_retries": 0}


def sync(running: RunningProxy) -> openai.OpenAI:
    return openai.OpenAI(**settings(running))


def concurrent(running: RunningProxy) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(**settings(running))


async def test_parse_of_a_chat_completion(running: RunningProxy) -> None:
    def call() -> Weather | None:
        with sync(running) as client:
            completion = client.chat.completions.parse(model=ROUTE, messages=ASKED, response_format=Weather)
            return completion.choices[0].message.parsed

    async with concurrent(running) as client:
        completion = await client.chat.completions.parse(model=ROUTE, messages=ASKED, response_format=Weather)
    found = await asyncio.to_thread(call)
    assert found == completion.choices[0].message.parsed
    assert found is not None
    assert found.city == "Paris"
    assert await running.fates("s") == {"valid": 2}
    assert {record["call"]["constrained"] for record in await running.records("s")} == {True}


async def test_parse_of_a_tool_call(running: RunningProxy) -> None:
    async with concurrent(running) as client:
        completion = await client.chat.completions.parse(
            model=ROUTE, messages=ASKED, tools=[openai.pydantic_function_tool(Weather)]
        )
    (call,) = completion.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Weather)
    assert await running.fates("s") == {"valid": 1}


async def test_a_stream_that_is_parsed(running: RunningProxy) -> None:
    def call() -> list[str]:
        with (
            sync(running) as client,
            client.chat.completions.stream(model=ROUTE, messages=ASKED, response_format=Weather) as stream,
        ):
            kinds: list[str] = [event.type for event in stream]
            parsed = stream.get_final_completion().choices[0].message.parsed
            assert isinstance(parsed, Weather)
            return kinds

    kinds = await asyncio.to_thread(call)
    assert "content.delta" in kinds
    assert kinds[-1] == "content.done"
    async with concurrent(running) as client:
        tools = [openai.pydantic_function_tool(Weather)]
        async with client.chat.completions.stream(model=ROUTE, messages=ASKED, tools=tools) as stream:
            events = [event async for event in stream]
    (done,) = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert isinstance(done.parsed_arguments, Weather)
    assert await running.fates("s") == {"valid": 2}


@pytest.mark.parametrize("stream", [False, True])
async def test_responses_that_are_parsed(running: RunningProxy, stream: bool) -> None:
    def call() -> Weather | None:
        with sync(running) as client:
            if not stream:
                return client.responses.parse(model=ROUTE, input=ASKED, text_format=Weather).output_parsed
            with client.responses.stream(model=ROUTE, input=ASKED, text_format=Weather) as events:
                return events.get_final_response().output_parsed

    async with concurrent(running) as client:
        if stream:
            async with client.responses.stream(model=ROUTE, input=ASKED, text_format=Weather) as events:
                response = await events.get_final_response()
        else:
            response = await client.responses.parse(model=ROUTE, input=ASKED, text_format=Weather)
    assert isinstance(response.output_parsed, Weather)
    assert await asyncio.to_thread(call) == response.output_parsed
    assert await running.fates("s") == {"valid": 2}


async def test_a_tool_of_responses_that_is_parsed(running: RunningProxy) -> None:
    # The client marks such tools as strict.
    tools: Any = [openai.pydantic_function_tool(Weather)["function"] | {"type": "function"}]
    async with concurrent(running) as client:
        response = await client.responses.parse(model=ROUTE, input=ASKED, tools=tools)
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert call.name == "Weather"
    assert await running.fates("s") == {"valid": 1}
