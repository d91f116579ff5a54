"""The last step of a run: captured tokens in the result, or the result masked with the reason, never an error."""

import json
import shlex
import tomllib
from typing import Any

import httpx
import orjson
import pytest
import yaml
from pydantic import TypeAdapter, ValidationError
from rollout_records import SESSION, Record, call, envelope
from running_proxy import RunningProxy, StartProxy
from scripted_engine import ScriptedEngine, Turn, chat, refused_port

import switchyard_py.gym as kit
from switchyard_py.gym import (
    CapturedRun,
    ProxyAddress,
    SessionIncomplete,
    TraceOptions,
    agent_config,
    agent_toml,
    captured_rollouts,
    captured_run,
    proxy_address,
    traced_results,
)
from switchyard_py.rollouts import NothingToTrain, Refusal

LINEAGE = TraceOptions(mode="lineage")
BASH = {"type": "function", "function": {"name": "bash", "description": "run", "parameters": {"type": "object"}}}
FIRST = Turn(reasoning="look", tool_calls=[("bash", {"c": "ls"})], prompt_token_ids=(10, 11))
SECOND = Turn(text="one file", prompt_token_ids=(10, 11, *FIRST.token_ids, 12))
RESULT: dict[str, Any] = {
    "responses_create_params": {"input": [], "tools": [], "temperature": 1.0},
    "response": {"id": "r", "output": [{"type": "message", "own": True}], "metadata": None, "tool_choice": "auto"},
    "reward": 1.0,
    "resolved": True,
    "model_patch": "diff",
    "instance_config": {"instance_id": "x", "mask_sample": False},
}
USER: Record = {"role": "user", "content": "fix it"}
DONE: Record = {"role": "assistant", "content": "done"}


class Agent:
    """An agent that knows only what its container is told: a TOML and a configuration, as OpenHands reads them."""

    def __init__(self, toml: str, config: str) -> None:
        model = tomllib.loads(toml)["llm"]["model"]
        server = yaml.safe_load(shlex.split(config)[0])["policy_model"]["responses_api_models"]["vllm_model"]
        self._url = f"http://{server['host']}:{server['port']}/v1/chat/completions"
        self._fields = {"model": model["model"], **model["completion_kwargs"], "seed": None, "tools": [BASH]}
        self._messages: list[dict[str, Any]] = [{"role": "user", "content": "list files"}]

    async def run(self) -> None:
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            while True:
                body = {"messages": self._messages, **self._fields}
                reply = (await client.post(self._url, json=body)).raise_for_status().json()
                message = {key: value for key, value in reply["choices"][0]["message"].items() if value is not None}
                self._messages.append(message)
                if "tool_calls" not in message:
                    return
                answers = [
                    {"role": "tool", "tool_call_id": each["id"], "name": "bash", "content": "a.txt"}
                    for each in message["tool_calls"]
                ]
                self._messages += answers


@pytest.fixture
async def running(proxy: StartProxy) -> RunningProxy:
    return await proxy()


def run_through(running: RunningProxy) -> CapturedRun:
    address = proxy_address(running.url + "/")
    run = captured_run(address, route="policy_model", agent_framework="openhands", verify_golden_patch=False)
    assert run is not None
    return run


def agent(run: CapturedRun) -> Agent:
    toml = agent_toml("[llm.model]\napi_key = 'EMPTY'\n", run)
    config = yaml.safe_dump({"policy_model": {"responses_api_models": {"vllm_model": {"host": "x", "port": 1}}}})
    return Agent(toml, shlex.quote(agent_config(config, run)))


