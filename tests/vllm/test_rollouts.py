"""Sessions played on a real vLLM, as rollouts: what strict mode accepts, what lineage finds, and the rows of both.

Nothing constrains the generations, so each generated position of a row has the log-prob that vLLM gives it when it
reads the row as a prompt.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import pytest
from running_proxy import RunningProxy, StartProxy

from switchyard_py.rollouts import Refusal, accept, build_lineage, read_session
from switchyard_py.rollouts.rows import Row, chain_rows

Message = dict[str, Any]
Check = Callable[[Row], Awaitable[float]]

SYSTEM = {"role": "system", "content": "You are a helper."}
WEATHER = {
    "name": "get_weather",
    "description": "Weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
}
TOOLS = [{"type": "function", "function": WEATHER}]


class Agent:
    """An agent with one history."""

    def __init__(
        self, running: RunningProxy, question: str, *, reasons: bool = True, headers: dict[str, str] | None = None
    ) -> None:
        self.messages: list[Message] = [SYSTEM, {"role": "user", "content": question}]
        self._running = running
        self._reasons = reasons
        self._headers = headers

    async def turn(self, *, keep: bool = True, **fields: Any) -> Message:
        """One call; its reply, and a result for each tool call in it, go into the history unless told otherwise."""
        asked = {"messages": self.messages, "tools": TOOLS, "temperature": 0, "max_tokens": 150, **fields}
        response = await self._running.chat(asked, "s", self._headers)
        assert response.status_code == 200, response.text
        message: Message = response.json()["choices"][0]["message"]
        said = {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key) is not None}
        if self._reasons and message.get("reasoning"):
            said["reasoning"] = message["reasoning"]
        if keep:
            self.messages.append({"content": None, **said})
            self.messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": '{"temp": 4}'}
                for call in message.get("tool_calls") or []
            ]
        return said


@pytest.fixture
def error_of(vllm: httpx.AsyncClient) -> Check:
    """`await error_of(row)`: the largest difference between a row's log-probs and vLLM's second opinion."""

    async def measure(row: Row) -> float:
        ids = row.input_ids.tolist()
        body = {"model": "tiny", "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0}
        response = await vllm.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        opinions = response.json()["choices"][0]["prompt_logprobs"]
        generated = np.flatnonzero(row.loss_mask)
        assert len(generated)
        return float(max(abs(opinions[at][str(ids[at])]["logprob"] - row.logprobs[at]) for at in generated.tolist()))

    return measure


async def _session(running: RunningProxy) -> dict[str, Any]:
    return await running.session("s", settled=5)


async def test_a_loop_that_sends_its_reasoning_back_is_one_chain(proxy: StartProxy, error_of: Check) -> None:
    running = await proxy()
    agent = Agent(running, "weather in Paris for 2 days")
    assert "tool_calls" in await agent.turn()
    await agent.turn()
    lineage = accept(read_session(await _session(running)))
    assert [chain.calls for chain in lineage.chains] == [(0, 1)]
    (row,) = chain_rows(lineage)
    assert len(row.segments) == 2
    assert await error_of(row) == 0.0


async def test_without_its_reasoning_strict_refuses_and_lineage_names_the_cause(
    proxy: StartProxy, error_of: Check
) -> None:
    running = await proxy()
    agent = Agent(running, "weather in Paris for 2 days", reasons=False)
    await agent.turn()
    await agent.turn()
    session = await _session(running)
    with pytest.raises(Refusal) as refused:
        accept(read_session(session))
    assert (refused.value.rule.value, refused.value.record) == ("R10", 1)
    lineage = build_lineage(read_session(session))
    (diagnosis,) = lineage.forest.diagnoses
    assert diagnosis.call == 1
    assert diagnosis.cause.value == "reasoning_not_resent"
    rows = list(chain_rows(lineage))
    assert len(rows) == 2
    for row in rows:
        assert await error_of(row) == 0.0


async def test_the_main_chain_is_delivered_whole_among_all_else(proxy: StartProxy, error_of: Check) -> None:
    running = await proxy()
    await running.chat(
        {"messages": [{"role": "user", "content": "a title for: weather"}], "temperature": 0, "max_tokens": 20}, "s"
    )
    agent = Agent(running, "weather in Paris for 2 days")
    await agent.turn()
    # A retry: the first reply is not the one that the history goes on with.
    await agent.turn(keep=False, temperature=1, seed=3)
    helper = Agent(running, "weather in Rome for 1 day", headers={"x-claude-code-agent-id": "helper"})
    await helper.turn()
    await agent.turn()
    await helper.turn()
    compacted = Agent(running, "weather in Rome for 3 days")
    await compacted.turn()
    await compacted.turn()

    lineage = build_lineage(read_session(await _session(running)))
    assert lineage.main.chain is not None, lineage.main
    main = lineage.chains[lineage.main.chain]
    assert main.calls == (6, 7)
    assert main.predecessor is not None
    # The retry, call 2, is collapsed: the history went on with call 1.
    assert lineage.chains[main.predecessor].calls == (1, 4)
    by_role = {chain.role.value: chain.calls for chain in lineage.chains}
    assert by_role["side"] == (0,)
    assert by_role["subagent"] == (3, 5)
    for row in chain_rows(lineage):
        assert await error_of(row) == 0.0
