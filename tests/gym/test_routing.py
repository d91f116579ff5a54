"""How a run of an agent is pointed at the proxy, and that nothing else of its texts changes."""

import re
import shlex
import tomllib
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from switchyard_py.gym.address import proxy_address
from switchyard_py.gym.routing import CapturedRun, RoutingRefused, agent_config, agent_toml, captured_run

ADDRESS = proxy_address("http://10.0.0.5:4000")
RUN = CapturedRun(ADDRESS, route="policy_model", session_id="0123456789abcdef0123456789abcdef")

# As NeMo Gym ships it, without a newline at its end.
OPENHANDS_TOML = """\
[llm.model]
# model, base_url, temperature and top_p are set for each run.
api_key = "EMPTY"  # pragma: allowlist secret
custom_llm_provider = "openai"
native_tool_calling = true"""

CONFIG = """\
# written by the head server
policy_model:
  responses_api_models:
    vllm_model:
      entrypoint: app.py
      host: 127.0.0.1
      port: 14035   # found free
      base_url: ${policy_base_url}
judge_model:
  responses_api_models:
    vllm_model:
      host: 127.0.0.1
      port: 14035
ratio: 1e-5
day: 2026-01-02
flags: [yes, 0x1F, 1_000]
missing: ???
"""


def options(**fields: Any) -> dict[str, Any]:
    return {"route": "policy_model", "agent_framework": "openhands", "verify_golden_patch": False} | fields


def test_every_run_has_a_session_of_its_own() -> None:
    runs = [captured_run(ADDRESS, **options()) for _ in range(3)]
    ids = [run.session_id for run in runs if run]
    assert len(set(ids)) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", session_id) for session_id in ids)
    assert all(run and (run.address, run.route) == (ADDRESS, "policy_model") for run in runs)


@pytest.mark.parametrize(
    ("address", "fields"),
    [
        (None, {}),
        (ADDRESS, {"agent_framework": "opencode"}),
        (ADDRESS, {"agent_framework": "swe_agent"}),
        (ADDRESS, {"verify_golden_patch": True}),
    ],
)
def test_there_is_no_session_without_calls_through_the_proxy(address: Any, fields: dict[str, Any]) -> None:
    assert captured_run(address, **options(**fields)) is None


def test_without_the_proxy_the_texts_stay_as_they_are() -> None:
    for text in (OPENHANDS_TOML, "", "not [ TOML", "a: [", "\r\n"):
        assert agent_toml(text, None) == text
        assert agent_config(text, None) == text


@pytest.mark.parametrize(
    "text",
    [
        OPENHANDS_TOML,
        OPENHANDS_TOML + "\n",
        "# top\n[core]\nw = 'x'\n\n[llm.model]\nmodel = 'other'\ncompletion_kwargs = {seed = 1}\n\n[agent]\na = 1\n",
        "[llm.model]\nmodel = 'a'\n\n[llm.model.completion_kwargs]\nproxy_x_session_id = 'old'\n[core]\nb = 2\n",
        "[llm]\nmodel = {temperature = 1.0}\n",
        "llm.model.temperature = 1.0\n",
        "[llm.model]\n[llm.model.other]\na = 1\n[llm.draft]\nmodel = 'd'\n",
    ],
)
def test_the_toml_names_route_and_session_and_keeps_the_rest(text: str) -> None:
    expected = tomllib.loads(text)
    expected["llm"]["model"]["model"] = "policy_model"
    expected["llm"]["model"].setdefault("completion_kwargs", {})["proxy_x_session_id"] = RUN.session_id
    routed = agent_toml(text, RUN)
    assert tomllib.loads(routed) == expected
    assert all(line in routed for line in text.splitlines() if line.startswith("#"))


