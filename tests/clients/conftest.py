"""Agents that are installed here, and proxies in front of a simulated engine that is told what to say to them.

`make test-clients` installs the agents and runs this directory; an agent that is not there is skipped. After every test
the lineage of every session that its agent left is held against what the test expects, and told in the report.
"""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from clients.client import Client, OpenWorkplace, StartStage, Workplace
from clients.lineages import Expected, left_sessions
from running_proxy import RunningProxy, bundle, running_proxy
from running_simulator import running_simulator

from switchyard_py.store import Filesystem

DIRECTORY = "rl_data"
_TOLD = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what each session is to a trainer."""
    told = config.stash.get(_TOLD, [])
    if told:
        terminalreporter.section("sessions of real agents")
    for line in sorted(told, key=lambda line: line.partition(",")[0]):
        terminalreporter.write_line(line)


@pytest.fixture
def expected(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Expected]:
    """What the test expects of the sessions that its agent leaves, looked at when the proxy has ended."""
    expected = Expected()
    yield expected
    sessions = list(left_sessions(tmp_path / DIRECTORY))
    assert sessions or expected.agent is None
    told, test = request.config.stash.setdefault(_TOLD, []), request.node.originalname
    told += [f"{expected.agent}, {test}: {session.line()}" for session in sessions]
    for session in sessions:
        session.check(expected)


@pytest.fixture
def workplace(tmp_path: Path, expected: Expected) -> OpenWorkplace:
    """`workplace(client)` is where this agent works; skips the test where the agent is not installed."""

    def open_workplace(client: Client) -> Workplace:
        binaries = Path(os.environ.get("SWITCHYARD_CLIENTS", "/nowhere")) / client.name / "bin"
        if not binaries.is_dir():
            pytest.skip(f"{client.name} is not installed")
        expected.agent = client.name
        return Workplace(client, binaries, tmp_path)

    return open_workplace


@pytest.fixture
async def stage(tmp_path: Path, expected: Expected) -> AsyncIterator[StartStage]:
    """`running, engine = await stage(replies, faults, filesystem=...)`: a proxy, and a client of the engine behind it.

    Replies and faults are those of a simulator's script.
    """
    async with AsyncExitStack() as stack:

        async def start(
            replies: list[dict[str, Any]], faults: tuple[dict[str, Any], ...] = (), filesystem: Filesystem | None = None
        ) -> tuple[RunningProxy, httpx.AsyncClient]:
            simulator = running_simulator(model="actual-model", replies=replies, faults=faults)
            engine = await stack.enter_async_context(simulator)
            proxy = running_proxy(bundle(str(engine.base_url.join("/v1"))), tmp_path / DIRECTORY, filesystem=filesystem)
            return await stack.enter_async_context(proxy), engine

        yield start
