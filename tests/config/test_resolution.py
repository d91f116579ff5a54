"""From the levels of the file to one target per route."""

import re
from typing import Any

import pytest

from switchyard_py.config import ConfigError


def refusal(load: Any, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, environ)
    return str(caught.value).partition("bundle.yaml: ")[2]


MINIMAL = "routes: {p: {target: {model: m, base_url: 'http://h:8000/v1'}}}"


def test_built_in_defaults(load: Any) -> None:
    bundle = load(MINIMAL)
    (route,) = bundle.routes
    assert (route.name, route.type, route.aliases, route.default) == ("p", "model", (), False)
    assert (route.display_name, route.description) == ("p", None)
    target = route.target
    assert (target.id, target.model, target.base_url, target.api_key) == ("m@h:8000", "m", "http://h:8000/v1", None)
    assert (target.format, target.engine, target.extra_body, target.extra_headers) == ("openai", None, {}, {})
    assert (target.connect_timeout, target.first_byte_timeout, target.idle_timeout, target.total_timeout) == (
        10,
        None,
        None,
        None,
    )
    assert (target.retries, target.retry_budget, target.on_context_overflow) == (0, 60, "error")
    assert (target.stream_whitespace, target.early_headers_after) == ("drop", 15)
    assert bundle.default_route is route
    assert (bundle.capture.log_dir, bundle.capture.durability) == (None, "process")
    assert (bundle.sessions.required, bundle.sessions.native_ids) == (False, None)
    server = bundle.server
    assert (server.host, server.port, server.workers, server.log_level) == ("0.0.0.0", 4000, 1, "info")
    assert server.max_body_bytes == 128 * 1024 * 1024


LEVELS = {
    "defaults": "defaults: {{{0}}}\nroutes: {{p: {{target: {{model: m, base_url: 'http://h'}}}}}}",
    "route.defaults": "routes: {{p: {{defaults: {{{0}}}, target: {{model: m, base_url: 'http://h'}}}}}}",
    "route": "routes: {{p: {{{0}, target: {{model: m, base_url: 'http://h'}}}}}}",
    "target": "routes: {{p: {{target: {{model: m, base_url: 'http://h', {0}}}}}}}",
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("api_key: k", "api_key", "k"),
        ("api_key: ''", "api_key", None),
        ("api_key_env: KEY", "api_key", "from-environment"),
        ("format: auto", "format", "openai"),
        ("backend_format: openai", "format", "openai"),
        ("token_capture_engine: vllm", "engine", "vllm"),
        ("token_capture_engine: null", "engine", None),
        ("timeout: 5", "total_timeout", 5.0),
        ("timeout_secs: '5'", "total_timeout", 5.0),
        ("total_timeout: '${FIVE}'", "total_timeout", 5.0),
        ("connect_timeout: 0.5", "connect_timeout", 0.5),
        ("first_byte_timeout: 6", "first_byte_timeout", 6.0),
        ("idle_timeout: 7", "idle_timeout", 7.0),
        ("extra_body: {a: {b: [1]}}", "extra_body", {"a": {"b": [1]}}),
        ("extra_body: null", "extra_body", {}),
        ("force_body: {a: null}", "force_body", {"a": None}),
        ("drop_body: [seed, user]", "drop_body", ("seed", "user")),
        ("max_tokens_cap: 9", "max_tokens_cap", 9),
        ("extra_headers: {authorization: Basic x}", "extra_headers", {"authorization": "Basic x"}),
        ("retries: 0", "retries", 0),
        ("retries: 3", "retries", 3),
        ("retry_budget: 0.5", "retry_budget", 0.5),
        ("on_context_overflow: empty_length", "on_context_overflow", "empty_length"),
        ("stream_whitespace: as_engine", "stream_whitespace", "as_engine"),
        ("early_headers_after: 0", "early_headers_after", 0.0),
    ],
)
def test_every_level_takes_every_setting(load: Any, level: str, text: str, name: str, value: Any) -> None:
    bundle = load(LEVELS[level].format(text), {"KEY": "from-environment", "FIVE": "5"})
    assert getattr(bundle.routes[0].target, name) == value


