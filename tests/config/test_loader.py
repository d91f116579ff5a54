"""Whatever is in the file, it gives a bundle or one line that says where, what and what instead."""

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from switchyard_py.config import Bundle, ConfigError, load_bundle, parse_server_setting
from switchyard_py.config.schema import CaptureEntry, RouteEntry, ServerEntry, SessionEntry, TargetEntry

URL = "http://127.0.0.1:8000/v1"


def route(settings: str) -> str:
    """A bundle with one route `p` whose target has these settings besides a model and a URL."""
    return f"routes: {{p: {{target: {{model: m, base_url: '{URL}', {settings}}}}}}}"


def problem(load: Any, text: str | bytes, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, environ)
    message = str(caught.value)
    assert message.splitlines() == [message]
    return message.partition("bundle.yaml: ")[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "routes: must contain at least one route"),
        ("routes: {}", "routes: must contain at least one route"),
        ("routes: null", "routes: must be a mapping, not null"),
        ("routes: [p]", "routes: must be a mapping, not a list"),
        ("[1]", "must be a mapping"),
        ("3", "must be a mapping"),
        ("bogus: 1", "bogus: unknown key: known here are auth, capture, defaults, routes, server, sessions"),
        ("routes: {1: m}", "routes: the key 1 is not text: write it in quotes"),
        ("routes: {'': m}", "routes.'': must not be empty"),
        ("routes: {p: 7}", "routes.p: must be a mapping"),
        ("routes: {p: null}", "routes.p: no model: give target.model, or type: passthrough to send whatever model"),
        ("routes: {p: m}", "routes.p: no base_url: give one such as base_url: http://127.0.0.1:8000/v1"),
        ("routes: {p: {target: {base_url: 'http://h'}}}", "routes.p: no model: give target.model"),
        ("routes: {p: {target: {model: 3}}}", "routes.p.target.model: must be text (put it in quotes), not 3"),
        ("routes: {p: {type: banana}}", "routes.p.type: the route type 'banana' is not offered: write model or"),
        ("routes: {p: {mode: m}}", "routes.p.mode: unknown key: did you mean model?"),
        (route("modle: m"), "routes.p.target.modle: unknown key: did you mean model?"),
        (route("format: anthropic"), "routes.p.target.format: the format 'anthropic' is not offered"),
        (route("timeout: soon"), "routes.p.target.timeout: must be a number, not 'soon'"),
        (route("timeout: true"), "routes.p.target.timeout: must be a number"),
        (route("timeout_secs: 0"), "routes.p.target.timeout_secs: must be greater than 0, not 0"),
        (route("timeout: .inf"), "routes.p.target.timeout: must be finite"),
        (route("timeout: 1, timeout_secs: 1"), "routes.p.target: timeout and timeout_secs are one setting"),
        (route("api_key: a, api_key_env: B"), "routes.p.target: api_key and api_key_env are one setting"),
        (route("token_capture_engine: sglang"), "routes.p.target.token_capture_engine: must be 'vllm', not 'sglang'"),
        (route("max_tokens_cap: 0"), "routes.p.target.max_tokens_cap: must be at least 1, not 0"),
        (route("max_tokens_cap: 1.5"), "routes.p.target.max_tokens_cap: must be a whole number, not 1.5"),
        (route("early_headers_after: -1"), "routes.p.target.early_headers_after: must be at least 0, not -1"),
        (route("stream_whitespace: keep"), "routes.p.target.stream_whitespace: must be 'drop' or 'as_engine', not"),
        (route("drop_body: seed"), "routes.p.target.drop_body: must be a list, not 'seed'"),
        (route("drop_body: [seed, 7]"), "routes.p.target.drop_body[1]: must be text (put it in quotes), not 7"),
        (route("extra_body: [a]"), "routes.p.target.extra_body: must be a mapping, not a list"),
        (route("extra_body: {logit_bias: {5: 1}}"), "routes.p.target.extra_body.logit_bias: the key 5 is not text"),
        (route("extra_body: {seed: 99999999999999999999}"), "routes.p.target.extra_body.seed: is an integer beyond 64"),
        (route("extra_body: {top_p: 1e400}"), "routes.p.target.extra_body.top_p: must be finite"),
        (route("extra_headers: {x-tenant: 5}"), "routes.p.target.extra_headers.x-tenant: must be text"),
        (route("extra_headers: {'x y': a}"), "routes.p.target.extra_headers: 'x y' is not a header name"),
        (route('extra_headers: {x-a: "b\\r\\nc"}'), "routes.p.target.extra_headers: the value of x-a holds a line"),
        (route("extra_headers: {Content-Length: '5'}"), "routes.p.target.extra_headers: Content-Length is set by the"),
        (route('api_key: "a\\nb"'), "routes.p.target.api_key: must be printable ASCII without line breaks"),
        (route("token_injection: true"), "routes.p.target.token_injection: token injection is not offered"),
        (route("injection_transport: prefix_chat"), "routes.p.target.injection_transport: token injection is not"),
        (route("tool_parser: hermes"), "routes.p.target.tool_parser: the engine parses replies"),
        (route("reasoning_parser: qwen3"), "routes.p.target.reasoning_parser: the engine parses replies"),
        (route("endpoint: x"), "routes.p.target.endpoint: is not offered: give the engine's address as base_url"),
        (route("tuning: {}"), "routes.p.target.tuning: is not offered: put request parameters into extra_body"),
        ("capture: {durability: never}", "capture.durability: must be 'process' or 'power', not 'never'"),
        ("capture: {min_free_bytes: lots}", "capture.min_free_bytes: must be a size in bytes"),
        ("capture: {dir: 5}", "capture.dir: must be the name of a directory"),
        ("sessions: {required: maybe}", "sessions.required: must be true or false, not 'maybe'"),
        ("sessions: {native_ids: [Authorization]}", "sessions.native_ids: authorization carries credentials"),
        ("sessions: {native_ids: ['a b']}", "sessions.native_ids: 'a b' is not a header name"),
        ("server: {port: 65536}", "server.port: must be at most 65535, not 65536"),
        ("server: {workers: 0}", "server.workers: must be at least 1, not 0"),
        ("server: {log_level: loud}", "server.log_level: must be 'critical', 'error', 'warning', 'info', 'debug' or"),
        ("server: {max_body_bytes: 1XB}", "server.max_body_bytes: must be a size in bytes, such as 134217728 or"),
        ("server: {access_log: [x]}", "server.access_log: must be the name of a file, or true or - for standard error"),
        ("server: {access_log: ''}", "server.access_log: must be the name of a file, or true or - for standard error"),
        ("server: {auth: x}", "server.auth: unknown key: "),
    ],
)
def test_what_is_wrong_is_said_with_its_place(load: Any, text: str, expected: str) -> None:
    assert problem(load, text).startswith(expected)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://h/v1", "must be an http:// or https:// URL with a host"),
        ("127.0.0.1:8000", "must be an http:// or https:// URL with a host"),
        ("http:///v1", "must be an http:// or https:// URL with a host"),
        ("http://h/a b", "must be an http:// or https:// URL with a host"),
        ("http://h:port/v1", "is not a URL"),
        ("http://[::1/v1", "is not a URL"),
        ("http://h/v1?key=1", "must have no query and no fragment"),
        ("http://h/v1#top", "must have no query and no fragment"),
    ],
)
def test_a_base_url_that_cannot_be_called_is_refused(load: Any, url: str, expected: str) -> None:
    text = f"routes: {{p: {{target: {{model: m, base_url: '{url}'}}}}}}"
    assert problem(load, text).startswith(f"routes.p.target.base_url: {expected}: write one such as http://")


