"""An engine and proxies in front of it, for every test that wants them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from running_proxy import RunningProxy, StartProxy, bundle, running_proxy
from scripted_engine import ScriptedEngine


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    """An engine that answers as scripted."""
    async with ScriptedEngine(model="actual-model") as engine:
        yield engine


@pytest.fixture
async def proxy(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[StartProxy]:
    """`await proxy(target={...}, sessions={...})` starts a proxy in front of the engine; see `running_proxy.bundle`.

    `filesystem`, `clock` and `captures` go to `running_proxy`; `directory` is where records lie.
    """
    async with AsyncExitStack() as stack:

        async def start(
            *,
            directory: Path | None = None,
            filesystem: Any = None,
            clock: Callable[[], int] | None = None,
            captures: bool = True,
            **given: Any,
        ) -> RunningProxy:
            options: dict[str, Any] = {"filesystem": filesystem, "captures": captures}
            if clock is not None:
                options["clock"] = clock
            started = running_proxy(bundle(engine.base_url, **given), directory or tmp_path / "rl_data", **options)
            return await stack.enter_async_context(started)

        yield start