async def test_a_run_comes_back_with_the_tokens_the_engine_used(engine: ScriptedEngine, running: RunningProxy) -> None:
    run = run_through(running)
    engine.reply(chat(FIRST), chat(SECOND))
    await agent(run).run()
    [result] = await traced_results(RESULT, run)
    output = result["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call", "function_call_output", "message"]
    for item, turn in ((output[1], FIRST), (output[3], SECOND)):
        assert item["prompt_token_ids"] == list(turn.prompt_token_ids)
        assert item["generation_token_ids"] == turn.token_ids
        assert item["generation_log_probs"] == turn.logprobs
    uuids = [record["uuid"] for record in await running.records(run.session_id)]
    metadata = {
        "switchyard_source": "switchyard",
        "switchyard_session_id": run.session_id,
        "switchyard_record_uuids": json.dumps(uuids),
        "switchyard_model": "actual-model",
    }
    function = BASH["function"]
    assert isinstance(function, dict)
    assert result == RESULT | {
        "responses_create_params": {
            "input": [{"type": "message", "role": "user", "content": "list files"}],
            "tools": [{"type": "function", **function, "strict": None}],
            "temperature": 1.0,
        },
        "response": RESULT["response"] | {"output": output, "metadata": metadata},
    }


async def test_a_run_with_an_invalid_record_is_masked(engine: ScriptedEngine, running: RunningProxy) -> None:
    run = run_through(running)
    engine.reply(chat(FIRST), chat(Turn(text="cut", finish_reason="abort", prompt_token_ids=SECOND.prompt_token_ids)))
    await agent(run).run()
    [result] = await traced_results(RESULT, run)
    assert_masked(result, run, "Refusal: R3 record 1")
    assert "aborted" in result["switchyard_trace_error"]


async def test_a_run_without_calls_is_masked(running: RunningProxy) -> None:
    run = run_through(running)
    for options in (TraceOptions(), LINEAGE):
        [result] = await traced_results(RESULT, run, options)
        assert_masked(result, run, "RetrievalFailed: GET ")
        assert "unknown session" in result["switchyard_trace_error"]


async def test_a_proxy_that_is_away_masks(running: RunningProxy) -> None:
    with refused_port() as port:
        run = CapturedRun(ProxyAddress("127.0.0.1", port), "policy_model", SESSION)
        [result] = await traced_results(RESULT, run, TraceOptions(deadline=0.2))
    assert_masked(result, run, "RetrievalFailed: ")


async def test_without_a_run_through_the_proxy_nothing_is_fetched() -> None:
    [result] = await traced_results(RESULT, None)
    assert result is RESULT


async def test_calls_that_do_not_end_mask(engine: ScriptedEngine, running: RunningProxy) -> None:
    run = run_through(running)
    engine.reply(chat(SECOND), chat(SECOND, stepped=True))
    await running.chat({}, session=run.session_id)
    async with running.chat_stream({"stream": True}, session=run.session_id):
        [result] = await traced_results(RESULT, run, TraceOptions(settle=0.1))
    assert_masked(result, run, "SessionIncomplete: calls that have not ended: 1")


def assert_masked(result: dict[str, Any], run: CapturedRun, error: str) -> None:
    """Everything of the agent's own result is there, and no more than the mask and the reason."""
    assert result["switchyard_trace_error"].startswith(f"session {run.session_id}: {error}")
    expected = RESULT | {"instance_config": {"instance_id": "x", "mask_sample": True}, "mask_sample": True}
    assert result == expected | {"switchyard_trace_error": result["switchyard_trace_error"]}


def turn(messages: list[Record], prompt: list[int], generation: list[int], **fields: Any) -> Record:
    return call(messages, prompt, generation, [-1.0] * len(generation), **fields)


TITLE = turn([USER, {"role": "assistant", "content": "a title"}], [9], [8], tools=[])
ONE = turn([USER, DONE], [1], [2])
RETRY = turn([USER, DONE], [1], [3])
TWO = turn([USER, DONE, USER, DONE], [1, 2, 4], [5])
OTHER = turn([USER, DONE, USER, DONE], [1, 2, 6], [7])


def rollouts(records: list[Record], options: TraceOptions, **fields: Any) -> list[list[list[int]]]:
    """The prompt and generation ids of each rollout of a session."""
    body = orjson.dumps(envelope(records) | fields)
    return [
        [item["prompt_token_ids"] + item["generation_token_ids"] for item in made.output if "prompt_token_ids" in item]
        for made in captured_rollouts(body, SESSION, options)
    ]


