"""Scripted faults at work on a reply."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from switchyard_py.simulator.errors import EngineDead, fault_error
from switchyard_py.simulator.journal import Entry
from switchyard_py.simulator.settings import Fault
from switchyard_py.simulator.streaming import Chunk, ConnectionCut, JsonReply


class CallFaults:
    """The faults that strike one call."""

    def __init__(self, faults: Sequence[Fault], entry: Entry, request_id: str | None) -> None:
        struck = [fault for fault in faults if fault.applies(entry.call, request_id)]
        self._entry = entry
        self._delay = sum(fault.delay for fault in struck)
        self._status = next((fault.status for fault in struck if fault.status is not None), None)
        self._cut_after = _least(fault.cut_after for fault in struck)
        self._die_after = _least(fault.die_after for fault in struck)
        self._stripped = frozenset(key for fault in struck for key in fault.strip)

    async def before(self, *, streamed: bool) -> None:
        """Wait the delay. Raises EngineError where the call is to be refused."""
        await asyncio.sleep(self._delay)
        if self._status is not None:
            self._entry.end("failed")
            raise fault_error(self._status)
        if self._die_after is not None and not streamed:
            self._entry.end("failed")
            raise EngineDead

    def on_reply(self, reply: Chunk) -> JsonReply:
        """The reply without the stripped keys, broken off in the middle where a fault says so."""
        if self._cut_after is not None:
            self._entry.end("failed")
        return JsonReply(self._strip(reply), cut=self._cut_after is not None)

    async def on_chunks(self, chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[Chunk, None]:
        """The chunks until the fault strikes. Raises ConnectionCut or EngineDead."""
        sent = 0
        async with aclosing(chunks):
            while True:
                if sent == self._cut_after:
                    self._entry.end("failed")
                    raise ConnectionCut
                if sent == self._die_after:
                    self._entry.end("failed")
                    raise EngineDead
                chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield self._strip(chunk)
                sent += 1

    def _strip(self, value: Chunk) -> Chunk:
        return _without(value, self._stripped) if self._stripped else value


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _without(value: Any, keys: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, keys) for key, item in value.items() if key not in keys}
    if isinstance(value, list):
        return [_without(item, keys) for item in value]
    return value
