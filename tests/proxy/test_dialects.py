"""The same conversation in every dialect, streamed and not: the engine is asked the same, its tokens are recorded."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from running_proxy import ROUTE, RunningProxy, StartProxy
from scripted_engine import Request, ScriptedEngine, Turn, chat

SYSTEM, QUESTION, RESULT = "You look things up.", "Is it warm in Rome?", "25 degrees"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALLING = Turn(reasoning="I must look.", text="A moment.", tool_calls=[("weather", '{"city":  "Rome"}')], whitespace="")
ANSWERING = Turn(text="Yes.", prompt_token_ids=(*CALLING.prompt_token_ids, 7, 8, 9))


class ChatAgent:
    """Speaks chat completions and sends its reasoning back."""

    def __init__(self, running: RunningProxy, headers: dict[str, str]) -> None:
        self._client = AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", default_headers=headers, max_retries=0)
        self._messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]

    async def turn(self, *, stream: bool) -> str:
        """One call; the text that was answered. Tool calls are answered with `RESULT`."""
        tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
        asked: dict[str, Any] = {"model": ROUTE, "messages": self._messages, "tools": tools, "max_tokens": 100}
        if stream:
            async with self._client.chat.completions.stream(**asked) as events:
                async for _ in events:
                    pass
                completion: Any = await events.get_final_completion()
        else:
            completion = await self._client.chat.completions.create(**asked)
        message = completion.choices[0].message
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls or []
        ]
        said = {"role": "assistant", "content": message.content}
        if calls:
            reasoning = CALLING.reasoning if stream else message.reasoning
            said = {**said, "tool_calls": calls, "reasoning": reasoning}
        self._messages.append(said)
        self._messages += [{"role": "tool", "tool_call_id": call["id"], "content": RESULT} for call in calls]
        return str(message.content)

    async def close(self) -> None:
        await self._client.close()


class MessagesAgent:
    """Speaks Anthropic Messages."""

    def __init__(self, running: RunningProxy, headers: dict[str, str]) -> None:
        self._client = AsyncAnthropic(base_url=running.url, api_key="none", default_headers=headers, max_retries=0)
        self._messages: list[Any] = [{"role": "user", "content": QUESTION}]

    async def turn(self, *, stream: bool) -> str:
        tools: Any = [{"name": "weather", "input_schema": SCHEMA}]
        asked: dict[str, Any] = {"model": ROUTE, "messages": self._messages, "tools": tools, "max_tokens": 100}
        if stream:
            async with self._client.messages.stream(system=SYSTEM, **asked) as events:
                message: Any = await events.get_final_message()
        else:
            message = await self._client.messages.create(system=SYSTEM, **asked)
        blocks = [block.model_dump(exclude_unset=True, exclude={"parsed_output"}) for block in message.content]
        self._messages.append({"role": "assistant", "content": blocks})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": RESULT}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        if results:
            self._messages.append({"role": "user", "content": results})
        return "".join(block["text"] for block in blocks if block["type"] == "text")

    async def close(self) -> None:
        await self._client.close()


class ResponsesAgent:
    """Speaks OpenAI Responses."""

    def __init__(self, running: RunningProxy, headers: dict[str, str]) -> None:
        self._client = AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", default_headers=headers, max_retries=0)
        self._input: list[Any] = [{"role": "user", "content": QUESTION}]

    async def turn(self, *, stream: bool) -> str:
        tools: Any = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": None}]
        asked: dict[str, Any] = {"model": ROUTE, "input": self._input, "tools": tools, "max_output_tokens": 100}
        if stream:
            async with self._client.responses.stream(instructions=SYSTEM, **asked) as events:
                response: Any = await events.get_final_response()
        else:
            response = await self._client.responses.create(instructions=SYSTEM, **asked)
        items = [
            item.model_dump(exclude_unset=True, exclude={"parsed_arguments", "status"}) for item in response.output
        ]
        self._input += items
        self._input += [
            {"type": "function_call_output", "call_id": item["call_id"], "output": RESULT}
            for item in items
            if item["type"] == "function_call"
        ]
        return str(response.output_text)

    async def close(self) -> None:
        await self._client.close()


AGENTS: dict[str, Callable[[RunningProxy, dict[str, str]], Any]] = {
    "chat": ChatAgent,
    "messages": MessagesAgent,
    "responses": ResponsesAgent,
}


def asked(request: Request) -> dict[str, Any]:
    """What the engine was asked, apart from the way it is to answer."""
    fields = {key: value for key, value in request.json.items() if key not in ("stream", "stream_options")}
    if "max_completion_tokens" in fields:
        fields["max_tokens"] = fields.pop("max_completion_tokens")
    return fields


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("dialect", AGENTS)
async def test_the_engine_is_asked_the_same_and_the_record_has_its_tokens(
    proxy: StartProxy, engine: ScriptedEngine, dialect: str, stream: bool
) -> None:
    running = await proxy()
    engine.reply(chat(CALLING), chat(ANSWERING))
    agent = AGENTS[dialect](running, {"proxy_x_session_id": "s"})
    assert await agent.turn(stream=stream) == "A moment."
    assert await agent.turn(stream=stream) == "Yes."
    await agent.close()

    first, second = map(asked, engine.generations)
    (call,) = CALLING.calls
    question = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    said = {"role": "assistant", "reasoning": "I must look.", "content": "A moment.", "tool_calls": [call]}
    told = {"role": "tool", "tool_call_id": call["id"], "content": RESULT}
    assert first["messages"] == question
    assert second["messages"] == [*question, said, told]
    assert (
        first["tools"]
        == second["tools"]
        == [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    )
    assert {key: value for key, value in second.items() if key not in ("messages", "tools")} == {
        "model": "actual-model",
        "max_tokens": 100,
        "logprobs": True,
        "top_logprobs": 0,
        "return_token_ids": True,
    }

    records = await running.records("s")
    for record, turn in zip(records, (CALLING, ANSWERING), strict=True):
        assert record["is_valid"], record["call"]["invalid_reasons"]
        assert record["call"]["dialect"] == dialect
        assert record["call"]["streamed"] == stream
        assert record["prompt_token_ids"] == list(turn.prompt_token_ids)
        assert record["generation_token_ids"] == [token.id for token in turn.tokens]
        assert record["generation_log_probs"] == [token.logprob for token in turn.tokens]
    assert records[0]["messages"][-1] == said | {"content": "A moment."}
    assert json.loads(records[0]["messages"][-1]["tool_calls"][0]["function"]["arguments"]) == {"city": "Rome"}
