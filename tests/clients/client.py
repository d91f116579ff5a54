"""Agents as they are installed here, run headless by the commands of their pages."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from clients.page import files_of
from running_proxy import RunningProxy

PAGE_URL = "http://127.0.0.1:4000"
"""Where the proxy is in the pages."""
RUN_SECONDS = 120
ERRAND_MARK = "ERRAND:"
"""Begins what a sub-agent is told to do."""


@dataclass(frozen=True)
class Client:
    """One agent: how its tools are called, and what sets its sub-agents apart."""

    name: str
    """Of its page."""
    streams: bool
    shell: str
    """Name of the tool that runs a command, and of the argument that holds it."""
    command: str
    also: Mapping[str, object] | None = None
    """Further arguments that the tool wants."""
    finish: str | None = None
    """Name of the tool that ends the work; None: an answer without a call does."""

    def run_command(self, command: str) -> dict[str, Any]:
        """The reply that runs a command."""
        arguments = {self.command: command, **(self.also or {})}
        return {"tool_calls": [{"name": self.shell, "arguments": arguments}]}

    def end_work(self) -> dict[str, Any]:
        """The reply after which the agent stops."""
        if self.finish is None:
            return {"content": "All is done."}
        return {"tool_calls": [{"name": self.finish, "arguments": {"message": "All is done."}}]}


CLIENTS = {
    client.name: client
    for client in (
        Client("openhands", False, "terminal", "command", finish="finish"),
        Client("opencode", True, "bash", "command", also={"description": "Run it"}),
        Client("codex", True, "exec_command", "cmd"),
        Client("pi", True, "bash", "command"),
        Client("claude-code", True, "Bash", "command", also={"description": "Run it"}),
    )
}


class Workplace:
    """A directory in which one agent runs: a home of its own, and a workspace that holds the files of its page."""

    def __init__(self, client: Client, binaries: Path, root: Path) -> None:
        self.client = client
        self.workspace = root / "workspace"
        self._home = root / "home"
        self._log = root / "client.log"
        self._binaries = binaries

    @property
    def log(self) -> str:
        """What the agent printed."""
        return self._log.read_text(errors="replace")

    async def run(self, task: str, *, url: str, session: str, but: Mapping[str, str] | None = None) -> int | None:
        """Let the agent do a task; its exit status, None if it was still at it and was ended.

        `but` says what is written otherwise in the files of the page.
        """
        for directory in (self.workspace, self._home / "tmp"):
            directory.mkdir(parents=True, exist_ok=True)
        for name, text in files_of(self.client.name).items():
            for written, instead in {PAGE_URL: url, **(but or {})}.items():
                text = text.replace(written, instead)
            (self.workspace / name).write_text(text)
        environ = {
            "PATH": f"{self._binaries}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self._home),
            "TMPDIR": str(self._home / "tmp"),
            "LANG": "C.UTF-8",
            "TASK": task,
            "SESSION": session,
        }
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                "sh", "-eu", "run.sh", cwd=self.workspace, env=environ, stdout=log, stderr=log
            )
            try:
                return await asyncio.wait_for(process.wait(), RUN_SECONDS)
            except TimeoutError:
                return None
            finally:
                while left := self._processes():
                    for pid in left:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    await asyncio.sleep(0.01)
                await process.wait()

    def _processes(self) -> list[int]:
        """Every process of the agent: OpenHands leaves a terminal multiplexer behind, in a session of its own."""
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if f"HOME={self._home}".encode() in environ.read_bytes().split(b"\0"):
                    found.append(int(environ.parent.name))
        return found


OpenWorkplace = Callable[[Client], Workplace]
"""Type of the fixture `workplace`."""
StartStage = Callable[..., Awaitable[tuple[RunningProxy, httpx.AsyncClient]]]
"""Type of the fixture `stage`."""
every_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
"""Marks a test that is run with each agent."""
