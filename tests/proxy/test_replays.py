"""Retries: what an agent gets that asks again, what the engine generates for it, and what the account says."""

import asyncio
import errno
import json
from collections.abc import Awaitable
from typing import Any

import httpx
import pytest
from event_stream import DONE, arguments, events, finish_reason, joined
from running_proxy import ROUTE, RunningProxy, StartProxy
from scripted_engine import Exchange, Script, ScriptedEngine, Turn, chat, json_reply, sse_reply
from stored_calls import FaultyFilesystem, GatedFilesystem

from switchyard_py.store import Filesystem

TURN = Turn(reasoning="well", text="I run it.", tool_calls=[("run", {"command": "ls"}), ("look", "{}")])
OTHER = Turn(text="something else")


class _Abandoned:
    """Calls that an agent leaves while their record is written."""

    def __init__(self, running: RunningProxy, filesystem: GatedFilesystem) -> None:
        self.running = running
        self.filesystem = filesystem

    async def leave_at_the_tail(self, body: dict[str, Any], session: str = "s") -> None:
        """The agent has gone; the record is still being written, and the call is under way."""
        self.filesystem.gate.clear()
        self.filesystem.waiting.clear()
        calling = asyncio.create_task(self.running.chat(body, session))
        await asyncio.to_thread(self.filesystem.waiting.wait, 5)
        calling.cancel()
        await asyncio.wait([calling])
        # One turn of the server's loop, which is ours: it sees the end of the connection.
        await asyncio.sleep(0.02)

    async def undelivered(self, body: dict[str, Any], session: str = "s") -> None:
        """The agent has gone, and the call has ended."""
        gone = await self._gone()
        await self.leave_at_the_tail(body, session)
        assert await self._gone() == gone
        self.filesystem.gate.set()
        async with asyncio.timeout(5):
            while await self._gone() == gone:
                await asyncio.sleep(0.002)
        assert await self.running.fates(session) == {"undelivered": 1}

    async def _gone(self) -> int:
        gone: int = (await self.running.stats())["agent_gone"]
        return gone


@pytest.fixture
async def abandoned(proxy: StartProxy) -> _Abandoned:
    filesystem = GatedFilesystem()
    return _Abandoned(await proxy(filesystem=filesystem), filesystem)


def says(response: httpx.Response) -> dict[str, Any]:
    """What an agent reads out of either form of an answer."""
    assert response.status_code == 200, response.text
    if response.headers["content-type"].startswith("application/json"):
        (choice,) = response.json()["choices"]
        message = choice["message"]
        return {
            "content": message["content"],
            "reasoning": message["reasoning"],
            "arguments": "".join(call["function"]["arguments"] for call in message["tool_calls"]),
            "finish_reason": choice["finish_reason"],
        }
    chunks = events(response.content)
    assert chunks[-1] == DONE
    return {
        "content": joined(chunks, "content"),
        "reasoning": joined(chunks, "reasoning"),
        "arguments": arguments(chunks),
        "finish_reason": finish_reason(chunks),
    }


SAID = {
    "content": TURN.text,
    "reasoning": TURN.reasoning,
    "arguments": '{"command": "ls"}{}',
    "finish_reason": "tool_calls",
}


