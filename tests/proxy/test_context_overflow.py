"""A prompt that is too long, for agents that want an end instead of an error."""

from typing import Any

import pytest
from event_stream import DONE, events, finish_reason, joined
from running_proxy import RunningProxy, StartProxy
from scripted_engine import ScriptedEngine, Turn, chat, json_reply
from wire_recordings import recording

OVERFLOW = json_reply(recording("err_ctx_overflow").body, 400)
EMPTY_LENGTH = {"on_context_overflow": "empty_length"}
USAGE: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


async def _answers(running: RunningProxy, session: str | None) -> None:
    """One call in each form gets an empty answer."""
    reply = (await running.chat({}, session)).json()
    assert reply["choices"][0]["message"]["content"] == ""
    assert (reply["choices"][0]["finish_reason"], reply["model"]) == ("length", "actual-model")
    for body, usages in (({"stream": True}, 0), (USAGE, 1)):
        response = await running.chat(body, session)
        assert response.headers["content-type"].startswith("text/event-stream")
        chunks = events(response.content)
        assert chunks.pop() == DONE
        assert (joined(chunks, "content"), finish_reason(chunks)) == ("", "length")
        assert len([chunk for chunk in chunks if chunk.get("usage")]) == usages


async def test_the_agent_gets_an_empty_completion_and_the_record_is_never_valid(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy(target=EMPTY_LENGTH)
    engine.default(OVERFLOW)
    await _answers(running, "s")
    assert await running.fates("s") == {"invalid": 3}
    for record in await running.records("s"):
        assert record["is_valid"] is False
        assert record["call"]["invalid_reasons"] == ["context_overflow"]
        assert record["request_id"] == f"chatcmpl-{record['uuid']}"
        assert record["messages"][-1] == {"role": "assistant", "content": ""}
        tokens = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
        assert [record[key] for key in tokens] == [None, None, None]
        assert (record["finish_reason"], record["call"]["truncated"]) == ("length", True)


async def test_an_uncaptured_call_gets_it_too(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(target=EMPTY_LENGTH)
    engine.default(OVERFLOW)
    await _answers(running, None)


async def test_an_early_stream_ends_with_it(proxy: StartProxy, engine: ScriptedEngine) -> None:
    running = await proxy(target={**EMPTY_LENGTH, "early_headers_after": 0})
    engine.reply(OVERFLOW)
    chunks = events((await running.chat({"stream": True}, "s")).content)
    assert (finish_reason(chunks[:-1]), chunks[-1]) == ("length", DONE)


@pytest.mark.parametrize("name", ["err_max_tokens_over_ctx", "err_no_messages"])
async def test_another_400_stays_one(proxy: StartProxy, engine: ScriptedEngine, name: str) -> None:
    running = await proxy(target=EMPTY_LENGTH)
    engine.reply(json_reply(recording(name).body, 400))
    response = await running.chat({}, "s")
    assert (response.status_code, response.content) == (400, recording(name).body)
    assert await running.fates("s") == {"failed": 1}


async def test_without_the_setting_the_agent_reads_the_engine_s_words(
    proxy: StartProxy, engine: ScriptedEngine
) -> None:
    running = await proxy()
    engine.reply(OVERFLOW, chat(Turn(text="hello")))
    response = await running.chat({}, "s")
    assert (response.status_code, response.content) == (400, recording("err_ctx_overflow").body)
    await running.chat({}, "s")
    assert await running.fates("s") == {"failed": 1, "valid": 1}
