"""The page about rollouts says what the code says, word for word."""

import re
from pathlib import Path

import pytest

from switchyard_py.rollouts import BLOCKING, Cause, MainReason, Reason, Rule

PAGE = (Path(__file__).parents[2] / "docs" / "rollouts.md").read_text()


@pytest.mark.parametrize("rule", Rule)
def test_every_rule_is_documented(rule: Rule) -> None:
    assert f"| `{rule.value}` | {rule.demand} |" in PAGE


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_is_documented(cause: Cause) -> None:
    assert f"| `{cause.value}` | {cause.explanation} |" in PAGE


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_documented(reason: Reason) -> None:
    assert f"| `{reason.value}` | {'yes' if reason in BLOCKING else 'no'} |" in PAGE


def test_why_there_is_no_main_chain_is_documented() -> None:
    for reason in (MainReason.NO_TURN, MainReason.OVERLAPPING, MainReason.UNDECIDED_RETRY):
        assert f"`{reason.value}`" in PAGE


def test_nothing_else_is_documented() -> None:
    names = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert names == {each.value for kind in (Rule, Cause, Reason) for each in kind}