@pytest.mark.parametrize("retry", [{}, {"stream": True}], ids=["buffered", "streamed"])
@pytest.mark.parametrize("first", [{}, {"stream": True}], ids=["of buffered", "of streamed"])
async def test_an_undelivered_answer_goes_to_the_retry_in_the_form_it_asks_for(
    abandoned: _Abandoned, engine: ScriptedEngine, first: dict[str, Any], retry: dict[str, Any]
) -> None:
    running = abandoned.running
    engine.reply(chat(TURN), chat(OTHER))
    await abandoned.undelivered(first)
    response = await running.chat(retry, "s")
    assert says(response) == SAID
    (record,) = await running.records("s")
    assert response.headers["x-request-id"] == record["uuid"]
    assert record["generation_token_ids"] == TURN.token_ids
    assert await running.fates("s") == {"valid": 1}
    assert engine.started == 1
    stats = await running.stats()
    assert (stats["replays"], stats["calls"], stats["ledger"]["begun"]) == (1, 2, 1)


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
async def test_a_text_completion_is_generated_anew_as_a_retry(
    abandoned: _Abandoned, engine: ScriptedEngine, stream: bool
) -> None:
    running, filesystem = abandoned.running, abandoned.filesystem
    choice = {"index": 0, "finish_reason": "stop", "stop_reason": None, "logprobs": None}
    common = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "actual-model"}
    reply = {**common, "choices": [{**choice, "text": "a word"}]}
    engine.reply(*[sse_reply([reply]) if stream else json_reply(reply)] * 2)
    body = {"model": ROUTE, "prompt": "say", "stream": stream}

    def ask() -> Awaitable[httpx.Response]:
        return running.client.post("/v1/completions", json=body, headers={"proxy_x_session_id": "s"})

    filesystem.gate.clear()
    filesystem.waiting.clear()
    calling = asyncio.ensure_future(ask())
    await asyncio.to_thread(filesystem.waiting.wait, 5)
    calling.cancel()
    await asyncio.wait([calling])
    filesystem.gate.set()
    await running.until_counted("agent_gone", 1)
    response = await ask()
    assert response.status_code == 200
    assert "a word" in response.text
    assert await running.fates("s") == {"undelivered": 1, "invalid": 1}
    first, second = await running.records("s", include="all")
    assert second["call"]["retry_of"] == first["uuid"]
    assert engine.started == 2


@pytest.mark.parametrize("usage", [False, True])
async def test_a_replayed_stream_has_a_usage_chunk_when_the_retry_asks_for_one(
    abandoned: _Abandoned, engine: ScriptedEngine, usage: bool
) -> None:
    engine.reply(chat(TURN))
    await abandoned.undelivered({"stream": True, "stream_options": {"include_usage": not usage}})
    response = await abandoned.running.chat({"stream": True, "stream_options": {"include_usage": usage}}, "s")
    seen = [chunk["usage"]["completion_tokens"] for chunk in events(response.content)[:-1] if "usage" in chunk]
    assert seen == [len(TURN.tokens)] * usage


@pytest.mark.parametrize("first", [{}, {"stream": True}], ids=["of buffered", "of streamed"])
async def test_a_replay_has_the_ids_and_log_probs_the_agent_asked_for(
    abandoned: _Abandoned, engine: ScriptedEngine, first: dict[str, Any]
) -> None:
    wish = {"return_token_ids": True, "logprobs": True}
    engine.reply(chat(TURN))
    await abandoned.undelivered({**wish, **first})
    answer = (await abandoned.running.chat(wish, "s")).json()
    (choice,) = answer["choices"]
    assert answer["prompt_token_ids"] == list(TURN.prompt_token_ids)
    assert choice["token_ids"] == TURN.token_ids
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == TURN.logprobs


async def test_a_retry_that_comes_while_the_record_is_written_waits_for_it(
    abandoned: _Abandoned, engine: ScriptedEngine
) -> None:
    running = abandoned.running
    engine.reply(chat(TURN), chat(OTHER))
    await abandoned.leave_at_the_tail({})
    retrying = asyncio.create_task(running.chat({}, "s"))
    await asyncio.sleep(0.05)
    assert not retrying.done()
    abandoned.filesystem.gate.set()
    assert says(await retrying) == SAID
    assert engine.started == 1
    assert await running.fates("s") == {"valid": 1}


async def test_of_two_retries_one_gets_the_answer_and_the_other_is_a_call_of_its_own(
    abandoned: _Abandoned, engine: ScriptedEngine
) -> None:
    running = abandoned.running
    engine.reply(chat(TURN))
    engine.default(chat(Turn(text="another", tool_calls=TURN.tool_calls)))
    await abandoned.undelivered({})
    answers = [says(each)["content"] for each in await asyncio.gather(*(running.chat({}, "s") for _ in range(2)))]
    assert sorted(answers) == [TURN.text, "another"]
    assert engine.started == 2
    assert await running.fates("s") == {"valid": 2}
    assert [record["call"]["retry_of"] for record in await running.records("s")] == [None, None]


async def test_what_was_delivered_is_not_replayed(abandoned: _Abandoned, engine: ScriptedEngine) -> None:
    running = abandoned.running
    engine.reply(chat(TURN))
    await abandoned.undelivered({})
    assert says(await running.chat({}, "s")) == SAID
    engine.reply(chat(OTHER))
    assert (await running.chat({}, "s")).json()["choices"][0]["message"]["content"] == OTHER.text
    assert await running.fates("s") == {"valid": 2}


