"""The journal of generating calls: how many started, finished, were aborted or failed."""

import asyncio
import time
from collections import Counter, deque
from typing import Any, Literal, get_args

_KEPT = 1000

State = Literal["waiting", "running", "finished", "aborted", "failed"]


class Entry:
    """One generating call. The first end counts, unless a fault strikes after it."""

    def __init__(self, call: int, request_id: str, path: str, streamed: bool, prompt_tokens: int) -> None:
        self.call = call
        self.request_id = request_id
        self.path = path
        self.streamed = streamed
        self.prompt_tokens = prompt_tokens
        self.generated_tokens = 0
        self.state: State = "waiting"
        self.abort = asyncio.Event()
        self._times: dict[str, float] = {}
        self.mark("arrived")

    def mark(self, moment: Literal["arrived", "running", "first", "last"]) -> None:
        """Note the time of a moment in the life of the call."""
        self._times[moment] = time.monotonic()

    @property
    def is_open(self) -> bool:
        """Whether the call has not ended."""
        return self.state in ("waiting", "running")

    def end(self, state: Literal["finished", "aborted", "failed"]) -> None:
        """Settle how the call ended."""
        if self.is_open or state == "failed":
            self.state = state

    def metrics(self) -> dict[str, Any]:
        """The engine's `metrics` of a finished call."""
        arrived, running = self._times["arrived"], self._times["running"]
        first, last = self._times.get("first", running), self._times.get("last", running)
        gaps = self.generated_tokens - 1
        return {
            "time_to_first_token_ms": (first - arrived) * 1000,
            "generation_time_ms": (last - first) * 1000,
            "queue_time_ms": (running - arrived) * 1000,
            "mean_itl_ms": (last - first) * 1000 / gaps if gaps > 0 else None,
            "tokens_per_second": self.generated_tokens / max(last - arrived, 1e-9),
            "speculative_decoding": None,
        }

    def report(self) -> dict[str, Any]:
        """The call as JSON."""
        return {
            "call": self.call,
            "id": self.request_id,
            "path": self.path,
            "stream": self.streamed,
            "state": self.state,
            "prompt_tokens": self.prompt_tokens,
            "generated_tokens": self.generated_tokens,
        }


class Journal:
    """All calls since start as counts, the newest 1000 in detail."""

    def __init__(self) -> None:
        self._started = 0
        self._forgotten: Counter[State] = Counter()
        self._entries: deque[Entry] = deque()

    def start(self, request_id: str, path: str, *, streamed: bool, prompt_tokens: int) -> Entry:
        """Open the entry of the next call."""
        self._started += 1
        entry = Entry(self._started, request_id, path, streamed, prompt_tokens)
        self._entries.append(entry)
        while len(self._entries) > _KEPT and not self._entries[0].is_open:
            self._forgotten[self._entries.popleft().state] += 1
        return entry

    def open_entries(self) -> list[Entry]:
        """The calls that have not ended."""
        return [entry for entry in self._entries if entry.is_open]

    def report(self) -> dict[str, Any]:
        """Counts by state and the calls kept, as JSON."""
        counts = self._forgotten + Counter(entry.state for entry in self._entries)
        return {
            "started": self._started,
            **{state: counts[state] for state in get_args(State)},
            "requests": [entry.report() for entry in self._entries],
        }
