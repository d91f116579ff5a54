"""The official OpenAI client gives up and tries again: what is generated, and what becomes of each call."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from running_proxy import ROUTE, RunningProxy, StartProxy
from scale import FULL, scaled
from scripted_engine import Exchange, Script, ScriptedEngine, Turn, chat, json_reply, refused_port
from stored_calls import FaultyFilesystem, GatedFilesystem

TIMEOUT = scaled(1000, 500) / 1000
"""Of the client, for a silent connection."""
PATIENCE = scaled(2000, 1000) / 1000
"""Of a client whose answers come in time, on a busy machine as well."""
IN_TIME = scaled(900, 50) / 1000
TOO_LONG = 2 * TIMEOUT
"""What engines take."""

MESSAGES: Any = [{"role": "user", "content": "hi"}]
TURN = Turn(reasoning="well", tool_calls=[("run", {"command": "ls"})])
ARGUMENTS = '{"command": "ls"}'
CLIENTS = pytest.mark.parametrize("client", ["async", "sync"])
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """What the client does once in its life, half a second of it, is not counted as time it waits."""
    with refused_port() as port:
        settings: dict[str, Any] = {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "x", "max_retries": 0}
        with openai.OpenAI(**settings) as client, pytest.raises(openai.APIConnectionError):
            client.chat.completions.create(model=ROUTE, messages=MESSAGES)
    ChatCompletion.model_json_schema()
    ChatCompletionChunk.model_json_schema()


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client waits half a second and more between its attempts."""
    if not FULL:
        monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.02)


async def call(running: RunningProxy, client: str, *, stream: bool, timeout: float = PATIENCE, retries: int = 2) -> str:
    """The arguments of the tool call that an agent ends up with. Raises what the client raises."""
    settings: dict[str, Any] = {"base_url": f"{running.url}/v1", "api_key": "sycap-session:s"}
    settings |= {"timeout": timeout, "max_retries": retries}
    asked: dict[str, Any] = {"model": ROUTE, "messages": MESSAGES, "stream": stream}

    def sync() -> str:
        with openai.OpenAI(**settings) as ours:
            answer: Any = ours.chat.completions.create(**asked)
            return (
                _arguments(list(answer)) if stream else str(answer.choices[0].message.tool_calls[0].function.arguments)
            )

    if client == "sync":
        return await asyncio.to_thread(sync)
    async with openai.AsyncOpenAI(**settings) as ours:
        answer: Any = await ours.chat.completions.create(**asked)
        if stream:
            return _arguments([chunk async for chunk in answer])
        return str(answer.choices[0].message.tool_calls[0].function.arguments)


def _arguments(chunks: list[Any]) -> str:
    calls = [each for chunk in chunks for choice in chunk.choices for each in choice.delta.tool_calls or []]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    return "".join(each.function.arguments or "" for each in calls)


def taking(seconds: float, script: Script, seen: Callable[[], None] = lambda: None) -> Script:
    """An engine that takes so long before its first byte."""

    async def slow(exchange: Exchange) -> None:
        seen()
        await exchange.pause(seconds)
        await script(exchange)

    return slow


@CLIENTS
@STREAMED
async def test_each_attempt_that_times_out_is_one_aborted_generation_and_one_failed_call(
    proxy: StartProxy, engine: ScriptedEngine, client: str, stream: bool
) -> None:
    running = await proxy()
    side_by_side: list[int] = []
    engine.default(taking(TOO_LONG, chat(TURN), lambda: side_by_side.append(engine.running)))
    with pytest.raises(openai.APITimeoutError):
        await call(running, client, stream=stream, timeout=TIMEOUT)
    gave_up_at = time.monotonic()
    await engine.until(lambda: engine.running == 0, within=1.0)
    assert time.monotonic() - gave_up_at < 1.0
    assert (engine.started, engine.completed, engine.aborted) == (3, 0, 3)
    # Each was aborted before the next one began.
    assert side_by_side == [1, 1, 1]
    await running.until_fates("s", {"failed": 3})
    assert await running.records("s", include="all") == []


