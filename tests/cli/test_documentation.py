"""docs/cli.md has every option, with its variable."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from switchyard_py.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
COMMAND: Any = typer.main.get_command(app)


def section(heading: str) -> str:
    found = re.search(rf"^## {heading}\n.*?(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, heading
    return found[0]


@pytest.mark.parametrize(
    ("heading", "command"),
    [("Global options", COMMAND), *COMMAND.commands.items()],
    ids=["globals", *COMMAND.commands],
)
def test_every_option_is_documented(heading: str, command: Any) -> None:
    text = section(heading)
    commands = [command] if command is COMMAND else [command, *getattr(command, "commands", {}).values()]
    options = [each for one in commands for each in one.params if each.param_type_name == "option"]
    known = {name for option in options for name in option.opts}
    documented = set(re.findall(r"(?<=`)--?[a-z][a-z-]*", text))
    assert known <= documented
    assert documented <= {*known, "--help", "-h", *(name for option in COMMAND.params for name in option.opts)}


@pytest.mark.parametrize(
    "name", ["HOST", "PORT", "WORKERS", "LOG_LEVEL", "ACCESS_LOG", "ROUTING_PROFILES", "RL_LOG_DIR"]
)
def test_every_variable_is_documented_beside_its_option(invoke: Any, name: str) -> None:
    option = "--" + name.lower().replace("_", "-")
    assert re.search(rf"^\| `{option} .* \| `SWITCHYARD_{name}` \|", PAGE, re.MULTILINE)
    help_text = " ".join((invoke("--help").stdout + invoke("serve", "--help").stdout).split())
    assert f"env var: SWITCHYARD_{name}" in help_text


@pytest.mark.parametrize(
    ("option", "default"),
    [
        ("--host", "0.0.0.0"),
        ("--port", "4000"),
        ("--workers", "1"),
        ("--log-level", "info"),
        ("--rl-log-dir", "./rl_data"),
    ],
)
def test_defaults(invoke: Any, option: str, default: str) -> None:
    assert re.search(rf"^\| `{option} .*`{re.escape(default)}` \|", PAGE, re.MULTILINE)
    help_text = " ".join((invoke("--help").stdout + invoke("serve", "--help").stdout).split())
    assert re.search(rf"{option} [^\[]*\[[^\]]*{re.escape(default)}", help_text)
