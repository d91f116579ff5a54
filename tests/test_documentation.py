"""The pages say what the program does."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from switchyard_py.errors import Kind
from switchyard_py.gym import RetrievalFailed, SessionIncomplete, TraceOptions
from switchyard_py.rollouts import NothingToTrain, Refusal
from switchyard_py.rollouts.row_files import SCHEMA
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


@pytest.mark.parametrize("column", SCHEMA.names)
def test_every_column_of_training_rows_is_documented(column: str) -> None:
    assert f"\n| `{column}` |" in (ROOT / "docs" / "training-rows.md").read_text()


@pytest.mark.parametrize("option", [field.name for field in fields(TraceOptions)])
def test_every_option_of_the_nemo_gym_kit_is_documented(option: str) -> None:
    page = (ROOT / "docs" / "nemo-gym.md").read_text()
    assert f"\n        {option}: " in page


@pytest.mark.parametrize("error", [RetrievalFailed, SessionIncomplete, Refusal, NothingToTrain])
def test_every_reason_to_mask_a_run_is_documented(error: type[Exception]) -> None:
    assert f"\n| `{error.__name__}` |" in (ROOT / "docs" / "nemo-gym.md").read_text()
