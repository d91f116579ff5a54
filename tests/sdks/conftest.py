"""A proxy in front of a simulated engine, which answers by its rule: a tool first, then a sentence, or what fits."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from running_proxy import RunningProxy, bundle, running_proxy
from running_simulator import running_simulator


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[RunningProxy]:
    async with running_simulator(model="actual-model") as engine:
        given = bundle(str(engine.base_url.join("/v1")))
        async with running_proxy(given, tmp_path / "rl_data") as running:
            yield running
