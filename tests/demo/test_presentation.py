"""What is drawn from records, true or not."""

import io
from pathlib import Path
from typing import Any

import pytest

from switchyard_py.demo import Claim, Presentation
from switchyard_py.demo.claims import Evidence
from switchyard_py.demo.conversation import Fragment, Reply


def record(prompt: list[int] | None, generation: list[int] | None) -> dict[str, Any]:
    return {"uuid": "u", "is_valid": True, "prompt_token_ids": prompt, "generation_token_ids": generation}


def shown(*records: dict[str, Any]) -> list[str]:
    """The rows of the table and the bars."""
    stream = io.StringIO()
    Presentation(stream, colours=False).records(Path("d"), Evidence([], [], records, {}))
    return [line for line in stream.getvalue().splitlines() if line.startswith("    ")][1:]


@pytest.mark.parametrize(
    ("second", "bar"),
    [
        ([1] * 24 + [2] * 8 + [3] * 16, "─" * 24 + "━" * 8 + "─" * 16 + "━" * 16),
        ([1] * 24 + [9] * 24, "─" * 48 + "━" * 16),
    ],
    ids=["continues", "does not continue"],
)
def test_a_bar_shows_what_was_generated_only_where_it_was_kept(second: list[int], bar: str) -> None:
    _, _, first_bar, second_bar, _ = shown(record([1] * 24, [2] * 8), record(second, [4] * 16))
    assert first_bar == "    call 1  " + "─" * 24 + "━" * 8
    assert second_bar == f"    call 2  {bar}"


@pytest.mark.parametrize("records", [[], [record(None, [1])], [record([1], [2]), record([1], None)]])
def test_nothing_is_drawn_without_ids(records: list[dict[str, Any]]) -> None:
    assert len(shown(*records)) == len(records)


def test_a_call_that_ends_too_early_is_shown() -> None:
    stream = io.StringIO()
    presentation = Presentation(stream, colours=True)
    presentation.heard(Fragment("answer", "\n\n", False))
    presentation.heard(Fragment("answer", "half a ", False))
    presentation.heard(Fragment("answer", "word", True))
    presentation.broke_off()
    presentation.ended(Reply("u", recorded_at_tail=False))
    presentation.verdicts([Claim("all is well", "it is not")])
    assert stream.getvalue() == (
        "           answer     half a\x1b[0m\x1b[32m\x1b[1m word\x1b[0m\n"
        "           released   \x1b[31mthe end of the reply, although no record is on disk\x1b[0m\n"
        "  \x1b[31m\x1b[1m✗\x1b[0m all is well:\n      it is not\n"
    )
