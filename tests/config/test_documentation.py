"""docs/configuration.md has every key of the file, with the default the program has."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from switchyard_py.config import parse_server_setting
from switchyard_py.config.schema import (
    AuthEntry,
    BundleEntry,
    CaptureEntry,
    Entry,
    RouteEntry,
    ServerEntry,
    SessionEntry,
    TargetDefaults,
    TargetEntry,
)
from switchyard_py.config.settings import AuthSettings, CaptureSettings, Route, ServerSettings, SessionSettings, Target

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()

# Where the default is not a plain value the page says it in words.
IN_WORDS = {
    "model": "required for `type: model`",
    "base_url": "required",
    "id": "`<model>@<host[:port]>`; `*` stands for a missing model",
    "type": "`model`",
    "display_name": "the route's name",
    "log_dir": "`./rl_data`",
    "native_ids": "built-in list",
    "max_body_bytes": "`128MiB`",
    "replay_max_bytes": "`256MiB`",
    "min_free_bytes": "the smaller of 1 GiB and 2 % of the file system",
    "engine": "`null`",
    "target": "none",
    "defaults": "none",
    "api_key_env": "none",
    "caller_keys": "none",
    "caller_keys_env": "none",
    "reader_keys": "none",
    "reader_keys_env": "none",
    "session_secrets": "none",
    "session_secrets_env": "none",
}
SETTINGS = {
    TargetEntry: Target,
    RouteEntry: Route,
    CaptureEntry: CaptureSettings,
    SessionEntry: SessionSettings,
    AuthEntry: AuthSettings,
    ServerEntry: ServerSettings,
}
HEADINGS = {
    BundleEntry: "Sections",
    RouteEntry: "Routes",
    TargetEntry: "Target settings",
    CaptureEntry: "Capture",
    SessionEntry: "Sessions",
    AuthEntry: "Auth",
    ServerEntry: "Server",
}


def documented(heading: str) -> dict[frozenset[str], str]:
    """The first table under a heading: the spellings of each key to its default column."""
    section = PAGE.partition(f"\n## {heading}\n")[2]
    table = re.search(r"^\| key .*?(?=^$)", section, re.DOTALL | re.MULTILINE)
    assert table, heading
    rows = [line.strip("|").split("|") for line in table[0].splitlines()[2:]]
    return {frozenset(re.findall(r"`(\w+)`", keys)): default.strip() for keys, _, default in rows}


def default_in_words(settings: type, name: str) -> str:
    (field,) = (field for field in dataclasses.fields(settings) if field.name == name)
    default: Any = field.default_factory() if callable(field.default_factory) else field.default
    if default is None:
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else list(default) if default == () else default}`"


@pytest.mark.parametrize("entry", HEADINGS, ids=lambda entry: entry.__name__)
def test_every_key_is_documented_with_its_default(entry: type[Entry]) -> None:
    inherited = TargetDefaults.settings() if entry is RouteEntry else {}
    wanted = {name: frozenset(keys) for name, keys in entry.settings().items() if name not in inherited}
    found = documented(HEADINGS[entry])
    assert set(found) == set(wanted.values())
    if entry is BundleEntry:
        return
    for name, keys in wanted.items():
        assert found[keys] == (IN_WORDS.get(name) or default_in_words(SETTINGS[entry], name)), name


def test_the_size_in_words() -> None:
    assert parse_server_setting("max_body_bytes", "128MiB", "") == ServerSettings().max_body_bytes
