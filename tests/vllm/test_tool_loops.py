"""A tool loop with thinking against a real vLLM, in every dialect: each prompt begins with all that went before it."""

from itertools import pairwise
from typing import Any

import pytest
from dialect_agents import AGENTS, Task
from running_proxy import StartProxy

TASK = Task(
    system="You are a helper.",
    question="weather in Paris for 2 days",
    tool="get_weather",
    description="Weather",
    schema={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
    result='{"c": 21}',
    max_tokens=150,
)
# Thinking stays free; what follows it is a call. The engine's own parameters go through every dialect as they are.
CALL = (
    r'\n\n<tool_call>\n\{"name": "get_weather", "arguments": \{"city": "(Paris|Rome)", "days": [123]\}\}\n</tool_call>'
)
CALLING: dict[str, Any] = {"structured_outputs": {"regex": CALL}}
TURNS: list[dict[str, Any]] = [CALLING, CALLING, {}]


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("dialect", AGENTS)
async def test_a_tool_loop_extends_the_prompt_at_every_turn(proxy: StartProxy, dialect: str, stream: bool) -> None:
    running = await proxy()
    async with AGENTS[dialect](running, TASK, "s") as agent:
        for turn in TURNS:
            await agent.turn(stream=stream, temperature=0, **turn)
    records = await running.records("s")
    assert [record["is_valid"] for record in records] == [True] * len(TURNS)
    for record in records[:2]:
        said = record["messages"][-1]
        assert said["reasoning"]
        assert len(said["tool_calls"]) == 1
    for before, after in pairwise(records):
        continued = before["prompt_token_ids"] + before["generation_token_ids"]
        assert after["prompt_token_ids"][: len(continued)] == continued
