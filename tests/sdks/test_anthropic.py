"""The helpers of the official Anthropic client, sync and async: streams, parsed replies, and the runner of tools."""

import asyncio
from typing import Any, Literal

import anthropic
import pytest
from anthropic import beta_async_tool, beta_tool
from pydantic import BaseModel
from running_proxy import ROUTE, RunningProxy

ASKED: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
CALL: Any = {"model": ROUTE, "max_tokens": 1000, "messages": ASKED}


class Weather(BaseModel):
    """The weather of one place."""

    city: Literal["Paris"]
    degrees: int


@beta_tool
def get_weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"It rains in {city or 'nowhere'}."


@beta_async_tool
async def look_up(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"It rains in {city or 'nowhere'}."


def settings(running: RunningProxy) -> dict[str, Any]:
    return {"base_url": running.url, "api_key": "sycap-session:s", "max_retries": 0}


def sync(running: RunningProxy) -> anthropic.Anthropic:
    return anthropic.Anthropic(**settings(running))


def concurrent(running: RunningProxy) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(**settings(running))


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


async def test_the_text_of_a_stream(running: RunningProxy) -> None:
    def call() -> tuple[str, str]:
        with sync(running) as client, client.messages.stream(**CALL) as stream:
            return "".join(stream.text_stream), text_of(stream.get_final_message())

    async with concurrent(running) as client, client.messages.stream(**CALL) as stream:
        texts = "".join([text async for text in stream.text_stream])
        message = await stream.get_final_message()
    assert await asyncio.to_thread(call) == (texts, text_of(message))
    assert "Paris" in texts
    assert message.stop_reason == "end_turn"
    assert await running.fates("s") == {"valid": 2}


async def test_replies_that_are_parsed(running: RunningProxy) -> None:
    def call() -> Weather | None:
        with sync(running) as client:
            return client.messages.parse(**CALL, output_format=Weather).parsed_output

    async with concurrent(running) as client:
        message = await client.messages.parse(**CALL, output_format=Weather)
        async with client.messages.stream(**CALL, output_format=Weather) as stream:
            streamed = await stream.get_final_message()
    assert isinstance(message.parsed_output, Weather)
    assert message.parsed_output == streamed.parsed_output == await asyncio.to_thread(call)
    assert await running.fates("s") == {"valid": 3}
    assert {record["call"]["constrained"] for record in await running.records("s")} == {True}


@pytest.mark.parametrize("stream", [False, True])
async def test_the_runner_calls_the_tool_and_ends(running: RunningProxy, stream: bool) -> None:
    def run() -> str:
        with sync(running) as client:
            if stream:
                turns = client.beta.messages.tool_runner(**CALL, tools=[get_weather], stream=True)
                *_, last = [turn.get_final_message() for turn in turns]
                return text_of(last)
            return text_of(client.beta.messages.tool_runner(**CALL, tools=[get_weather]).until_done())

    async with concurrent(running) as client:
        if stream:
            turns = client.beta.messages.tool_runner(**CALL, tools=[look_up], stream=True)
            *_, last = [await turn.get_final_message() async for turn in turns]
        else:
            last = await client.beta.messages.tool_runner(**CALL, tools=[look_up]).until_done()
    said = await asyncio.to_thread(run)
    assert said == text_of(last)
    assert "It rains in" in said
    # Two turns of two runners; what each sends back continues what it was sent.
    records = await running.records("s")
    assert await running.fates("s") == {"valid": 4}
    for first, second in (records[:2], records[2:]):
        seen = first["prompt_token_ids"] + first["generation_token_ids"]
        assert second["prompt_token_ids"][: len(seen)] == seen


async def test_tokens_are_counted_without_a_record(running: RunningProxy) -> None:
    async with concurrent(running) as client:
        counted = await client.messages.count_tokens(model=ROUTE, messages=ASKED)
        message = await client.messages.create(**CALL)
    assert counted.input_tokens == message.usage.input_tokens
    assert await running.fates("s") == {"valid": 1}
