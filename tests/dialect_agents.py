"""One agent for each dialect, on the official client: it asks, calls its tool, and sends its history back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from running_proxy import ROUTE, RunningProxy


@dataclass(frozen=True)
class Task:
    """What the agent is told. Tool calls are answered with `result`."""

    system: str
    question: str
    tool: str
    schema: dict[str, Any]
    result: str
    max_tokens: int = 100
    description: str | None = None

    @property
    def described(self) -> dict[str, Any]:
        return {} if self.description is None else {"description": self.description}


class ChatAgent:
    """Speaks chat completions and sends its reasoning back."""

    def __init__(self, running: RunningProxy, task: Task, session: str) -> None:
        headers = {"proxy_x_session_id": session}
        self._task = task
        self._client = AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", default_headers=headers, max_retries=0)
        self._messages: list[Any] = [
            {"role": "system", "content": task.system},
            {"role": "user", "content": task.question},
        ]

    async def turn(self, *, stream: bool, **fields: Any) -> str:
        """One call; the text that was answered. Tool calls are answered with the task's result."""
        task = self._task
        function = {"name": task.tool, **task.described, "parameters": task.schema}
        tools: Any = [{"type": "function", "function": function}]
        asked: dict[str, Any] = {
            "model": ROUTE,
            "messages": self._messages,
            "tools": tools,
            "max_tokens": task.max_tokens,
            "extra_body": fields,
        }
        if stream:
            reasoning = ""
            async with self._client.chat.completions.stream(**asked) as events:
                async for event in events:
                    if event.type == "chunk" and event.chunk.choices:
                        reasoning += getattr(event.chunk.choices[0].delta, "reasoning", None) or ""
                completion: Any = await events.get_final_completion()
        else:
            completion = await self._client.chat.completions.create(**asked)
            reasoning = getattr(completion.choices[0].message, "reasoning", None) or ""
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
            said = {**said, "tool_calls": calls, "reasoning": reasoning}
        self._messages.append(said)
        self._messages += [{"role": "tool", "tool_call_id": call["id"], "content": task.result} for call in calls]
        return str(message.content)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


class MessagesAgent:
    """Speaks Anthropic Messages."""

    def __init__(self, running: RunningProxy, task: Task, session: str) -> None:
        headers = {"proxy_x_session_id": session}
        self._task = task
        self._client = AsyncAnthropic(base_url=running.url, api_key="none", default_headers=headers, max_retries=0)
        self._messages: list[Any] = [{"role": "user", "content": task.question}]

    async def turn(self, *, stream: bool, **fields: Any) -> str:
        task = self._task
        tools: Any = [{"name": task.tool, **task.described, "input_schema": task.schema}]
        asked: dict[str, Any] = {
            "model": ROUTE,
            "messages": self._messages,
            "tools": tools,
            "max_tokens": task.max_tokens,
            "extra_body": fields,
        }
        if stream:
            async with self._client.messages.stream(system=task.system, **asked) as events:
                message: Any = await events.get_final_message()
        else:
            message = await self._client.messages.create(system=task.system, **asked)
        blocks = [block.model_dump(exclude_unset=True, exclude={"parsed_output"}) for block in message.content]
        self._messages.append({"role": "assistant", "content": blocks})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": task.result}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        if results:
            self._messages.append({"role": "user", "content": results})
        return "".join(block["text"] for block in blocks if block["type"] == "text")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


class ResponsesAgent:
    """Speaks OpenAI Responses."""

    def __init__(self, running: RunningProxy, task: Task, session: str) -> None:
        headers = {"proxy_x_session_id": session}
        self._task = task
        self._client = AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", default_headers=headers, max_retries=0)
        self._input: list[Any] = [{"role": "user", "content": task.question}]

    async def turn(self, *, stream: bool, **fields: Any) -> str:
        task = self._task
        function = {"name": task.tool, **task.described, "parameters": task.schema}
        tools: Any = [{"type": "function", **function, "strict": None}]
        asked: dict[str, Any] = {
            "model": ROUTE,
            "input": self._input,
            "tools": tools,
            "max_output_tokens": task.max_tokens,
        }
        asked["extra_body"] = fields
        if stream:
            async with self._client.responses.stream(instructions=task.system, **asked) as events:
                response: Any = await events.get_final_response()
        else:
            response = await self._client.responses.create(instructions=task.system, **asked)
        items = [
            item.model_dump(exclude_unset=True, exclude={"parsed_arguments", "status"}) for item in response.output
        ]
        self._input += items
        self._input += [
            {"type": "function_call_output", "call_id": item["call_id"], "output": task.result}
            for item in items
            if item["type"] == "function_call"
        ]
        return str(response.output_text)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


AGENTS: dict[str, Callable[[RunningProxy, Task, str], Any]] = {
    "chat": ChatAgent,
    "messages": MessagesAgent,
    "responses": ResponsesAgent,
}
