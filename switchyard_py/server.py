"""The server of one process, from its start to its end.

A signal to stop begins the drain: model calls are refused and `/readyz` says so, while the listener stays open. Then
it closes, and running calls have until `grace_seconds` after the signal; those that need longer are told of the end in
their dialect. A second signal makes the grace end at once. Services close last, the ledger last of them.
"""

import asyncio
import gc
import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from switchyard_py.app import build_app
from switchyard_py.capture.ledger import Ledger
from switchyard_py.config import CaptureSettings, ServeSettings
from switchyard_py.connection import ServerConfig
from switchyard_py.lifecycle import RunningCalls
from switchyard_py.services import ledger_options

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# How long a thread that takes a large body apart may keep the event loop waiting (CPython's default: 5 ms).
SWITCH_SECONDS = 0.001
DRAIN_POLL_SECONDS = 0.02
# What a call that is told of the end may take to be marked and answered; an agent that does not read is then cut off.
FAREWELL_SECONDS = 0.5
# After a second signal the process is gone by then, even if a disk hangs.
AT_ONCE_SECONDS = 2.0


class CannotStart(Exception):
    """The server cannot serve; `str()` says why."""


class ProxyServer(uvicorn.Server):
    """Serves the proxy. After the run `status` is the exit status of the process."""

    def __init__(self, settings: ServeSettings) -> None:
        """Raises CannotStart: the directory of the records cannot be used."""
        # Here and not in the application's start: the server would answer a failure there with a traceback.
        ledger = None if settings.log_dir is None else _open_ledger(settings.log_dir, settings.bundle.capture)
        self.status = 0
        self._drain_seconds = settings.bundle.server.drain_seconds
        self._grace_seconds = settings.bundle.server.grace_seconds
        self._calls = RunningCalls()
        self._stopped_by: int | None = None
        self._drain_ends = 0.0
        self._grace_ends = 0.0
        super().__init__(_config(settings, ledger, self._calls))

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Obey the signals to stop as long as the server runs."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.on_signal, number)
        try:
            yield
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def on_signal(self, number: int) -> None:
        """The first signal stops the server, a second one ends it at once."""
        if self._stopped_by is None:
            self.stop(number)
        else:
            self.end_at_once(number)

    def stop(self, number: int) -> None:
        """Begin to drain; the server ends by itself. Does nothing when it has begun."""
        if self._stopped_by is not None:
            return
        self._stopped_by = number
        self.should_exit = True
        self._calls.drain()
        loop = asyncio.get_running_loop()
        self._drain_ends = loop.time() + self._drain_seconds
        self._grace_ends = loop.time() + self._grace_seconds
        loop.call_at(self._grace_ends, self._end_of_grace)
        log.info(
            "%s: no new calls; %s may run for %g s",
            signal.Signals(number).name,
            _counted(self._calls.count),
            self._grace_seconds,
        )

    def end_at_once(self, number: int) -> None:
        """End running calls now, and the process very soon, with the status of one that the signal ended."""
        self.stop(number)
        self.status = 128 + number
        log.warning("%s: to end at once, %s told", signal.Signals(number).name, _counted(self._calls.count))
        self._calls.end("The proxy was told to end at once.")
        self._drain_ends = self._grace_ends = 0.0
        asyncio.get_running_loop().call_later(FAREWELL_SECONDS, self._cut_off)
        last_resort = threading.Timer(AT_ONCE_SECONDS, os._exit, [self.status])
        last_resort.daemon = True
        last_resort.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let load balancers see that the process goes, then close everything in order."""
        loop = asyncio.get_running_loop()
        while not self._drained():  # noqa: ASYNC110  time, signals and calls all have a say
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        log.info("the listener closes; %s running", _counted(self._calls.count))
        left = max(0.0, self._grace_ends - loop.time()) + FAREWELL_SECONDS
        loop.call_later(left, self._cut_off)
        # What does not even end then, such as a reader of a dead disk, is cancelled. The server takes whole seconds.
        self.config.timeout_graceful_shutdown = math.ceil(left + FAREWELL_SECONDS)
        await super().shutdown(sockets)
        log.info("ended")

    def _drained(self) -> bool:
        if asyncio.get_running_loop().time() >= self._drain_ends:
            return True
        # Ctrl-C comes from a person at a terminal, who has no load balancer and does not want to wait for nothing.
        return self._stopped_by == signal.SIGINT and not self._calls.count

    def _end_of_grace(self) -> None:
        if self._calls.count:
            log.warning(
                "%s did not end within %g s of the signal: ended now", _counted(self._calls.count), self._grace_seconds
            )
        self._calls.end(
            f"The proxy is shutting down, and the call did not end within {self._grace_seconds:g} s, "
            "the limit `server.grace_seconds` of this proxy."
        )

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def serve_on(self, listener: socket.socket) -> int:
        """Serve on a bound socket until told to stop; the exit status of the process.

        Raises CannotStart.
        """
        sys.setswitchinterval(SWITCH_SECONDS)
        # What is here by now stays. A look through it for garbage keeps the event loop waiting for 30 ms and more, and
        # at 32 connections these looks cost a small call 6 to 9 %.
        gc.freeze()
        try:
            self.run([listener])
        except SystemExit:
            # The server's way to say that the application failed to start.
            raise CannotStart("the server cannot start: the log says why") from None
        return self.status


def _open_ledger(directory: Path, capture: CaptureSettings) -> Ledger:
    try:
        return Ledger.open(directory, **ledger_options(capture))
    except OSError as error:
        raise CannotStart(f"cannot use the record directory {directory}: {error.strerror}") from error


def _config(settings: ServeSettings, ledger: Ledger | None, calls: RunningCalls) -> ServerConfig:
    def opened(*_: object, **__: object) -> Ledger:
        assert ledger is not None
        return ledger

    return ServerConfig(
        build_app(settings, open_ledger=opened, calls=calls),
        agent_stall_seconds=settings.bundle.server.agent_stall_seconds,
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        loop="uvloop",
    )


def _counted(calls: int) -> str:
    return "1 call" if calls == 1 else f"{calls} calls"
