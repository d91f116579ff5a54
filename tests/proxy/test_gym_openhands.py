"""The OpenHands of NeMo Gym works through the proxy with the profile that is made for it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import consumer
import pytest
import yaml
from gym_openhands import TOKEN_ARRAYS, GymAgent, GymClient
from running_proxy import RunningProxy, running_proxy
from scripted_engine import Exchange, ScriptedEngine, Turn, chat, json_reply
from stored_calls import GatedFilesystem
from wire_recordings import recording

PROFILE = Path(__file__).parents[2] / "profiles" / "nemo-gym-openhands.yaml"
SESSION = "0123456789abcdef0123456789abcdef"
RUN = Turn(text="I run a command.", tool_calls=[("execute_bash", {"command": "ls"})])
FINISH = Turn(tool_calls=[("finish", {"message": "done"})])


class Relay:
    """A port in front of the proxy whose connections can be cut."""

    def __init__(self, running: RunningProxy) -> None:
        self._running = running
        self._connections: set[asyncio.StreamWriter] = set()

    async def open(self, port: int = 0) -> int:
        """Listen; the port."""
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", port)
        listening: int = self._server.sockets[0].getsockname()[1]
        return listening

    async def close(self) -> None:
        self.cut()
        self._server.close()
        await self._server.wait_closed()

    def cut(self) -> None:
        for writer in self._connections:
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._running.port)
        self._connections |= {writer, inner_writer}
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@pytest.fixture
def filesystem() -> GatedFilesystem:
    return GatedFilesystem()


@pytest.fixture
async def running(
    engine: ScriptedEngine, filesystem: GatedFilesystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningProxy]:
    """A proxy with the profile, whose first wait for a busy engine is shorter."""
    monkeypatch.setattr("switchyard_py.attempts.FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setenv("POLICY_URL", engine.base_url)
    profile: dict[str, Any] = yaml.safe_load(PROFILE.read_text())
    async with running_proxy(profile, tmp_path / "rl_data", filesystem=filesystem) as running:
        yield running


@pytest.fixture
async def relay(running: RunningProxy) -> AsyncIterator[Relay]:
    relay = Relay(running)
    yield relay
    await relay.close()


@pytest.fixture
async def client(running: RunningProxy) -> AsyncIterator[GymClient]:
    async with GymClient(running.port, SESSION) as client:
        yield client


async def test_a_rollout_is_captured_whole_and_nothing_of_the_client_leaks(
    running: RunningProxy, client: GymClient, engine: ScriptedEngine
) -> None:
    second = replace(RUN, prompt_token_ids=(*RUN.prompt_token_ids, *RUN.token_ids, 3000))
    last = replace(FINISH, prompt_token_ids=(*second.prompt_token_ids, *second.token_ids, 3001))
    engine.reply(chat(RUN), chat(second), chat(last))
    agent = GymAgent(client, lambda command: f"ran {command}")
    assert await agent.work("fix it") == "FINISHED"
    # Gym reads the session once, right after the agent has ended.
    response = await running.client.get(f"/v1/sessions/{SESSION}/completions")
    records = consumer.accept(response.content, SESSION)
    assert [record["generation_token_ids"] for record in records] == [turn.token_ids for turn in (RUN, second, last)]
    assert await running.fates(SESSION) == {"valid": 3}
    for request, length in zip(engine.generations, (2, 4, 6), strict=True):
        assert len(request.json["messages"]) == length
        assert not [key for key in request.json if key.startswith("aws_") or key == "proxy_x_session_id"]
        assert (request.json["seed"], request.json["max_completion_tokens"]) == (None, None)
        assert request.header("cookie") is None
    stored = b"".join(file.read_bytes() for file in running.files(".json"))
    assert b"a-secret-in-the-body" not in stored
    assert b"a-cookie" not in stored


async def test_token_arrays_that_come_back_do_not_reach_the_engine(
    running: RunningProxy, client: GymClient, engine: ScriptedEngine
) -> None:
    arrays = {name: [1, 2] for name in TOKEN_ARRAYS}
    said = {"content": "hello", "role": "assistant", **arrays}
    engine.reply(chat(FINISH))
    await client.complete([{"content": "hi", "role": "user"}, said, {"content": "and now?", "role": "user"}])
    assert engine.generations[0].json["messages"][1] == {"content": "hello", "role": "assistant"}
    (record,) = await running.records(SESSION)
    assert {f"messages.{name}" for name in TOKEN_ARRAYS} <= set(record["call"]["changed"])


async def test_a_busy_engine_does_not_end_the_agent(
    running: RunningProxy, client: GymClient, engine: ScriptedEngine
) -> None:
    busy = {"error": {"message": "full", "type": "rate_limit_error", "param": None, "code": 429}}
    engine.reply(json_reply(busy, 429), json_reply(busy, 503), chat(RUN), json_reply(busy, 503), chat(FINISH))
    assert await GymAgent(client, lambda _: "ran").work("fix it") == "FINISHED"
    assert await running.fates(SESSION) == {"valid": 2}


async def test_a_prompt_that_is_too_long_ends_the_rollout_and_not_the_agent(
    running: RunningProxy, client: GymClient, engine: ScriptedEngine
) -> None:
    engine.reply(chat(RUN), json_reply(recording("err_ctx_overflow").body, 400))
    assert await GymAgent(client, lambda _: "ran").work("fix it") == "STOPPED"
    assert await running.fates(SESSION) == {"valid": 1, "invalid": 1}
    _, last = await running.records(SESSION)
    assert (last["finish_reason"], last["call"]["invalid_reasons"]) == ("length", ["context_overflow"])


async def test_a_call_without_a_session_is_refused(running: RunningProxy, engine: ScriptedEngine) -> None:
    async with GymClient(running.port, "") as client:
        with pytest.raises(aiohttp.ClientResponseError, match="400"):
            await client.complete([{"content": "hi", "role": "user"}])
    assert engine.generations == []


async def test_a_proxy_that_is_not_there_yet_is_waited_for(
    relay: Relay, running: RunningProxy, engine: ScriptedEngine
) -> None:
    port = await relay.open()
    await relay.close()
    engine.default(chat(FINISH))
    async with GymClient(port, SESSION) as client:
        working = asyncio.create_task(GymAgent(client, lambda _: "ran").work("fix it"))
        async with asyncio.timeout(5):
            while client.failures < 2:
                await asyncio.sleep(0.01)
        await relay.open(port)
        assert await working == "FINISHED"
    assert await running.fates(SESSION) == {"valid": 1}


async def test_a_connection_lost_while_the_engine_generates_is_one_more_call(
    relay: Relay, running: RunningProxy, engine: ScriptedEngine
) -> None:
    async def never(exchange: Exchange) -> None:
        await exchange.stall()

    engine.reply(never, chat(FINISH))
    async with GymClient(await relay.open(), SESSION) as client:
        working = asyncio.create_task(GymAgent(client, lambda _: "ran").work("fix it"))
        await engine.until(lambda: engine.started == 1)
        relay.cut()
        assert await working == "FINISHED"
        assert client.failures == 1
    assert (engine.aborted, engine.completed) == (1, 1)
    assert await running.fates(SESSION) == {"failed": 1, "valid": 1}


async def test_a_connection_lost_before_a_whole_answer_is_answered_without_a_second_generation(
    relay: Relay, running: RunningProxy, engine: ScriptedEngine, filesystem: GatedFilesystem
) -> None:
    engine.reply(chat(FINISH))
    filesystem.gate.clear()
    async with GymClient(await relay.open(), SESSION) as client:
        working = asyncio.create_task(GymAgent(client, lambda _: "ran").work("fix it"))
        await asyncio.to_thread(filesystem.waiting.wait, 5)
        relay.cut()
        # The proxy sees it before the record has its name.
        await asyncio.sleep(0.05)
        filesystem.gate.set()
        assert await working == "FINISHED"
        assert client.failures == 1
    assert engine.started == 1
    assert await running.fates(SESSION) == {"valid": 1}