def test_lineage_mode_delivers_the_main_chain_where_strict_mode_refuses() -> None:
    session = [TITLE, ONE, RETRY, TWO]
    with pytest.raises(Refusal):
        rollouts(session, TraceOptions())
    assert rollouts(session, LINEAGE) == [[[1, 2], [1, 2, 4, 5]]]


def test_lineage_mode_can_deliver_every_chain() -> None:
    every = TraceOptions(mode="lineage", chains="all")
    assert rollouts([TITLE, ONE, TWO, OTHER], every) == [[[1, 2], [1, 2, 6, 7]], [[9, 8]], [[1, 2, 4, 5]]]
    assert rollouts([ONE, TWO], every) == rollouts([ONE, TWO], LINEAGE) == rollouts([ONE, TWO], TraceOptions())


def test_lineage_mode_says_why_there_is_nothing() -> None:
    with pytest.raises(NothingToTrain, match="constrained"):
        rollouts([ONE | {"call": {"constrained": True}}], LINEAGE)


@pytest.mark.parametrize("options", [TraceOptions(), LINEAGE])
@pytest.mark.parametrize(
    ("accounting", "reason"), [({"open": 2}, "have not ended: 2"), ({"valid": 3}, "can be read: 2")]
)
def test_a_session_that_is_not_whole_is_refused(options: TraceOptions, accounting: Any, reason: str) -> None:
    with pytest.raises(SessionIncomplete, match=reason):
        rollouts([ONE], options, accounting=accounting)


@pytest.mark.parametrize("options", [TraceOptions(), LINEAGE])
@pytest.mark.parametrize(
    ("body", "rule"),
    [(b"[]", "E1"), (b"{", "E1"), (b'{"schema_version": 1, "session_id": "other", "completions": []}', "E3")],
)
def test_what_is_no_session_is_refused(options: TraceOptions, body: bytes, rule: str) -> None:
    with pytest.raises(Refusal) as refused:
        captured_rollouts(body, SESSION, options)
    assert refused.value.rule == rule


def test_items_as_the_original_makes_them() -> None:
    thinking = turn([USER, {"role": "assistant", "content": "x", "reasoning": "hm"}], [1], [2])
    body = orjson.dumps(envelope([thinking]))
    for options, kinds in ((TraceOptions(), ["reasoning", "message"]), (TraceOptions(as_original=True), ["message"])):
        [made] = captured_rollouts(body, SESSION, options)
        assert [item["type"] for item in made.output] == kinds


@pytest.mark.parametrize(("name", "value"), [("mode", "lax"), ("chains", "best"), ("mode", True)])
def test_other_options_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value!r}: write "):
        TraceOptions(**{name: value})


def test_options_are_read_from_settings() -> None:
    read: TypeAdapter[TraceOptions] = TypeAdapter(TraceOptions)
    assert read.validate_python({}) == TraceOptions()
    assert read.validate_python({"mode": "lineage", "deadline": 5}) == TraceOptions(mode="lineage", deadline=5.0)
    for wrong in ({"mode": "lax"}, {"deadline": "soon"}):
        with pytest.raises(ValidationError):
            read.validate_python(wrong)


async def test_the_key_comes_from_the_environment(
    engine: ScriptedEngine, proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await proxy(auth={"reader_keys": ["reader-key"]})
    run = run_through(running)
    engine.reply(chat(SECOND))
    await running.chat({}, session=run.session_id)
    options = TraceOptions(api_key_env="READER_KEY")
    [result] = await traced_results(RESULT, run, options)
    assert_masked(result, run, "RetrievalFailed: the environment variable READER_KEY, named by api_key_env, is not set")
    monkeypatch.setenv("READER_KEY", "wrong-key")
    [result] = await traced_results(RESULT, run, options)
    assert_masked(result, run, "RetrievalFailed: GET ")
    assert "wrong-key" not in str(result)
    monkeypatch.setenv("READER_KEY", "reader-key\n")
    [result] = await traced_results(RESULT, run, options)
    assert "switchyard_trace_error" not in result
    assert "reader-key" not in str(result)


def test_the_public_face() -> None:
    assert kit.__all__ == sorted(kit.__all__, key=lambda name: (not name[0].isupper(), name))
    assert all(hasattr(kit, name) for name in kit.__all__)