@pytest.mark.parametrize(("body", "session"), [({"temperature": 0.5}, "s"), ({}, "another")])
async def test_another_request_or_session_gets_nothing_of_it(
    abandoned: _Abandoned, engine: ScriptedEngine, body: dict[str, Any], session: str
) -> None:
    running = abandoned.running
    engine.reply(chat(TURN), chat(OTHER))
    await abandoned.undelivered({})
    response = await running.chat(body, session)
    assert response.json()["choices"][0]["message"]["content"] == OTHER.text
    assert (await running.fates("s"))["undelivered"] == 1
    records = await running.records(session)
    assert [record["call"]["retry_of"] for record in records] == [None]


@pytest.mark.parametrize("capture", [{"replay_seconds": 0}, {"replay_seconds": 0.01}, {"replay_max_bytes": 10}])
async def test_an_answer_that_is_not_kept_is_generated_anew_as_a_retry(
    proxy: StartProxy, engine: ScriptedEngine, capture: dict[str, Any]
) -> None:
    filesystem = GatedFilesystem()
    abandoned = _Abandoned(await proxy(filesystem=filesystem, capture=capture), filesystem)
    engine.reply(chat(TURN), chat(OTHER))
    await abandoned.undelivered({})
    await asyncio.sleep(0.02)
    response = await abandoned.running.chat({}, "s")
    assert response.json()["choices"][0]["message"]["content"] == OTHER.text
    first, second = await abandoned.running.records("s", include="all")
    assert (first["call"]["retry_of"], second["call"]["retry_of"]) == (None, first["uuid"])
    assert await abandoned.running.fates("s") == {"undelivered": 1, "valid": 1}


async def test_a_retry_that_leaves_before_its_tail_leaves_the_record_to_the_next(
    abandoned: _Abandoned, engine: ScriptedEngine
) -> None:
    running = abandoned.running
    engine.reply(chat(TURN), chat(OTHER))
    await abandoned.undelivered({})
    for body in ({}, {"stream": True}):
        await abandoned.undelivered(body)
    assert says(await running.chat({}, "s")) == SAID
    assert engine.started == 1
    assert await running.fates("s") == {"valid": 1}
    assert (await running.stats())["replays"] == 1


