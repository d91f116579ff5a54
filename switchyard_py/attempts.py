"""Repeating a request that the engine has not begun to work on.

Invariant: a request is sent again only where not one byte of it left, or where the engine refused it before it
generated anything. A 500, 502 or 504, a reply that broke off and one that did not come may each be a generation.
"""

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite

from switchyard_py.config import Target
from switchyard_py.upstream import NotConnected, Reply, Upstream, UpstreamError, UpstreamRequest, UpstreamTimeout

log = logging.getLogger(__name__)

# vLLM: 503 when its queue is full; 429 comes from gateways. Both before a token is generated.
REFUSED_BEFORE_GENERATING = (429, 503)
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 8.0


class Attempts:
    """Sends requests of one process; `repeated` counts those sent again."""

    def __init__(self, upstream: Upstream) -> None:
        self.repeated = 0
        self._upstream = upstream

    async def send(self, request: UpstreamRequest, target: Target, name: str) -> Reply:
        """Send a request, and again while `retries` and `retry_budget` of the target last.

        Returns the first reply that is no such refusal, else the last refusal. Between two attempts it waits a little
        more than the engine's `Retry-After` asks, else a growing while; a wait beyond the budget is not begun.
        Cancelling ends the wait at once. `name` is what the log calls the request.

        Raises what `Upstream.send` raises, of the last attempt.
        """
        deadline = time.monotonic() + target.retry_budget
        repeated = 0
        while True:
            try:
                reply = await self._upstream.send(request)
            except UpstreamError as error:
                error.repeated = repeated
                pause = _own_pause(repeated)
                if not _nothing_was_sent(error) or repeated == target.retries or time.monotonic() + pause > deadline:
                    raise
                why = str(error)
            else:
                if reply.status not in REFUSED_BEFORE_GENERATING:
                    return reply
                advised = advised_pause(reply.headers)
                pause = _own_pause(repeated) if advised is None else advised + _own_pause(0)
                if repeated == target.retries or time.monotonic() + pause > deadline:
                    return reply
                reply.close()
                why = f"HTTP {reply.status}"
            log.warning("call %s: target %s: %s; sent again in %.1f s", name, target.id, why, pause)
            with request.waiting:
                await asyncio.sleep(pause)
            repeated += 1
            self.repeated += 1


def advised_pause(headers: Mapping[str, str]) -> float | None:
    """Seconds that `Retry-After` asks for, as a number or a date; None without a usable one."""
    text = headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if isfinite(seconds) else None


def _own_pause(repeated: int) -> float:
    # Scattered, so that calls refused together do not come back together.
    seconds = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(repeated, 16))
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311


def _nothing_was_sent(error: UpstreamError) -> bool:
    return isinstance(error, NotConnected) or (isinstance(error, UpstreamTimeout) and error.which == "connect")
