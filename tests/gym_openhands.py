"""The model client of the OpenHands that NeMo Gym runs, as a proxy sees it, and a tool loop on top of it.

What it is known to do: it sends nulls, `aws_*` keys and no key of its own;
adds what its configuration gives as `completion_kwargs`; keeps the cookies it is given; sends back the token arrays of
an assistant message that had some; tries again for ever when a connection fails, without any time limit; and never when
a status tells of an error, which ends the agent.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Literal

import aiohttp

RETRY_SECONDS = 0.1
"""0.5 in the original."""
TOKEN_ARRAYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "execute_bash",
            "description": "Execute a bash command in the terminal.",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "finish",
            "description": "Signals the completion of the task.",
            "parameters": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
        },
    },
]


class GymClient:
    """One agent's client; use it as a context manager."""

    def __init__(self, port: int, session: str) -> None:
        self._url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self._completion_kwargs = {"proxy_x_session_id": session}
        self.failures = 0
        """Connections that failed and were tried again."""

    async def __aenter__(self) -> "GymClient":
        # Of an earlier reply: of a load balancer, say.
        self._http = aiohttp.ClientSession(cookies={"node": "a-cookie"}, timeout=aiohttp.ClientTimeout())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def complete(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The whole reply. Raises aiohttp.ClientResponseError for a status from 400."""
        body = {
            "messages": messages,
            "temperature": 1.0,
            "max_completion_tokens": None,
            "top_p": 1.0,
            "aws_region_name": None,
            "aws_access_key_id": "AKIAEXAMPLE",
            "aws_secret_access_key": "a-secret-in-the-body",
            **self._completion_kwargs,
            "model": "policy_model",
            "seed": None,
            "tools": TOOLS,
        }
        while True:
            try:
                async with self._http.post(self._url, json=body) as response:
                    response.raise_for_status()
                    reply: dict[str, Any] = json.loads(await response.read())
                    return reply
            except aiohttp.ClientResponseError:
                raise
            except (aiohttp.ClientError, OSError):
                self.failures += 1
                await asyncio.sleep(RETRY_SECONDS)


class GymAgent:
    """Works until the model calls `finish`, says something without a call, or an error ends it."""

    def __init__(self, client: GymClient, run: Callable[[str], str]) -> None:
        self._client = client
        self._run = run
        self.messages: list[dict[str, Any]] = []

    async def work(self, task: str) -> Literal["FINISHED", "STOPPED", "ERROR"]:
        """The state the agent ends in."""
        self.messages = [
            {"content": "You are OpenHands agent...", "role": "system"},
            {"content": task, "role": "user"},
        ]
        while True:
            try:
                reply = await self._client.complete(self.messages)
            except aiohttp.ClientResponseError:
                return "ERROR"
            said = reply["choices"][0]["message"]
            message = {"content": said["content"] or "", "role": "assistant"}
            if said.get("prompt_token_ids"):
                message |= {name: said[name] for name in TOKEN_ARRAYS}
            self.messages.append(message)
            if not said.get("tool_calls"):
                return "STOPPED"
            message["tool_calls"] = said["tool_calls"]
            for call in said["tool_calls"]:
                arguments = json.loads(call["function"]["arguments"])
                if call["function"]["name"] == "finish":
                    return "FINISHED"
                result = {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"]}
                self.messages.append({"content": self._run(arguments["command"]), **result})
