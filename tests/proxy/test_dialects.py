"""The same conversation in every dialect, streamed and not: the engine is asked the same, its tokens are recorded."""

import json
from typing import Any

import anthropic
import openai
import pytest
from dialect_agents import AGENTS, Task
from running_proxy import StartProxy
from scripted_engine import Request, ScriptedEngine, Turn, chat, json_reply

SYSTEM, QUESTION, RESULT = "You look things up.", "Is it warm in Rome?", "25 degrees"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TASK = Task(SYSTEM, QUESTION, "weather", SCHEMA, RESULT)
CALLING = Turn(reasoning="I must look.", text="A moment.", tool_calls=[("weather", '{"city":  "Rome"}')], whitespace="")
ANSWERING = Turn(text="Yes.", prompt_token_ids=(*CALLING.prompt_token_ids, 7, 8, 9))


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
    async with AGENTS[dialect](running, TASK, "s") as agent:
        assert await agent.turn(stream=stream) == "A moment."
        assert await agent.turn(stream=stream) == "Yes."

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


OVERFLOW = (
    "This model's maximum context length is 4096 tokens. However, you requested 0 output tokens and your prompt "
    "contains at least 4097 input tokens, for a total of at least 4097 tokens."
)
REFUSAL = {"error": {"message": OVERFLOW, "type": "BadRequestError", "param": "input_tokens", "code": 400}}


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("dialect", AGENTS)
async def test_a_prompt_that_is_too_long_is_told_in_the_engines_words(
    proxy: StartProxy, engine: ScriptedEngine, dialect: str, stream: bool
) -> None:
    running = await proxy()
    engine.reply(json_reply(REFUSAL, 400))
    async with AGENTS[dialect](running, TASK, "s") as agent:
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as refused:
            await agent.turn(stream=stream)
    assert OVERFLOW in str(refused.value)
    assert ("prompt is too long" in str(refused.value)) == (dialect == "messages")
    assert await running.fates("s") == {"failed": 1}


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("dialect", AGENTS)
async def test_or_is_an_empty_answer_where_the_target_says_so(
    proxy: StartProxy, engine: ScriptedEngine, dialect: str, stream: bool
) -> None:
    running = await proxy(target={"on_context_overflow": "empty_length"})
    engine.reply(json_reply(REFUSAL, 400))
    async with AGENTS[dialect](running, TASK, "s") as agent:
        if dialect != "messages" and stream:
            # The helpers of the official client raise on what is cut off; what they were sent is whole.
            with pytest.raises((openai.LengthFinishReasonError, RuntimeError), match=r"length|response\.completed"):
                await agent.turn(stream=True)
        else:
            assert await agent.turn(stream=stream) == ""
    (record,) = await running.records("s")
    assert (record["is_valid"], record["call"]["invalid_reasons"]) == (False, ["context_overflow"])