def test_higher_levels_win_whole(load: Any) -> None:
    target = (
        load("""
        defaults: {api_key: d, timeout: 1, idle_timeout: 1, connect_timeout: 1, base_url: http://d,
                   extra_body: {a: 1, b: 1}, token_capture_engine: vllm}
        routes:
          p:
            defaults: {api_key: rd, timeout_secs: 2, idle_timeout: 2, base_url: http://rd}
            api_key: r
            total_timeout: 3
            extra_body: {c: 3}
            target: {model: m, api_key: t}
        """)
        .routes[0]
        .target
    )
    assert (target.api_key, target.total_timeout, target.idle_timeout, target.connect_timeout) == ("t", 3, 2, 1)
    assert (target.base_url, target.extra_body, target.engine) == ("http://rd", {"c": 3}, "vllm")


def test_null_turns_a_lower_level_off(load: Any) -> None:
    settings = "api_key: null, token_capture_engine: null, timeout: null, max_tokens_cap: null, extra_body: null"
    target = (
        load(f"""
        defaults: {{api_key: k, token_capture_engine: vllm, timeout: 5, max_tokens_cap: 9, extra_body: {{a: 1}}}}
        routes: {{p: {{model: m, base_url: 'http://h', {settings}}}}}
        """)
        .routes[0]
        .target
    )
    assert (target.api_key, target.engine, target.total_timeout, target.max_tokens_cap) == (None, None, None, None)
    assert target.extra_body == {}


def test_no_key_of_the_environment_is_sent_unasked(load: Any) -> None:
    assert load(MINIMAL, {"OPENAI_API_KEY": "not-for-you"}).routes[0].target.api_key is None


@pytest.mark.parametrize("environ", [{}, {"KEY": ""}])
def test_a_key_that_is_not_in_the_environment(load: Any, environ: dict[str, str]) -> None:
    text = "defaults: {api_key_env: KEY}\n" + MINIMAL
    assert refusal(load, text, environ) == "defaults.api_key_env: the environment variable KEY is not set"


@pytest.mark.parametrize(
    "text",
    [
        "{target: {model: m, base_url: 'http://h'}}",
        "{target: m, base_url: 'http://h'}",
        "{model: m, base_url: 'http://h'}",
        "{type: model, model: m, base_url: 'http://h'}",
        "{kind: Direct, model: m, base_url: 'http://h'}",
        "{type: llm-target, model: m, base_url: 'http://h'}",
        "{type: TARGET, model: m, base_url: 'http://h'}",
        "{model: other, target: {model: m, base_url: 'http://h'}}",
    ],
)
def test_ways_to_write_a_model_route(load: Any, text: str) -> None:
    (route,) = load(f"routes: {{p: {text}}}").routes
    assert (route.type, route.target.model) == ("model", "m")


def test_a_bare_model_is_a_route_when_defaults_complete_it(load: Any) -> None:
    (route,) = load("defaults: {base_url: 'http://h'}\nroutes: {p: m}").routes
    assert (route.type, route.target.model, route.target.base_url) == ("model", "m", "http://h")


def test_a_passthrough_route_needs_no_model(load: Any) -> None:
    any_model, one_model = load(
        "defaults: {base_url: 'http://h'}\nroutes: {p: {type: passthrough}, q: {type: passthrough, model: m}}"
    ).routes
    assert (any_model.type, any_model.target.model, any_model.target.id) == ("passthrough", "", "*@h")
    assert (one_model.type, one_model.target.model) == ("passthrough", "m")


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("http://h:8000/v1", "http://h:8000/v1"),
        ("http://h:8000/v1/", "http://h:8000/v1"),
        ("http://h:8000/v1//", "http://h:8000/v1"),
        ("https://h/v1/chat/completions", "https://h/v1"),
        ("https://h/v1/chat/completions/", "https://h/v1"),
        ("https://h/v1/responses", "https://h/v1"),
        ("https://h/chat", "https://h/chat"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://u:p@h/v1", "http://u:p@h/v1"),
        ("http://h", "http://h"),
    ],
)
def test_base_urls_are_trimmed(load: Any, written: str, kept: str) -> None:
    bundle = load(f"routes: {{p: {{model: m, base_url: '{written}'}}}}")
    assert bundle.routes[0].target.base_url == kept


