"""A tool loop through OpenAI Responses against a real vLLM: each prompt begins with all that went before it."""

from itertools import pairwise
from typing import Any

import pytest
from openai_responses import Event, assembled, read_events, read_response
from running_proxy import ROUTE, StartProxy

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
}
# Thinking stays free; what follows it is a call. The engine's own parameters go through Responses as they are.
CALL = (
    r'\n\n<tool_call>\n\{"name": "get_weather", "arguments": \{"city": "(Paris|Rome)", "days": [123]\}\}\n</tool_call>'
)
CALLING: dict[str, Any] = {"structured_outputs": {"regex": CALL}}
TURNS: list[dict[str, Any]] = [CALLING, CALLING, {}]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_extends_the_prompt_at_every_turn(proxy: StartProxy, stream: bool) -> None:
    running = await proxy()
    conversation: list[Event] = [{"role": "user", "content": "weather in Paris for 2 days"}]
    outputs = []
    for turn in TURNS:
        body = {
            "model": ROUTE,
            "input": conversation,
            "instructions": "You are a helper.",
            "tools": [WEATHER],
            "include": ["reasoning.encrypted_content"],
            "temperature": 0,
            "max_output_tokens": 150,
            "stream": stream,
            **turn,
        }
        response = await running.client.post("/v1/responses", json=body, headers={"proxy_x_session_id": "s"})
        assert response.status_code == 200, response.text
        reply = assembled(read_events(response.content)) if stream else read_response(response.content)
        assert reply["status"] == "completed"
        outputs.append([item["type"] for item in reply["output"]])
        calls = [item["call_id"] for item in reply["output"] if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": each, "output": '{"c": 21}'} for each in calls]
        conversation += [*reply["output"], *results]
    assert outputs[:2] == [["reasoning", "function_call"]] * 2
    records = await running.records("s")
    assert [record["is_valid"] for record in records] == [True] * len(TURNS)
    for before, after in pairwise(records):
        continued = before["prompt_token_ids"] + before["generation_token_ids"]
        assert after["prompt_token_ids"][: len(continued)] == continued
