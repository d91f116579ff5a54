"""Text completions of a real vLLM 0.32, each recorded twice: as an agent asked, and with capture switched on.

The agent's part is what the engine says without capture, and the record has the engine's own tokens. `tests/wire_text`
holds one exchange a file; the engine ran on a CPU with the trained tiny model. An echo is not asked for tokens: vLLM
would leave the prompt out of its text.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from switchyard_py.capture.call import Generation
from switchyard_py.config import Target
from switchyard_py.dialects.chat import ChatStream
from switchyard_py.engines.vllm import Endpoint, Prepared, StreamHarvest, harvest_reply, invalid_reasons, prepare
from switchyard_py.rawjson import decode, split_object
from switchyard_py.upstream import SSEReader

EXCHANGES = {
    path.stem: json.loads(path.read_text()) for path in (Path(__file__).parents[1] / "wire_text").glob("*.json")
}
UNTRAINABLE = {"two_choices": "more_than_one_choice", "several_prompts": "several_prompts"}
Exchange = dict[str, Any]


def prepared(request: dict[str, Any], **target: Any) -> Prepared:
    text = json.dumps(request).encode()
    settings = Target(model="tiny", base_url="http://127.0.0.1/v1", **target)
    return prepare(split_object(text), text, "tiny", settings, captured=True, endpoint=Endpoint.TEXT)


def answered(exchange: Exchange, size: int | None = None) -> tuple[bytes, Generation]:
    """What the agent gets of the captured reply, which arrives in pieces of `size` bytes, and what was generated."""
    wants = prepared(exchange["request"]).wants
    body = exchange["captured"].encode()
    if not exchange["request"].get("stream"):
        return harvest_reply(body, wants, Endpoint.TEXT)
    harvest, stream, reader = StreamHarvest(wants, Endpoint.TEXT), ChatStream(), SSEReader()
    size = size or len(body)
    live = [
        stream.live(chunk)
        for start in range(0, len(body), size)
        for event in reader.feed(body[start : start + size])
        if event.data is not None
        for chunk in harvest.feed(event.data)
    ]
    generation = harvest.end()
    return b"".join([*live, stream.tail()]), generation


def without_identity(text: str) -> str:
    return re.sub(r'"id":"cmpl-[^"]*"|"created":\d+', "", text)


@pytest.mark.parametrize("name", sorted(EXCHANGES))
def test_the_engine_is_asked_for_tokens_and_for_nothing_else(name: str) -> None:
    exchange = EXCHANGES[name]
    assert json.loads(prepared(exchange["request"]).body) == exchange["captured_request"]


@pytest.mark.parametrize("size", [None, 1, 97])
@pytest.mark.parametrize("name", sorted(EXCHANGES))
def test_the_agent_gets_what_the_engine_says_without_capture(name: str, size: int | None) -> None:
    exchange = EXCHANGES[name]
    answer, _ = answered(exchange, size)
    told, plain = (without_identity(text).split("\n") for text in (answer.decode(), exchange["plain"]))
    if "several" in name:  # their chunks come as the engine is ready with them
        told, plain = sorted(told), sorted(plain)
    assert told == plain


@pytest.mark.parametrize("name", sorted(set(EXCHANGES) - {"echo", "echo_stream"}))
def test_the_record_has_the_tokens_of_the_engine(name: str) -> None:
    exchange = EXCHANGES[name]
    _, generation = answered(exchange)
    streamed = exchange["request"].get("stream")
    lines = re.findall(r"data: (\{.*\})", exchange["captured"]) if streamed else [exchange["captured"]]
    choices = [choice for line in lines for choice in json.loads(line)["choices"] if choice["index"] == 0]
    choice = generation.choices[0]
    assert choice.token_ids == [token for each in choices for token in each["token_ids"]]
    assert choice.log_probs == [value for each in choices for value in each["logprobs"]["token_logprobs"]]
    assert decode(choice.message["content"]) == "".join(each["text"] for each in choices)
    if "several" not in name:
        assert decode(generation.prompt_ids) == choices[0]["prompt_token_ids"]
    kind = name.removesuffix("_stream")
    if kind in UNTRAINABLE:
        reasons = [*prepared(exchange["request"]).asked.flaws, *invalid_reasons(generation)]
        assert UNTRAINABLE[kind] in reasons
    else:
        assert invalid_reasons(generation) == []
        assert prepared(exchange["request"]).asked.flaws == ()


@pytest.mark.parametrize(
    ("prompt", "text"),
    [("hello", "hello"), (["hello"], "hello"), ([1, 2], ""), ([[1, 2]], ""), (["a", "b"], ""), ([[1], [2]], "")],
)
def test_a_prompt_is_one_user_message(prompt: Any, text: str) -> None:
    asked = prepared({"model": "m", "prompt": prompt}).asked
    assert decode(asked.messages) == [{"role": "user", "content": text}]
    assert asked.flaws == (("several_prompts",) if prompt in (["a", "b"], [[1], [2]]) else ())


@pytest.mark.parametrize("name", ["echo", "echo_stream"])
def test_an_echo_is_never_trained_on(name: str) -> None:
    exchange = EXCHANGES[name]
    assert prepared(exchange["request"]).asked.flaws == ("echo",)
    assert "no_generation_token_ids" in invalid_reasons(answered(exchange)[1])


def test_log_probs_the_agent_wants_are_as_many_as_it_asked_for() -> None:
    ready = prepared({"model": "m", "prompt": "x", "logprobs": 3})
    assert json.loads(ready.body)["logprobs"] == 3
    assert ready.wants.log_probs
