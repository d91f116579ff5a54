"""The one error table: what agents are told about sending the same again."""

import re
from pathlib import Path

import pytest

from switchyard_py.errors import Kind, SwitchyardError

PAGE = (Path(__file__).parents[1] / "docs" / "http-api.md").read_text()
ADVICE = PAGE.partition("\n### Sending the same again\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("kind", Kind)
def test_whoever_would_be_asked_again_by_its_status_says_whether_it_should(kind: Kind) -> None:
    """SDKs of OpenAI and Anthropic repeat 408, 409, 429 and all from 500."""
    if kind.value.status in (408, 409, 429) or kind.value.status >= 500:
        assert kind.value.should_retry is not None
    else:
        assert kind.value.should_retry is not True


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.value.status in (429, 503)])
def test_who_is_busy_says_when_to_come_back(kind: Kind) -> None:
    assert int(SwitchyardError(kind, "why").headers["retry-after"]) >= 1


@pytest.mark.parametrize("kind", Kind)
def test_the_documentation_has_the_advice(kind: Kind) -> None:
    given = SwitchyardError(kind, "why").headers
    advice = [f"`{name}: {given[name]}`" for name in ("x-should-retry", "retry-after") if name in given]
    rows = re.findall(rf"^\| `{kind.value.code}` \| (`[^|]*`) \|", ADVICE, re.MULTILINE)
    assert rows == ([", ".join(advice)] if advice else [])
