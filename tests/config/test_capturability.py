"""Body settings that would end capture are refused where an engine is declared, and only there."""

from typing import Any

import pytest

from switchyard_py.config import ConfigError

BUNDLE = "routes: {{p: {{target: {{model: m, base_url: 'http://h', token_capture_engine: {engine}, {settings}}}}}}}"

ENDING = [
    ("logprobs: false", "logprobs", "write true or remove the key"),
    ("logprobs: null", "logprobs", "write true or remove the key"),
    ("logprobs: 1", "logprobs", "write true or remove the key"),
    ("return_token_ids: false", "return_token_ids", "write true or remove the key"),
    ("include_reasoning: false", "include_reasoning", "write true or remove the key"),
    ("top_logprobs: null", "top_logprobs", "write a whole number from 0"),
    ("top_logprobs: -1", "top_logprobs", "write a whole number from 0"),
    ("top_logprobs: true", "top_logprobs", "write a whole number from 0"),
    ("top_logprobs: 1.0", "top_logprobs", "write a whole number from 0"),
    ("stream_options: {}", "stream_options", "write {include_usage: true}"),
    ("stream_options: {include_usage: false}", "stream_options", "write {include_usage: true}"),
    ("stream_options: null", "stream_options", "write {include_usage: true}"),
    ("stream: true", "stream", "remove the key"),
    ("n: 1", "n", "remove the key"),
    ("messages: []", "messages", "remove the key"),
    ("model: m", "model", "remove the key"),
]


@pytest.mark.parametrize("setting", ["extra_body", "force_body"])
@pytest.mark.parametrize(("entry", "key", "advice"), ENDING)
def test_a_sent_key_that_ends_capture(load: Any, setting: str, entry: str, key: str, advice: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(BUNDLE.format(engine="vllm", settings=f"{setting}: {{temperature: 1, {entry}}}"))
    message = str(caught.value)
    assert f"routes.p.target.{setting}.{key}: would end token capture: " in message
    assert advice in message
    load(BUNDLE.format(engine="null", settings=f"{setting}: {{{entry}}}"))


@pytest.mark.parametrize(
    "key", ["logprobs", "return_token_ids", "top_logprobs", "stream_options", "messages", "model", "stream"]
)
def test_a_dropped_key_that_ends_capture(load: Any, key: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"routes\.p\.target\.drop_body\.{key}: would end token capture: .*remove it"
    ):
        load(BUNDLE.format(engine="vllm", settings=f"drop_body: [seed, {key}]"))
    load(BUNDLE.format(engine="null", settings=f"drop_body: [{key}]"))


@pytest.mark.parametrize(
    "settings",
    [
        "extra_body: {logprobs: true, return_token_ids: true, top_logprobs: 5, include_reasoning: true}",
        "force_body: {stream_options: {include_usage: true, continuous_usage_stats: true}}",
        "extra_body: {temperature: 1, chat_template_kwargs: {enable_thinking: false}}",
        "drop_body: [n, include_reasoning, seed]",
        "extra_body: {temperature: 1}, force_body: {temperature: 2}",
    ],
)
def test_settings_that_capture_survives(load: Any, settings: str) -> None:
    load(BUNDLE.format(engine="vllm", settings=settings))


@pytest.mark.parametrize("engine", ["vllm", "null"])
@pytest.mark.parametrize("setting", ["extra_body", "force_body"])
def test_a_key_is_not_both_sent_and_dropped(load: Any, engine: str, setting: str) -> None:
    with pytest.raises(ConfigError, match=rf"drop_body\.seed: is dropped here and sent by {setting}: give it in one"):
        load(BUNDLE.format(engine=engine, settings=f"{setting}: {{seed: 1}}, drop_body: [seed]"))


def test_the_level_that_holds_the_key_is_named(load: Any) -> None:
    text = "routes: {p: {token_capture_engine: vllm, model: m, base_url: 'http://h'}}"
    with pytest.raises(ConfigError, match=r": defaults\.extra_body\.logprobs: would end"):
        load("defaults: {extra_body: {logprobs: false}}\n" + text)
