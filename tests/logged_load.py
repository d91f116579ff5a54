"""Load on a proxy, logged on both of its sides: what the engine sampled for each call, what the agents received."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Literal

from event_stream import DONE, arguments, events, joined
from scripted_engine import Exchange, Turn, chat_events, chat_reply
from wire_agent import Answer, WireAgent, http_request

AGENTS = 64
SESSIONS = [*(f"s{number}" for number in range(8)), "a/b", "Übung", "x" * 100]
MODES: list[dict[str, Any]] = [{}, {"stream": True}, {"stream": True}, {"stream": True, "return_token_ids": True}]


@dataclass
class Generation:
    """What the engine sampled for one call, and how far it came."""

    turn: Turn
    fate: Literal["running", "finished", "aborted"] = "running"


class LoggingEngine:
    """Answers every call with a turn of its own, slowly, and logs it by its X-Request-Id."""

    def __init__(self, chance: Random) -> None:
        self.log: dict[str, Generation] = {}
        self.chance = chance
        self._numbers = count()

    def has_more_than(self, calls: int) -> bool:
        return len(self.log) > calls

    async def __call__(self, exchange: Exchange) -> None:
        name = exchange.request.header("x-request-id")
        assert name is not None
        assert name not in self.log, f"call {name} was sent twice"
        generation = self.log[name] = Generation(_turn(next(self._numbers)))
        try:
            await exchange.pause(self.chance.uniform(0, 0.2))
            await self._answer(exchange, generation.turn)
            generation.fate = "finished"
        except asyncio.CancelledError:
            generation.fate = "aborted"
            raise

    async def _answer(self, exchange: Exchange, turn: Turn) -> None:
        if not exchange.request.json.get("stream"):
            await chat_reply(turn)(exchange)
            return
        gap = self.chance.choice((0, 0.005, 0.02))
        await exchange.stream_headers()
        for event in chat_events(exchange.request, turn):
            await exchange.send(event)
            await exchange.pause(gap)
        await exchange.send(b"data: [DONE]\n\n")


def _turn(number: int) -> Turn:
    prompt = [number % 2000, 17, number // 2000]
    text = f"answer {number} of the engine"
    if number % 2:
        return Turn(text=text, prompt_token_ids=prompt)
    return Turn(text=text, tool_calls=[("run", {"number": number}), ("run", {})], prompt_token_ids=prompt)


@dataclass(frozen=True)
class Received:
    """What an agent received as far as its end, or as far as a finish reason."""

    uuid: str
    session_id: str
    content: str
    arguments: str
    token_ids: list[int] | None


class Agents:
    """Agents that call during an `async with`, at `port`: buffered and streamed, in shared sessions, some with equal
    requests, and some that leave at any moment."""

    def __init__(self, chance: Random) -> None:
        self.port = 0
        self.received: list[Received] = []
        self.outcomes: Counter[str] = Counter()
        self._chance = chance
        self._numbers = count()
        self._stopping = False

    async def __aenter__(self) -> None:
        self._tasks = [asyncio.create_task(self._keep_calling()) for _ in range(AGENTS)]

    async def __aexit__(self, kind: object, *_: object) -> None:
        self._stopping = True
        if kind is not None:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks)

    async def _keep_calling(self) -> None:
        agent = WireAgent(self.port)
        while not self._stopping:
            agent.port = self.port
            try:
                await self._call(agent)
            except OSError:  # there is no proxy at the moment
                await asyncio.sleep(0.05)
        await agent.close()

    async def _call(self, agent: WireAgent) -> None:
        chance, session = self._chance, self._chance.choice(SESSIONS)
        content = "the same" if chance.random() < 0.2 else f"question {next(self._numbers)}"
        body = {"model": "policy_model", "messages": [{"role": "user", "content": content}], **chance.choice(MODES)}
        leaves = chance.random() < 0.15
        answer = await agent.call(
            http_request(json.dumps(body).encode(), {"proxy_x_session_id": session}),
            leave_after=chance.uniform(0, 0.4) if leaves else 30,
        )
        received = _received(answer, session, streamed="stream" in body)
        if received is not None:
            self.received.append(received)
            self.outcomes["received"] += 1
        elif answer.left:
            self.outcomes["left" if leaves else "hung"] += 1
        else:
            self.outcomes[f"told {answer.status}" if answer.complete else "broken off"] += 1


def _received(answer: Answer, session: str, *, streamed: bool) -> Received | None:
    """What an agent may act on, None when it got no such thing."""
    if answer.status != 200:
        return None
    uuid = answer.headers["x-request-id"]
    if not streamed:
        if not answer.complete:
            return None
        message = json.loads(answer.body)["choices"][0]["message"]
        calls = "".join(call["function"]["arguments"] for call in message.get("tool_calls", []))
        return Received(uuid, session, message["content"], calls, None)
    whole_events = answer.body[: answer.body.rfind(b"\n\n") + 2]
    chunks = events(whole_events)
    if DONE not in chunks and b'"finish_reason":"' not in whole_events:
        return None
    ids = [token for choice in _choices(chunks) for token in choice.get("token_ids") or []]
    return Received(uuid, session, joined(chunks, "content"), arguments(chunks), ids or None)


def _choices(chunks: list[Any]) -> list[dict[str, Any]]:
    return [choice for chunk in chunks if isinstance(chunk, dict) for choice in chunk["choices"]]
