import json
from typing import Any

import pytest

from switchyard_py.simulator.tokenizer import encode


async def complete(client: Any, **fields: Any) -> dict[str, Any]:
    reply = await client.post("/v1/completions", json=fields)
    assert reply.status_code == 200, reply.text
    whole: dict[str, Any] = reply.json()
    return whole


async def test_a_stream_says_what_the_reply_says(running: Any) -> None:
    fields: dict[str, Any] = {
        "prompt": ["one", "two"],
        "n": 2,
        "max_tokens": 9,
        "logprobs": 1,
        "return_token_ids": True,
    }
    async with running() as client:
        reply = await complete(client, **fields, echo=True)
        text = (await client.post("/v1/completions", json={**fields, "stream": True, "echo": True})).text
    parts = [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-2]]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
    for choice in reply["choices"]:
        mine = [part["choices"][0] for part in parts if part["choices"][0]["index"] == choice["index"]]
        assert "".join(part["text"] for part in mine) == choice["text"]
        assert [token for part in mine for token in part["token_ids"]] == choice["token_ids"]
        for key, values in choice["logprobs"].items():
            assert [value for part in mine for value in part["logprobs"][key]] == values
        assert mine[0]["prompt_token_ids"] == choice["prompt_token_ids"] == encode(["one", "two"][choice["index"] // 2])


@pytest.mark.parametrize("usage", [False, True])
async def test_the_fingerprint_stands_on_the_last_chunk(running: Any, usage: bool) -> None:
    fields: dict[str, Any] = {"prompt": "one", "stream": True, "stream_options": {"include_usage": usage}}
    async with running() as client:
        text = (await client.post("/v1/completions", json=fields)).text
    chunks = [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-2]]
    assert ["system_fingerprint" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_echo_repeats_a_text_prompt(running: Any) -> None:
    async with running(replies=[{"raw": "x"}, {"raw": "x"}]) as client:
        echoed = await complete(client, prompt="né", logprobs=0, echo=True)
        silent = await complete(client, prompt="né")
    assert echoed["choices"][0]["text"] == "néx"
    assert echoed["choices"][0]["logprobs"]["tokens"] == ["n", "", "é", "x", "<|im_end|>"]
    assert echoed["choices"][0]["logprobs"]["text_offset"] == [0, 1, 1, 2, 3]
    assert echoed["choices"][0]["logprobs"]["token_logprobs"][0] is None
    assert silent["choices"][0]["text"] == "x"
    assert silent["choices"][0]["logprobs"] is None


async def test_control_tokens_are_left_out_of_the_text(running: Any) -> None:
    async with running(replies=[{"raw": "<think>a<|im_start|>b"}]) as client:
        reply = await complete(client, prompt="x", max_tokens=50)
    assert reply["choices"][0]["text"] == "<think>ab"


async def test_a_stop_string_ends_the_text_and_not_the_ids(running: Any) -> None:
    async with running(replies=[{"raw": "one two three"}]) as client:
        reply = await complete(client, prompt="x", stop="two", return_token_ids=True)
    choice = reply["choices"][0]
    assert choice["text"] == "one "
    assert choice["token_ids"] == encode("one two")
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "two")


async def test_an_empty_prompt_is_refused(running: Any) -> None:
    async with running() as client:
        prompts: list[Any] = [[], "", [[]], [""]]
        for prompt in prompts:
            assert (await client.post("/v1/completions", json={"prompt": prompt})).status_code == 400