def test_comments_and_order_of_the_toml_stay() -> None:
    assert agent_toml(OPENHANDS_TOML, RUN).startswith(OPENHANDS_TOML)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not [ TOML", "cannot be read"),
        ("[core]\na = 1\n", r"no table \[llm\]"),
        ("[llm]\nmodel = 'name'\n", r"no table \[llm.model\]"),
        ("[llm.draft]\nmodel = 'name'\n", r"no table \[llm.model\]"),
        ("[llm.model]\ncompletion_kwargs = 'x'\n", r"no table \[llm.model.completion_kwargs\]"),
    ],
)
def test_a_toml_without_the_model_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RoutingRefused, match=reason):
        agent_toml(text, RUN)


def test_the_model_server_is_the_proxy_and_the_rest_keeps_its_text() -> None:
    routed = agent_config(CONFIG, RUN)
    assert routed == CONFIG.replace("host: 127.0.0.1", 'host: "10.0.0.5"', 1).replace("port: 14035", "port: 4000", 1)
    server = yaml.safe_load(routed)["policy_model"]["responses_api_models"]["vllm_model"]
    assert (server["host"], server["port"]) == ("10.0.0.5", 4000)
    assert shlex.split(shlex.quote(routed)) == [routed]


@pytest.mark.parametrize(
    ("text", "routed"),
    [
        (
            "{policy_model: {m: {v: {port: 1, host: a}}}, b: {m: {v: {port: 1, host: a}}}}",
            '{policy_model: {m: {v: {port: 4000, host: "10.0.0.5"}}}, b: {m: {v: {port: 1, host: a}}}}',
        ),
        (
            "policy_model:\n  m:\n    v:\n      host: ${default_host}\n      port: '1'\n    w: {host: a, port: 1}\n",
            'policy_model:\n  m:\n    v:\n      host: "10.0.0.5"\n      port: 4000\n    w: {host: a, port: 1}\n',
        ),
        (
            'é: "ü😀"\npolicy_model:\n  m:\n    v:\n      host:\n      port: 1\n',
            'é: "ü😀"\npolicy_model:\n  m:\n    v:\n      host: "10.0.0.5"\n      port: 4000\n',
        ),
        (
            "policy_model: {m: {v: {host: a, port: 1}}}\npolicy_model: {m: {v: {port: 1, host: a, port: 2}}}\n",
            "policy_model: {m: {v: {host: a, port: 1}}}\n"
            'policy_model: {m: {v: {port: 1, host: "10.0.0.5", port: 4000}}}\n',
        ),
    ],
)
def test_any_spelling_of_the_server_is_found(text: str, routed: str) -> None:
    assert agent_config(text, RUN) == routed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: b\nkey: sk-123 [: {", "is no YAML at line 2, column 14$"),
        ("a: \x00", "is no YAML$"),
        ("", "no model server policy_model"),
        ("- a\n", "no model server policy_model"),
        ("other: {m: {v: {host: a, port: 1}}}\n", "no model server policy_model"),
        ("policy_model: {}\n", "no model server policy_model"),
        ("policy_model: {m: {v: 3}}\n", "no model server policy_model"),
        ("policy_model: {m: {v: {host: a}}}\n", "no port of its own"),
        ("policy_model: {m: {v: {port: 1}}}\n", "no host of its own"),
        ("policy_model: {m: {v: {host: [a], port: 1}}}\n", "no host of its own"),
        ("a: &h b\npolicy_model: {m: {v: {host: *h, port: 1}}}\n", "no host of its own"),
        ("policy_model: {m: {v: {host: &h b, port: 1}}}\na: *h\n", "no host of its own"),
        ("policy_model:\n  m:\n    v:\n      host: |-\n        a\n      port: 1\n", "no host of its own"),
        ("policy_model:\n  m:\n    v:\n      host: a\n      port: >\n        1\n      x: 2\n", "no port of its own"),
    ],
)
def test_a_configuration_that_cannot_be_routed_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RoutingRefused, match=reason):
        agent_config(text, RUN)


def test_a_run_survives_the_settings_of_an_agent_server() -> None:
    kept: TypeAdapter[CapturedRun | None] = TypeAdapter(CapturedRun | None)
    for run in (RUN, None):
        assert kept.validate_json(kept.dump_json(run)) == run
