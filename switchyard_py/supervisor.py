"""One process or several on one socket.

The parent of several accepts nothing itself. It passes the signals to stop on, replaces a worker that dies, and ends
when all have ended. Between it and each worker lies a pipe: the worker says once that it serves, or why it cannot; the
parent gives its orders as signal numbers. A worker whose parent dies sees the end of the pipe and ends too.
"""

import asyncio
import contextlib
import logging
import shutil
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path

from switchyard_py.config import ServeSettings
from switchyard_py.logs import configure_logging
from switchyard_py.metrics import forget_process, shared_directory
from switchyard_py.server import AT_ONCE_SECONDS, STOP_SIGNALS, CannotStart, ProxyServer

log = logging.getLogger(__name__)

# Not `fork`: it would copy threads and event loop of a running parent.
SPAWN = get_context("spawn")
# What a worker may need beyond drain and grace to close its files and end.
CLOSE_SECONDS = 15.0
SERVING = b""
# A worker that ends sooner than this is not replaced at once: what ended it, such as a machine without memory, is
# likely to end the next one too. The wait doubles with each that does.
STEADY_SECONDS = 10.0
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 10.0


def serve(settings: ServeSettings, listener: socket.socket) -> int:
    """Serve on a bound socket, with as many processes as the settings say, until told to stop; the exit status.

    Raises CannotStart.
    """
    if settings.workers == 1:
        return ProxyServer(settings).serve_on(listener)
    with shared_directory() as directory:
        return asyncio.run(Supervisor(settings, listener, directory).run())


class Supervisor:
    """The parent of the workers."""

    def __init__(self, settings: ServeSettings, listener: socket.socket, metrics_dir: Path) -> None:
        """`metrics_dir` is where the workers keep their counts."""
        self._settings = replace(settings, metrics_dir=metrics_dir)
        self._metrics_dir = metrics_dir
        self._listener = listener
        self._workers: set[_Worker] = set()
        self._stopped_by: int | None = None
        self._stopping = asyncio.Event()
        self._status = 0
        self._fault: str | None = None

    async def run(self) -> int:
        """Keep the workers running until told to stop; the exit status.

        Raises CannotStart: a worker ended before it served.
        """
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        await asyncio.gather(*(self._keep_one() for _ in range(self._settings.workers)))
        if self._fault is not None:
            raise CannotStart(self._fault)
        log.info("all workers have ended")
        return self._status

    async def _keep_one(self) -> None:
        wait, loop = FIRST_WAIT_SECONDS, asyncio.get_running_loop()
        while self._stopped_by is None:
            started_at = loop.time()
            try:
                worker = _Worker(self._settings, self._listener)
            except OSError as error:
                self._give_up(f"cannot start a worker process: {error.strerror}")
                return
            self._workers.add(worker)
            await worker.end()
            forget_process(self._metrics_dir, worker.pid)
            self._workers.discard(worker)
            if worker.fault is not None:
                self._give_up(worker.fault)
            elif self._stopped_by is None and worker.exit_status == 0:
                log.info("%s, as it was told to; a new one starts", worker)
            elif self._stopped_by is None:
                if loop.time() - started_at >= STEADY_SECONDS:
                    wait = FIRST_WAIT_SECONDS
                log.error("%s; calls it left open count as abandoned, and a new one starts in %g s", worker, wait)
                await self._pause(wait)
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
            elif worker.exit_status != 0:
                log.warning("%s", worker)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond the beginning of the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _on_signal(self, number: int) -> None:
        if self._stopped_by is None:
            log.info("%s: passed on to %d workers", signal.Signals(number).name, len(self._workers))
            self._stop(number)
            return
        self._status = 128 + number
        self._order(number)
        self._kill_after(AT_ONCE_SECONDS + 1)

    def _give_up(self, fault: str) -> None:
        if self._stopped_by is None:
            self._fault = fault
            # As for Ctrl-C: workers without running calls need not drain.
            self._stop(signal.SIGINT)

    def _stop(self, number: int) -> None:
        self._stopped_by = number
        self._stopping.set()
        # The port is free when the last process that holds the socket has closed it.
        self._listener.close()
        self._order(number)
        server = self._settings.bundle.server
        self._kill_after(max(server.drain_seconds, server.grace_seconds) + CLOSE_SECONDS)

    def _order(self, number: int) -> None:
        for worker in self._workers:
            worker.order(number)

    def _kill_after(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._kill)

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()


class _Worker:
    """A worker process, seen from the parent."""

    def __init__(self, settings: ServeSettings, listener: socket.socket) -> None:
        self.exit_status: int | None = None
        self.fault: str | None = None
        """Why it could not start."""
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_work, args=(settings, listener, theirs))
        with _deaf():
            self._process.start()
        theirs.close()

    def __str__(self) -> str:
        return f"worker {self._process.pid} ended with status {self.exit_status}"

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    async def end(self) -> None:
        """Wait until it has ended; `exit_status` and `fault` are known then."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        await ended.wait()
        loop.remove_reader(self._process.sentinel)
        self._process.join()
        self.exit_status = self._process.exitcode
        self.fault = self._start_fault()
        self._pipe.close()

    def order(self, number: int) -> None:
        """Hand over a signal to stop."""
        with contextlib.suppress(OSError):  # it has ended
            self._pipe.send_bytes(bytes([number]))

    def kill(self) -> None:
        log.error("worker %s did not end in time and is killed", self._process.pid)
        self._process.kill()

    def _start_fault(self) -> str | None:
        try:
            told = self._pipe.recv_bytes()
        except (EOFError, OSError):
            # A negative status: it was killed, which is no fault of its own.
            return f"{self} before it served" if self.exit_status and self.exit_status > 0 else None
        return None if told == SERVING else told.decode()


class _WorkerServer(ProxyServer):
    """Ends when its parent says so, or is no more."""

    def __init__(self, settings: ServeSettings, pipe: Connection) -> None:
        super().__init__(settings)
        self._metrics_dir = settings.metrics_dir
        self._pipe = pipe
        self._ordered = False

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe.fileno(), self._obey)
        try:
            with super().capture_signals():
                yield
        finally:
            loop.remove_reader(self._pipe.fileno())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        with contextlib.suppress(OSError):  # the parent is gone, which `_obey` has seen or will see
            self._pipe.send_bytes(SERVING)

    def on_signal(self, number: int) -> None:
        # A terminal and a service manager signal the whole group: only the parent can tell a first from a second one.
        self.stop(number)

    def _obey(self) -> None:
        try:
            (number,) = self._pipe.recv_bytes()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            log.error("the parent process is gone")
            if self._metrics_dir is not None:
                shutil.rmtree(self._metrics_dir, ignore_errors=True)
            self.end_at_once(signal.SIGTERM)
            return
        if self._ordered:
            self.end_at_once(number)
        else:
            self._ordered = True
            self.stop(number)


@contextmanager
def _deaf() -> Generator[None]:
    """Hold back the signals to stop, for this process and those it starts: Ctrl-C in a terminal goes to all of them,
    and a worker that has not come to `_work` yet would answer with a traceback."""
    # Its own start, at the first process, would let the signals through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(settings: ServeSettings, listener: socket.socket, pipe: Connection) -> None:
    """A worker process from start to end."""
    # Until the server takes the signals over, the parent alone decides.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    configure_logging(settings.log_level)
    try:
        status = _WorkerServer(settings, pipe).serve_on(listener)
    except CannotStart as error:
        pipe.send_bytes(str(error).encode())
        status = 1
    sys.exit(status)