@pytest.mark.parametrize("value", ["${SECRET}", "hunter2"])
@pytest.mark.parametrize(
    "setting",
    [
        "api_key: [VALUE]",
        "extra_headers: {x-a: [VALUE]}",
        'api_key: "VALUE\\n"',
        'extra_headers: {x-a: "VALUE\\n"}',
        "base_url: 'http://u:VALUE@h:x/'",
    ],
)
def test_an_error_never_shows_a_credential(load: Any, setting: str, value: str) -> None:
    text = f"routes: {{p: {{model: m, {setting.replace('VALUE', value)}}}}}"
    assert "hunter2" not in problem(load, text, {"SECRET": "hunter2"})


def test_a_value_is_quoted_as_the_file_spells_it(load: Any) -> None:
    text = "routes: {p: {timeout: '${SECRET}'}}"
    assert problem(load, text, {"SECRET": "hunter2"}) == "routes.p.timeout: must be a number, not '${SECRET}'"


@pytest.mark.parametrize("text", ["api_key: *hunter2", "api_key: !hunter2 x"])
def test_an_error_of_the_yaml_reader_never_shows_text_of_the_file(load: Any, text: str) -> None:
    assert "hunter2" not in problem(load, f"defaults: {{{text}}}")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: file not found$"):
        load_bundle(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match=r": cannot read: Is a directory$"):
        load_bundle(tmp_path)


