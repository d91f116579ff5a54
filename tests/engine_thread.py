"""The scripted engine in a thread of its own. Use it through `scripted_engine`."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from engine_server import Script, ScriptedEngine

T = TypeVar("T")


class ScriptedEngineThread:
    """A ScriptedEngine with an event loop of its own in a thread, for tests that run the proxy as a process.

    `reply`, `default`, `on`, `step` and `until` are safe to call from the test's thread; everything else is on
    `engine`, to be read only.
    """

    def __init__(self, engine: Callable[[], ScriptedEngine] = ScriptedEngine) -> None:
        self._make = engine
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted-engine")

    def __enter__(self) -> Self:
        self._thread.start()
        self.engine = self._call(self._started())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call(self.engine.__aexit__())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def reply(self, *scripts: Script) -> None:
        self._run(lambda: self.engine.reply(*scripts))

    def default(self, script: Script) -> None:
        self._run(lambda: self.engine.default(script))

    def on(self, method: str, path: str, script: Script) -> None:
        self._run(lambda: self.engine.on(method, path, script))

    def step(self, count: int = 1) -> None:
        self._run(lambda: self.engine.step(count))

    def until(self, condition: Callable[[], bool], within: float = 2.0) -> None:
        self._call(self.engine.until(condition, within))

    async def _started(self) -> ScriptedEngine:
        engine = self._make()
        await engine.start()
        return engine

    def _run(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        self._call(act())

    def _call(self, awaitable: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()
