"""A proxy that runs: in the test's own event loop, or as the command a user types.

    running = await proxy(target={"early_headers_after": 0.2}, sessions={"required": True})
    reply = await running.chat({"messages": [...]}, session="s")
    (record,) = await running.records("s")

The bundle is the one of the README with the given keys laid over it; the route is `policy_model`.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx
import uvicorn
import yaml

from switchyard_py.app import build_app
from switchyard_py.capture.ledger import Ledger
from switchyard_py.config import ServeSettings, load_bundle
from switchyard_py.connection import ServerConfig
from switchyard_py.store import Filesystem

ROUTE = "policy_model"
NO_DRAIN = {"server": {"drain_seconds": 0}}
HELLO = {"model": ROUTE, "messages": [{"role": "user", "content": "hi"}]}


def bundle(base_url: str, *, target: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    """One captured route to the engine at `base_url`; `target` and the other keys are laid over it.

    Nobody waits for the drain, unless `server` is given.
    """
    given = {"model": "actual-model", "base_url": base_url, "api_key": "dummy", "format": "openai"}
    engine = {"token_capture_engine": "vllm"}
    return {"routes": {ROUTE: {"type": "model", "target": {**given, **engine, **(target or {})}}}, **NO_DRAIN, **top}


def session_path(session_id: str) -> str:
    return f"/v1/sessions/{quote(session_id, safe='')}"


class RunningProxy:
    """A proxy in this process; `client` speaks to it, `directory` is where its records are."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.client = httpx.AsyncClient(base_url=url, timeout=20, trust_env=False, verify=False)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def chat(
        self, body: dict[str, Any] | bytes, session: str | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """One model call, read to its end; of an object, `model` and `messages` may be left out."""
        async with self.chat_stream(body, session, headers) as response:
            await response.aread()
            return response

    def chat_stream(
        self, body: dict[str, Any] | bytes, session: str | None = None, headers: dict[str, str] | None = None
    ) -> AbstractAsyncContextManager[httpx.Response]:
        """The same, to be read piece by piece."""
        sent = {"content-type": "application/json", **(headers or {})}
        if session is not None:
            sent["proxy_x_session_id"] = session
        url = "/v1/chat/completions"
        if isinstance(body, bytes):
            return self.client.stream("POST", url, content=body, headers=sent)
        return self.client.stream("POST", url, json={**HELLO, **body}, headers=sent)

    async def session(self, session_id: str, **query: str | int | float) -> dict[str, Any]:
        """The session's envelope, which must exist."""
        response = await self.client.get(session_path(session_id) + "/completions", params=query)
        assert response.status_code == 200, response.text
        envelope: dict[str, Any] = response.json()
        return envelope

    async def records(self, session_id: str, **query: str | int | float) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = (await self.session(session_id, **query))["completions"]
        return records

    async def fates(self, session_id: str) -> dict[str, int]:
        """How many calls of the session met which fate, without zeros; the account must balance."""
        account = (await self.session(session_id))["accounting"]
        assert account["begun"] == sum(account.values()) - account["begun"], account
        return {fate: count for fate, count in account.items() if count and fate != "begun"}

    async def until_fates(self, session_id: str, expected: dict[str, int], within: float = 2.0) -> None:
        """Wait until the account of the session reads so; it may not exist yet."""
        deadline = time.monotonic() + within
        while (await self.client.get(session_path(session_id))).status_code == 404:
            assert time.monotonic() < deadline, "there is no such session"
            await asyncio.sleep(0.01)
        while (fates := await self.fates(session_id)) != expected:
            assert time.monotonic() < deadline, f"{fates} instead of {expected}"
            await asyncio.sleep(0.01)

    async def stats(self) -> dict[str, Any]:
        counts: dict[str, Any] = (await self.client.get("/v1/stats")).json()
        return counts

    async def until_counted(self, name: str, expected: int, within: float = 2.0) -> None:
        """Wait until a count of `/v1/stats` has this value: a call is counted when it is over, after its record."""
        deadline = time.monotonic() + within
        while (count := (await self.stats())[name]) != expected:
            assert time.monotonic() < deadline, f"{name} is {count} instead of {expected}"
            await asyncio.sleep(0.01)

    def files(self, suffix: str) -> list[Path]:
        """The files of all calls in one state."""
        return sorted(self.directory.glob(f"sessions/*/*{suffix}"))


