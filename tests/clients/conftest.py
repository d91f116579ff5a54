"""Agents that are installed here, and proxies in front of a simulated engine that is told what to say to them.

`make test-clients` installs the agents and runs this directory; an agent that is not there is skipped.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from clients.client import Client, OpenWorkplace, StartStage, Workplace
from running_proxy import RunningProxy, bundle, running_proxy
from running_simulator import running_simulator

from switchyard_py.store import Filesystem


@pytest.fixture
def workplace(tmp_path: Path) -> OpenWorkplace:
    """`workplace(client)` is where this agent works; skips the test where the agent is not installed."""

    def open_workplace(client: Client) -> Workplace:
        binaries = Path(os.environ.get("SWITCHYARD_CLIENTS", "/nowhere")) / client.name / "bin"
        if not binaries.is_dir():
            pytest.skip(f"{client.name} is not installed")
        return Workplace(client, binaries, tmp_path)

    return open_workplace


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[StartStage]:
    """`running, engine = await stage(replies, faults, filesystem=...)`: a proxy, and a client of the engine behind it.

    Replies and faults are those of a simulator's script.
    """
    async with AsyncExitStack() as stack:

        async def start(
            replies: list[dict[str, Any]], faults: tuple[dict[str, Any], ...] = (), filesystem: Filesystem | None = None
        ) -> tuple[RunningProxy, httpx.AsyncClient]:
            simulator = running_simulator(model="actual-model", replies=replies, faults=faults)
            engine = await stack.enter_async_context(simulator)
            proxy = running_proxy(bundle(str(engine.base_url.join("/v1"))), tmp_path / "rl_data", filesystem=filesystem)
            return await stack.enter_async_context(proxy), engine

        yield start
