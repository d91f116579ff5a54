"""Every fault for every kind of call: what the agent, the session and the operator see is what the page says."""

from pathlib import Path

import pytest
from fault_matrix.cell import observe
from fault_matrix.fault import MODES, Mode, Outcome
from fault_matrix.page import FAULTS, page

PAGE = Path(__file__).parents[2] / "docs" / "what-happens-when.md"
CELLS = [(name, mode) for name, fault in FAULTS.items() for mode in MODES if fault.outcome(mode)]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchyard_py.attempts.FIRST_PAUSE_SECONDS", 0.02)


@pytest.mark.parametrize(("name", "mode"), CELLS, ids=str)
async def test_a_fault_ends_as_the_page_says(
    name: str,
    mode: Mode,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    observed: dict[str, dict[str, Outcome]],
) -> None:
    caplog.set_level("INFO", "switchyard_py")
    outcome = await observe(FAULTS[name], mode, tmp_path / "rl_data", caplog.records)
    observed.setdefault(name, {})[str(mode)] = outcome
    assert outcome == FAULTS[name].outcome(mode)


def test_the_page_is_made_from_the_rows_that_are_played() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"