StartProxy = Callable[..., Awaitable[RunningProxy]]
"""Type of the fixture `proxy`."""


@asynccontextmanager
async def running_proxy(
    given: dict[str, Any],
    directory: Path,
    *,
    filesystem: Filesystem | None = None,
    clock: Callable[[], int] = time.time_ns,
    captures: bool = True,
) -> AsyncIterator[RunningProxy]:
    """Serve a bundle from this event loop."""
    file = directory.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(given, sort_keys=False))
    log_dir = directory if captures else None
    loaded = load_bundle(file)
    settings = ServeSettings(
        loaded, log_dir, "127.0.0.1", port=0, workers=1, log_level="info", access_log=loaded.server.access_log
    )
    open_ledger = partial(Ledger.open, filesystem=filesystem, clock=clock, retry_seconds=0.05)
    app = build_app(settings, open_ledger=open_ledger)
    config = ServerConfig(app, agent_stall_seconds=settings.bundle.server.agent_stall_seconds, port=0)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    # The steps of `serve` without its waits: it looks only ten times a second whether to end.
    await server.startup()
    running = RunningProxy(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", directory)
    try:
        yield running
    finally:
        await running.client.aclose()
        for listening in server.servers:
            listening.close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
        async with asyncio.timeout(5):
            while server.server_state.connections or server.server_state.tasks:
                await asyncio.sleep(0.001)
        await server.lifespan.shutdown()


class ProxyProcess:
    """The command `switchyard`, run in `directory` until the end of the `with`. It must end well by SIGTERM.

    `log` is all of its stderr, once it has ended.
    """

    def __init__(self, arguments: list[str], directory: Path, environ: dict[str, str] | None = None) -> None:
        script = Path(sys.executable).with_name("switchyard")
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHYARD_")}
        self._command = [str(script), *arguments]
        self._directory = directory
        self._environ = {**clean, **(environ or {})}
        self.log = ""
        self.url = ""
        self.exit_status: int | None = None

    def __enter__(self) -> Self:
        self._stderr = (self._directory / f"stderr.{time.monotonic_ns()}").open("w+")
        self._process = subprocess.Popen(
            self._command, cwd=self._directory, env=self._environ, stderr=self._stderr, stdout=subprocess.DEVNULL
        )
        try:
            self.url = self._wait_for_url()
        except BaseException:
            self._end(signal.SIGKILL)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.exit_status is None:
            self._end(signal.SIGTERM)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, how: signal.Signals) -> None:
        """Send a signal and go on."""
        self._process.send_signal(how)

    def wait(self, within: float = 15) -> int:
        """Wait until it has ended by itself; its exit status."""
        self._reap(within)
        assert self.exit_status is not None
        return self.exit_status

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._end(signal.SIGKILL)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=20, trust_env=False, verify=False)

    def _wait_for_url(self) -> str:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self._process.poll() is None:
            banner = self._read_log()
            if found := re.search(r" on http://[^ ]*?:(\d+), workers: ", banner):
                url = f"http://127.0.0.1:{found[1]}"
                if _answers(url):
                    return url
            time.sleep(0.02)
        raise AssertionError(f"the proxy does not serve: {self._read_log()}")

    def _read_log(self) -> str:
        return Path(self._stderr.name).read_text()

    def _end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._reap(15)

    def _reap(self, within: float) -> None:
        try:
            self.exit_status = self._process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self.log = self._read_log()
            self._stderr.close()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5, trust_env=False, verify=False).status_code == 200
    except httpx.TransportError:
        return False