@pytest.mark.parametrize(
    "route",
    [
        "{token_capture_engine: vllm, target: {model: m, base_url: 'http://h'}}",
        "{target: {model: m, base_url: 'http://h', token_capture_engine: vllm}}",
        "{token_capture_engine: vllm, target: {model: m, base_url: 'http://h', token_capture_engine: vllm}}",
    ],
)
def test_the_engine_stands_beside_or_inside_the_target(load: Any, route: str) -> None:
    bundle = load(f"routes: {{p: {route}, q: {{model: m, base_url: 'http://h'}}}}")
    assert [route.name for route in bundle.captured_routes] == ["p"]


def test_engines_that_contradict_each_other_are_refused(load: Any) -> None:
    text = "{token_capture_engine: vllm, target: {model: m, base_url: 'http://h', token_capture_engine: null}}"
    assert refusal(load, f"routes: {{p: {text}}}").startswith(
        "routes.p.target.token_capture_engine: contradicts token_capture_engine beside target"
    )


TWO = "routes: {{p: {{model: m, base_url: 'http://h', {}}}, q: {{model: n, base_url: 'http://h', {}}}}}"


def test_the_default_route(load: Any) -> None:
    assert load(TWO.format("aliases: [a]", "aliases: [b]")).default_route.name == "p"
    assert load(TWO.format("default: false", "default: true")).default_route.name == "q"
    assert refusal(load, TWO.format("default: true", "default: true")) == (
        "routes.q.default: 'p' is the default already: remove one of the two"
    )


@pytest.mark.parametrize(
    ("of_p", "of_q", "place", "owner"),
    [
        ("[q]", "[]", "routes.p.aliases[0]", "a route"),
        ("[p]", "[]", "routes.p.aliases[0]", "a route"),
        ("[a, a]", "[]", "routes.p.aliases[1]", "an alias of route 'p'"),
        ("[a]", "[b, a]", "routes.q.aliases[1]", "an alias of route 'p'"),
    ],
)
def test_a_name_belongs_to_one_route(load: Any, of_p: str, of_q: str, place: str, owner: str) -> None:
    message = refusal(load, TWO.format(f"aliases: {of_p}", f"aliases: {of_q}"))
    assert re.fullmatch(rf"{re.escape(place)}: '.' is already the name of {owner}: remove one", message)


def test_route_settings(load: Any) -> None:
    (route,) = load(
        "routes: {p: {display_name: Policy, description: In training, aliases: [a, b], model: m, "
        "target: {id: engine-1, base_url: 'http://h'}}}"
    ).routes
    assert (route.display_name, route.description, route.aliases) == ("Policy", "In training", ("a", "b"))
    assert route.target.id == "engine-1"


def test_other_sections(load: Any) -> None:
    bundle = load(
        MINIMAL
        + """
capture: {dir: records, durability: power, begin_timeout: 0.5, min_free_bytes: 0}
sessions: {required: true, native_ids: [X-My-Session]}
server: {host: '::1', port: '${PORT}', workers: 2, log_level: DEBUG, max_body_bytes: 64 KiB}
""",
        {"PORT": "8080"},
    )
    assert str(bundle.capture.log_dir) == "records"
    assert (bundle.capture.durability, bundle.capture.begin_timeout, bundle.capture.min_free_bytes) == ("power", 0.5, 0)
    assert (bundle.sessions.required, bundle.sessions.native_ids) == (True, ("x-my-session",))
    assert (bundle.server.host, bundle.server.port, bundle.server.workers) == ("::1", 8080, 2)
    assert (bundle.server.log_level, bundle.server.max_body_bytes) == ("debug", 65536)


def test_sections_left_empty_count_as_absent(load: Any) -> None:
    bundle = load(MINIMAL + "\ncapture:\nsessions:\nserver:\ndefaults:\n")
    assert bundle.server.port == 4000


@pytest.mark.parametrize(
    ("text", "size"), [("7", 7), ("'7'", 7), ("7B", 7), ("2kb", 2000), ("2KiB", 2048), ("1 MiB", 2**20), ("1GB", 10**9)]
)
def test_sizes(load: Any, text: str, size: int) -> None:
    assert load(f"{MINIMAL}\nserver: {{max_body_bytes: {text}}}").server.max_body_bytes == size


def test_a_home_directory_is_found(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(load(MINIMAL + "\ncapture: {dir: ~/records}").capture.log_dir) == "/home/somebody/records"