@pytest.mark.parametrize("trouble", ["freeze", "refuse_renames"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_store_that_refuses_the_delivery_withholds_the_answer(
    abandoned: _Abandoned, engine: ScriptedEngine, stream: bool, trouble: str
) -> None:
    running = abandoned.running
    engine.reply(chat(TURN), chat(OTHER))
    await abandoned.undelivered({})
    getattr(abandoned.filesystem, trouble)()
    refused = await running.chat({"stream": stream}, "s")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "capture_unavailable")
    assert refused.headers["retry-after"] == "1"
    assert b"ls" not in refused.content
    assert await running.fates("s") == {"undelivered": 1}
    abandoned.filesystem.heal()
    assert says(await running.chat({"stream": stream}, "s")) == SAID
    assert await running.fates("s") == {"valid": 1}
    assert engine.started == 1


async def test_a_full_disk_does_not_keep_an_answer_back(abandoned: _Abandoned, engine: ScriptedEngine) -> None:
    engine.reply(chat(TURN))
    await abandoned.undelivered({})
    abandoned.filesystem.fill()
    assert says(await abandoned.running.chat({}, "s")) == SAID
    abandoned.filesystem.heal()
    assert await abandoned.running.fates("s") == {"valid": 1}


async def test_a_record_that_could_not_be_flushed_goes_to_the_retry(proxy: StartProxy, engine: ScriptedEngine) -> None:
    """Its agent was told of an error, so the record is whole and undelivered."""

    class UnflushableDirectory(Filesystem):
        def sync(self, path: str) -> None:
            if path.endswith("/s") and not healed:
                raise OSError(errno.EIO, "Input/output error")
            super().sync(path)

    healed: list[bool] = []
    running = await proxy(filesystem=UnflushableDirectory(), capture={"durability": "power"})
    engine.reply(chat(TURN), chat(OTHER))
    assert (await running.chat({}, "s")).status_code == 503
    assert await running.fates("s") == {"undelivered": 1}
    healed.append(True)
    assert says(await running.chat({}, "s")) == SAID
    assert await running.fates("s") == {"valid": 1}


async def test_a_record_that_is_gone_is_generated_anew(abandoned: _Abandoned, engine: ScriptedEngine) -> None:
    running = abandoned.running
    engine.reply(chat(TURN), chat(OTHER))
    await abandoned.undelivered({})
    (file,) = running.files(".undelivered")
    file.unlink()
    assert (await running.chat({}, "s")).json()["choices"][0]["message"]["content"] == OTHER.text
    assert [record["call"]["retry_of"] for record in await running.records("s")] == [file.stem]


async def test_an_invalid_answer_is_replayed_as_well(abandoned: _Abandoned, engine: ScriptedEngine) -> None:
    engine.reply(chat(TURN, TURN))
    await abandoned.undelivered({"n": 2})
    assert len((await abandoned.running.chat({"n": 2}, "s")).json()["choices"]) == 2
    assert await abandoned.running.fates("s") == {"invalid": 1}


async def test_a_large_answer_is_replayed(abandoned: _Abandoned, engine: ScriptedEngine) -> None:
    turn = Turn(text="word" * 20_000)
    engine.reply(chat(turn))
    await abandoned.undelivered({})
    response = await abandoned.running.chat({"stream": True}, "s")
    assert joined(events(response.content), "content") == turn.text


async def _refuse(exchange: Exchange) -> None:
    await exchange.json({"error": {"message": "busy"}}, 503)


async def _break_off(exchange: Exchange) -> None:
    await exchange.headers(200, {"content-type": "application/json", "content-length": "100"})
    exchange.reset()


@pytest.mark.parametrize("failure", [_refuse, _break_off])
async def test_the_retry_of_a_failed_call_says_which_it_repeats(
    proxy: StartProxy, engine: ScriptedEngine, failure: Script
) -> None:
    running = await proxy()
    engine.reply(failure, failure, chat(OTHER), chat(OTHER))
    failed = [(await running.chat({}, "s")).headers["x-request-id"] for _ in range(2)]
    answered = [(await running.chat({"stream": True}, "s")).headers["x-request-id"] for _ in range(2)]
    # The second attempt repeated the first one, the third the second, and the fourth is a new call.
    records = await running.records("s")
    assert [record["uuid"] for record in records] == answered
    assert [record["call"]["retry_of"] for record in records] == [failed[1], None]
    assert await running.fates("s") == {"failed": 2, "valid": 2}


async def test_the_retry_of_a_call_whose_agent_went_says_which_it_repeats(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    engine.reply(chat(TURN, stepped=True), chat(OTHER))
    calling = asyncio.create_task(running.chat({"stream": True}, "s"))
    engine.step(3)
    await engine.until(lambda: engine.started == 1)
    await asyncio.sleep(0.02)
    calling.cancel()
    await engine.until(lambda: engine.aborted == 1)
    await running.until_fates("s", {"failed": 1})
    await running.chat({}, "s")
    (failed,) = running.files(".failed")
    assert [record["call"]["retry_of"] for record in await running.records("s")] == [failed.stem]
    assert json.loads(failed.read_bytes())["seen"]["call"]["retry_of"] is None


async def test_a_call_that_could_not_begin_leaves_what_it_repeats_to_the_next(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    filesystem = FaultyFilesystem()
    running = await proxy(filesystem=filesystem)
    engine.reply(_refuse, chat(OTHER))
    failed = (await running.chat({}, "s")).headers["x-request-id"]
    filesystem.freeze()
    assert (await running.chat({}, "s")).json()["error"]["code"] == "capture_unavailable"
    filesystem.heal()
    await running.chat({}, "s")
    assert [record["call"]["retry_of"] for record in await running.records("s")] == [failed]


async def test_equal_calls_side_by_side_are_several_calls(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy()
    engine.default(chat(OTHER))
    await asyncio.gather(*(running.chat({"stream": number % 2 == 0}, "s") for number in range(4)))
    assert (engine.started, engine.completed) == (4, 4)
    records = await running.records("s")
    assert len({record["uuid"] for record in records}) == 4
    assert [record["call"]["retry_of"] for record in records] == [None] * 4
