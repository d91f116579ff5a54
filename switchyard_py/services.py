"""The parts of one running process, opened and closed in order."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from switchyard_py.access import Access
from switchyard_py.access_log import AccessLog
from switchyard_py.attempts import Attempts
from switchyard_py.capture.ledger import Ledger
from switchyard_py.config import CaptureSettings, ServeSettings
from switchyard_py.lifecycle import RunningCalls
from switchyard_py.metrics import Metrics
from switchyard_py.proxy import Proxy
from switchyard_py.routing.catalogue import Catalogue
from switchyard_py.routing.table import RouteTable
from switchyard_py.sampler import Sampler
from switchyard_py.store import Retention, SessionReader
from switchyard_py.tool_arguments import GeneratedArguments
from switchyard_py.upstream import AiohttpUpstream
from switchyard_py.worker import WorkThread

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Services:
    """What the endpoints work with. `ledger`, `reader` and `log_dir` are None when nothing is captured."""

    proxy: Proxy
    access: Access
    table: RouteTable
    catalogue: Catalogue
    upstream: AiohttpUpstream
    ledger: Ledger | None
    reader: SessionReader | None
    log_dir: Path | None
    metrics: Metrics
    sampler: Sampler
    counting: WorkThread
    """Writes out the counts: with many workers that would keep the event loop busy."""
    rebuilding: WorkThread
    """Makes rollouts of whole sessions, one at a time, so that many at once do not keep the event loop waiting."""
    calls: RunningCalls


@asynccontextmanager
async def open_services(
    settings: ServeSettings, calls: RunningCalls, open_ledger: Callable[..., Ledger] = Ledger.open
) -> AsyncIterator[Services]:
    """Open everything inside the running loop; `open_ledger` opens the account of the capture directory.

    `calls` will know the model calls that run.

    Raises:
        OSError: the capture directory or the access log cannot be used.
    """
    bundle, log_dir = settings.bundle, settings.log_dir
    metrics = Metrics(settings.metrics_dir)
    access_log = None if settings.access_log is None else AccessLog(settings.access_log)
    listeners = [metrics.count] if access_log is None else [metrics.count, access_log.write]
    ledger = (
        None if log_dir is None else await asyncio.to_thread(open_ledger, log_dir, **ledger_options(bundle.capture))
    )
    reader = None if log_dir is None or ledger is None else SessionReader(log_dir, ledger.writer)
    workbench, counting, rebuilding = WorkThread("large-bodies"), WorkThread("metrics"), WorkThread("rollouts")
    upstream = AiohttpUpstream()
    catalogue = Catalogue(upstream)
    attempts = Attempts(upstream)
    table = RouteTable(bundle, catalogue)
    access = Access(bundle.auth)
    arguments = GeneratedArguments(reader)
    proxy = Proxy(
        table,
        attempts,
        ledger,
        workbench,
        access,
        bundle.capture,
        bundle.sessions,
        bundle.server,
        listeners,
        calls,
        arguments,
    )
    sampler = Sampler(metrics, calls, upstream, attempts, ledger, reader)
    sampling = asyncio.create_task(sampler.run())
    try:
        yield Services(
            proxy,
            access,
            table,
            catalogue,
            upstream,
            ledger,
            reader,
            log_dir,
            metrics,
            sampler,
            counting,
            rebuilding,
            calls,
        )
    finally:
        sampling.cancel()
        await asyncio.wait([sampling])
        await catalogue.close()
        await upstream.close()
        workbench.close(CLOSE_SECONDS)
        counting.close(CLOSE_SECONDS)
        rebuilding.close(CLOSE_SECONDS)
        if access_log is not None:
            access_log.close(CLOSE_SECONDS)
        if ledger is not None and not await ledger.close(CLOSE_SECONDS):
            log.error("the capture directory did not answer for %g s; its open calls count as abandoned", CLOSE_SECONDS)


def ledger_options(capture: CaptureSettings) -> dict[str, Any]:
    """What the bundle says of the ledger, as arguments of `Ledger.open`."""
    return {
        "durable": capture.durability == "power",
        "begin_seconds": capture.begin_timeout,
        "min_free_bytes": capture.min_free_bytes,
        "retention": Retention(capture.retention_seconds, capture.retention_unsealed),
    }
