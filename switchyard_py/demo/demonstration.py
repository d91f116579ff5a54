"""The demonstration from beginning to end."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from switchyard_py.app import build_app
from switchyard_py.config import Bundle, Route, ServeSettings, Target
from switchyard_py.demo.claims import Claim, Evidence, claims
from switchyard_py.demo.conversation import Reply, Unanswered, ask
from switchyard_py.demo.presentation import Presentation
from switchyard_py.demo.script import MODEL, QUESTION, REPLIES, SYSTEM, TOOL_RESULT
from switchyard_py.demo.stage import serving
from switchyard_py.simulator import SimulatorSettings, create_simulator
from switchyard_py.simulator.settings import Fault
from switchyard_py.store.names import SESSIONS, State, call_file, session_directory

TIMEOUT_SECONDS = 20.0
# A pace at which a person can follow: a token is a letter here.
TOKENS_PER_SECOND = 70.0
SECONDS_TO_FIRST_TOKEN = 0.4
PAUSE_SECONDS = 0.7


@dataclass(frozen=True)
class Demonstration:
    """A conversation of an agent with a simulated engine through the proxy, on bound loopback sockets.

    `log_dir` exists; `faults` break the engine; `paced` lets a person follow; `keep` leaves both servers running.
    """

    log_dir: Path
    engine_listener: socket.socket
    proxy_listener: socket.socket
    presentation: Presentation
    faults: tuple[Fault, ...] = ()
    paced: bool = False
    keep: bool = False
    # A directory of records can hold earlier demonstrations.
    session: str = field(default_factory=lambda: f"demo-{secrets.token_hex(3)}")

    async def run(self) -> list[Claim]:
        """Play it and return what was claimed. With `keep`, it ends by cancellation, unless a claim is untrue.

        The signals that end a process cancel the task that waits for it.

        Raises:
            Unanswered: a call got no complete reply.
            NotStarted: a server did not start.
        """
        _cancel_on_signals()
        async with serving(create_simulator(self._engine_settings()), self.engine_listener) as engine:
            app = build_app(self._proxy_settings(engine))
            async with serving(app, self.proxy_listener) as proxy:
                self.presentation.opening(engine, proxy, self.session)
                async with httpx.AsyncClient(base_url=proxy, timeout=TIMEOUT_SECONDS, trust_env=False) as client:
                    evidence = await self._converse(client)
                found = claims(evidence)
                self.presentation.records(self._directory, evidence)
                await self._pause()
                self.presentation.verdicts(found)
                if any(claim.fault for claim in found):
                    return found
                if self.keep:
                    self.presentation.suggestions(engine, proxy, self.session)
                    await asyncio.Event().wait()
                self.presentation.ways_on()
        return found

    async def _converse(self, client: httpx.AsyncClient) -> Evidence:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
        first = await self._call(1, "user", client, messages)
        results = [{"role": "tool", "tool_call_id": call["id"], "content": TOOL_RESULT} for call in first.tool_calls]
        messages = [*messages, first.message, *results]
        second = await self._call(2, "tool", client, messages)
        answer = await client.get(f"/v1/sessions/{self.session}/completions")
        if answer.status_code != 200:
            raise Unanswered(f"the session cannot be read: {answer.status_code} {answer.text}")
        session = answer.json()
        return Evidence([first, second], messages, session["completions"], session["accounting"])

    async def _call(self, number: int, role: str, client: httpx.AsyncClient, messages: list[dict[str, Any]]) -> Reply:
        await self._pause()
        self.presentation.asked(number, role, str(messages[-1]["content"]))
        try:
            reply = await ask(client, self.session, messages, self._is_recorded, self.presentation.heard)
            self.presentation.ended(reply)
        except Unanswered as error:
            raise Unanswered(f"call {number}: {error}") from error
        finally:
            self.presentation.broke_off()
        return reply

    async def _pause(self) -> None:
        await asyncio.sleep(PAUSE_SECONDS if self.paced else 0)

    @property
    def _directory(self) -> Path:
        return self.log_dir / SESSIONS / session_directory(self.session)

    def _is_recorded(self, uuid: str) -> bool:
        return (self._directory / call_file(uuid, State.COMMITTED)).exists()

    def _engine_settings(self) -> SimulatorSettings:
        return SimulatorSettings(
            model=MODEL,
            replies=REPLIES,
            faults=self.faults,
            ttft=SECONDS_TO_FIRST_TOKEN if self.paced else 0,
            tokens_per_second=TOKENS_PER_SECOND if self.paced else None,
        )

    def _proxy_settings(self, engine: str) -> ServeSettings:
        route = Route(MODEL, "model", Target(MODEL, f"{engine}/v1", engine="vllm"))
        bundle = Bundle(Path("demo"), (route,), route)
        host, port = self.proxy_listener.getsockname()
        return ServeSettings(bundle, self.log_dir, host, port, workers=1, log_level="error")


def _cancel_on_signals() -> None:
    """End the running task in order by the signals that end a process; what it then does is not cut short by more."""
    task = asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        if not task.cancelling():
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, cancel)
