"""The page of each agent holds what the lane of real agents runs, in the version that the lane installs."""

import json
import re
import tomllib
from collections.abc import Callable

import pytest
from clients.client import CLIENTS, PAGE_URL
from clients.page import PAGES, files_of

INSTALL = (PAGES.parents[1] / "tests" / "clients" / "install.sh").read_text()
READERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "py": lambda text: compile(text, "agent", "exec"),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_the_page_has_the_files_that_are_run(client: str) -> None:
    files = files_of(client)
    assert "$TASK" in files["run.sh"] or 'environ["TASK"]' in files["agent.py"]
    assert any("SESSION" in text for text in files.values())
    assert any(PAGE_URL in text for text in files.values())
    for name, text in files.items():
        kind = name.rpartition(".")[2]
        if kind != "sh":
            READERS[kind](text)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_page_names_the_version_that_is_installed(client: str) -> None:
    installed = re.search(rf"^{client}\) \w+ (\S+?)(?:@|==)([\d.]+) ", INSTALL, re.MULTILINE)
    assert installed
    text = (PAGES / f"{client}.md").read_text()
    for said in installed.groups():
        assert said in text
    assert re.search(rf"^(npm|pip) install .*{installed[1]}(@|==){installed[2]}\b", text, re.MULTILINE)
    assert "(index.md#when-nothing-is-captured)" in text


def test_every_page_is_in_the_list() -> None:
    listed = (PAGES / "index.md").read_text()
    for page in PAGES.glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in listed
