"""Prints the fault matrix, as it was observed, at the end of the test report."""

import pytest
from fault_matrix.fault import Outcome

Observed = dict[str, dict[str, Outcome]]
"""By name of the fault, and kind of call."""

_OBSERVED = pytest.StashKey[Observed]()


@pytest.fixture
def observed(request: pytest.FixtureRequest) -> Observed:
    return request.config.stash.setdefault(_OBSERVED, {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    matrix = config.stash.get(_OBSERVED, {})
    if not matrix:
        return
    terminalreporter.section("fault matrix")
    for name, outcomes in matrix.items():
        terminalreporter.write_line(name)
        kinds: dict[str, list[str]] = {}
        for mode, outcome in outcomes.items():
            kinds.setdefault(f"{outcome.agent} | {outcome.session} | {outcome.sent}", []).append(mode)
        for words, modes in kinds.items():
            terminalreporter.write_line(f"    {', '.join(modes)}: {words}".replace("`", ""))
