"""The pages say what the program does."""

import re
from pathlib import Path

import pytest

from switchyard_py.errors import Kind
from switchyard_py.sessions import ASSIGNED_HEADERS, GENERIC_HEADER, NATIVE_HEADERS, PARENT_HEADER, SUBAGENT_HEADERS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "http-api.md").read_text()


@pytest.mark.parametrize("kind", Kind)
def test_every_error_is_documented_with_its_status(kind: Kind) -> None:
    assert f"| `{kind.value.code}` | {kind.value.status} |" in PAGE


def test_every_documented_error_exists() -> None:
    documented = re.findall(r"^\| `([a-z_]+)` \| \d{3} \|", PAGE, re.MULTILINE)
    assert sorted(documented) == sorted(kind.value.code for kind in Kind)


@pytest.mark.parametrize("name", [*ASSIGNED_HEADERS, GENERIC_HEADER, PARENT_HEADER, *NATIVE_HEADERS, *SUBAGENT_HEADERS])
def test_every_header_that_names_a_session_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("page", ["README.md", *(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / target).exists(), target