async def _until(running: RunningProxy, condition: Callable[[dict[str, Any]], bool], act: Callable[[], Any]) -> None:
    """Act once the counts of the proxy are so."""
    async with asyncio.timeout(10):
        while not condition(await running.stats()):
            await asyncio.sleep(0.005)
    if asyncio.iscoroutine(acting := act()):
        await acting


@CLIENTS
async def test_a_retry_of_an_attempt_cut_at_its_tail_is_answered_from_the_record(
    proxy: StartProxy, engine: ScriptedEngine, client: str
) -> None:
    filesystem = GatedFilesystem()
    filesystem.gate.clear()
    running = await proxy(filesystem=filesystem)
    engine.reply(taking(IN_TIME, chat(TURN)))
    opening = asyncio.create_task(_until(running, lambda stats: stats["in_flight"] == 2, filesystem.gate.set))
    assert await call(running, client, stream=False) == ARGUMENTS
    await opening
    await _was_generated_once(running, engine)


@CLIENTS
async def test_a_stream_cut_at_its_tail_is_answered_from_the_record(
    proxy: StartProxy, engine: ScriptedEngine, client: str
) -> None:
    """The client itself never repeats a stream that has begun: its agent does."""
    filesystem = GatedFilesystem()
    filesystem.gate.clear()
    running = await proxy(filesystem=filesystem)
    engine.reply(taking(IN_TIME, chat(TURN)))
    with pytest.raises(openai.APITimeoutError):
        await call(running, client, stream=True)
    await asyncio.sleep(0.02)
    opening = asyncio.create_task(_until(running, lambda stats: stats["in_flight"] == 2, filesystem.gate.set))
    assert await call(running, client, stream=True) == ARGUMENTS
    await opening
    await _was_generated_once(running, engine)


async def _was_generated_once(running: RunningProxy, engine: ScriptedEngine) -> None:
    assert (engine.started, engine.completed) == (1, 1)
    assert await running.fates("s") == {"valid": 1}
    (record,) = await running.records("s")
    assert (record["generation_token_ids"], record["generation_log_probs"]) == (TURN.token_ids, TURN.logprobs)
    assert (await running.stats())["replays"] == 1


@STREAMED
async def test_four_equal_calls_at_once_are_four_generations_and_four_records(
    proxy: StartProxy, engine: ScriptedEngine, stream: bool
) -> None:
    running = await proxy()
    engine.default(taking(0.05, chat(TURN)))
    answers = await asyncio.gather(*(call(running, "async", stream=stream) for _ in range(4)))
    assert answers == [ARGUMENTS] * 4
    assert (engine.started, engine.completed) == (4, 4)
    assert await running.fates("s") == {"valid": 4}


async def test_an_error_that_a_repeat_cannot_help_is_told_once(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.default(json_reply({"error": {"message": "bad key"}}, 401))
    with pytest.raises(openai.InternalServerError, match="refused the proxy's own key"):
        await call(running, "async", stream=False)
    assert engine.started == 1


async def test_an_engine_that_comes_back_costs_the_agent_nothing(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    await engine.stop()
    engine.reply(chat(TURN))
    restart = asyncio.create_task(_until(running, lambda stats: stats["errors_told"] >= 1, engine.start))
    assert await call(running, "async", stream=False, retries=10) == ARGUMENTS
    await restart
    fates = await running.fates("s")
    assert fates.pop("valid") == 1
    assert list(fates) == ["failed"]
    (record,) = await running.records("s")
    assert record["call"]["retry_of"] in {file.stem for file in running.files(".failed")}


async def test_a_store_that_comes_back_costs_the_agent_a_second(proxy: StartProxy, engine: ScriptedEngine) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)
    filesystem.freeze()
    healing = asyncio.create_task(_until(running, lambda stats: stats["errors_told"] >= 1, filesystem.heal))
    engine.reply(chat(TURN))
    began = time.monotonic()
    assert await call(running, "async", stream=False) == ARGUMENTS
    await healing
    assert 1.0 < time.monotonic() - began < 3.0
    assert engine.started == 1
    assert await running.fates("s") == {"valid": 1}