def test_the_process_environment_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHYARD_TEST_MODEL", "from-environment")
    path = tmp_path / "bundle.yaml"
    path.write_text("routes: {p: {model: '${SWITCHYARD_TEST_MODEL}', base_url: 'http://h'}}")
    assert load_bundle(path).routes[0].target.model == "from-environment"


_SECTIONS = ["routes", "defaults", "capture", "sessions", "server"]
_KEYS = sorted(
    {
        key
        for entry in (RouteEntry, TargetEntry, CaptureEntry, SessionEntry, ServerEntry)
        for keys in entry.settings().values()
        for key in keys
    }
)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["http://h/v1", "vllm", "model", "passthrough", "${X}", "${X:-y}", "$", "${", "openai", "1KiB"]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.sampled_from(_KEYS + _SECTIONS) | st.text(), children, max_size=5)
    ),
    max_leaves=12,
)
_targets = st.dictionaries(st.sampled_from(_KEYS), _values, max_size=4).map(
    lambda settings: {"model": "m", "base_url": "http://h", **settings}
)
_bundles = st.dictionaries(st.sampled_from(["p", "q", ""]), st.fixed_dictionaries({"target": _targets})).flatmap(
    lambda routes: st.dictionaries(st.sampled_from(_SECTIONS), _values, max_size=3).map(
        lambda rest: {"routes": routes, **rest}
    )
)


def outcome(content: bytes) -> Bundle | str:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "bundle.yaml")
        path.write_bytes(content)
        try:
            return load_bundle(path, {})
        except ConfigError as error:
            return str(error)


@settings(deadline=None, max_examples=50)
@given(_values | _bundles)
def test_any_document_gives_a_bundle_or_one_line(document: Any) -> None:
    found = outcome(yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass"))
    assert isinstance(found, Bundle) or found.splitlines() == [found]


@settings(deadline=None)
@given(st.binary() | st.text(alphabet="{}[]:,-&*!|>'\"\\#%@`?~<= \n\tabu0123.x_e+").map(str.encode))
def test_any_bytes_give_a_bundle_or_one_line(content: bytes) -> None:
    found = outcome(content)
    assert isinstance(found, Bundle) or found.splitlines() == [found]


def test_a_server_setting_given_outside_the_file() -> None:
    assert parse_server_setting("port", "0", "--port") == 0
    assert parse_server_setting("access_log", "-", "--access-log") == "-"
    assert parse_server_setting("log_level", "INFO", "SWITCHYARD_LOG_LEVEL") == "info"
    with pytest.raises(ConfigError, match=re.escape("SWITCHYARD_WORKERS: must be a whole number, not 'abc'")):
        parse_server_setting("workers", "abc", "SWITCHYARD_WORKERS")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("true", "-"),
        ("'-'", "-"),
        ("false", None),
        ("calls.jsonl", "calls.jsonl"),
        ("~/calls", str(Path.home() / "calls")),
    ],
)
def test_where_the_access_log_goes(load: Any, text: str, target: str | None) -> None:
    bundle: Bundle = load(f"server: {{access_log: {text}}}\nroutes: {{p: {{model: m, base_url: 'http://h'}}}}")
    assert bundle.server.access_log == target
