"""Generation: a planned reply becomes a sequence of tokens, under the request's limits and the settings' timing.

What stops it, in the engine's order of precedence: an end token, a stop token id, a stop string, the length. The ids
keep the whole last token while the text ends before the stop; while stop strings are watched for, the text lags the
ids by the longest of them.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from switchyard_py.simulator.journal import Entry, Journal
from switchyard_py.simulator.logprobs import Candidate, Prefix
from switchyard_py.simulator.requests import SamplingBody
from switchyard_py.simulator.settings import SimulatorSettings
from switchyard_py.simulator.tokenizer import CONTROL_TOKENS, END_OF_TEXT, IM_END, TextDecoder, encode


class Token(NamedTuple):
    """One generated token."""

    token: int
    text: str
    """The text it completes, special tokens included."""
    candidates: list[Candidate]
    """Itself first, then the most likely others asked for."""


class Step(NamedTuple):
    """What one choice gained in one step; the step that reports an abort has no token."""

    choice: int
    tokens: list[Token]
    text: str
    """The text released by this step."""
    finish_reason: str | None = None
    stop_reason: int | str | None = None


Steps = AsyncGenerator[list[Step], None]
"""A running generation: the steps of all choices, one list for each tick of the clock."""


@dataclass(frozen=True)
class Job:
    """One prompt and the planned reply of each of its choices."""

    body: SamplingBody
    prompt: Sequence[int]
    plans: Sequence[str]
    top: int = 0
    """How many most likely tokens to report beside the generated one."""
    skip_control_tokens: bool = False
    first_choice: int = 0


class Generator:
    """Runs jobs: slots, pause, abort and pace."""

    def __init__(self, settings: SimulatorSettings, journal: Journal) -> None:
        self._settings = settings
        self._journal = journal
        self._slots = asyncio.Semaphore(settings.slots) if settings.slots else None
        self._resumed = asyncio.Event()
        self._resumed.set()

    @property
    def is_paused(self) -> bool:
        """Whether new calls hang until `resume`."""
        return not self._resumed.is_set()

    def pause(self, *, abort: bool) -> None:
        """Let new calls wait; with `abort` the running ones end now."""
        self._resumed.clear()
        if abort:
            self.abort()

    def resume(self) -> None:
        """Let calls run again."""
        self._resumed.set()

    def abort(self, request_ids: Sequence[str] = ()) -> None:
        """End the named calls, or every open one, with finish reason "abort"."""
        for entry in self._journal.open_entries():
            if not request_ids or entry.request_id in request_ids:
                entry.abort.set()

    async def run(self, jobs: Sequence[Job], entry: Entry) -> Steps:
        """The steps of all choices, one list for each tick of the clock."""
        sequences = [
            _Sequence(job, job.first_choice + index, plan, self._settings.max_model_len)
            for job in jobs
            for index, plan in enumerate(job.plans)
        ]
        async with self._slot(), aclosing(self._ticks(sequences, entry)) as ticks:
            async for steps in ticks:
                yield steps
        entry.end("aborted" if entry.abort.is_set() else "finished")

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        await self._resumed.wait()
        if self._slots is None:
            yield
            return
        async with self._slots:
            yield

    async def _ticks(self, sequences: "list[_Sequence]", entry: Entry) -> Steps:
        entry.state = "running"
        entry.mark("running")
        due = asyncio.get_running_loop().time() + self._settings.ttft
        interval = 1 / self._settings.tokens_per_second if self._settings.tokens_per_second else 0.0
        while sequences:
            await _sleep_until(due, entry.abort)
            if entry.abort.is_set():
                yield [sequence.abort() for sequence in sequences]
                return
            entry.mark("last" if entry.generated_tokens else "first")
            entry.generated_tokens += len(sequences)
            yield [sequence.advance() for sequence in sequences]
            sequences = [sequence for sequence in sequences if not sequence.is_finished]
            due += interval


class _Sequence:
    def __init__(self, job: Job, choice: int, plan: str, max_model_len: int) -> None:
        self._body = job.body
        self._choice = choice
        self._top = job.top
        self._skipped = CONTROL_TOKENS if job.skip_control_tokens else frozenset()
        room = max_model_len - len(job.prompt)
        self._left = room if job.body.limit is None else min(room, job.body.limit)
        self._plan = iter(encode(plan))
        self._prefix = Prefix(job.prompt)
        self._decoder = TextDecoder()
        self._text = ""
        self._released = 0
        # Text that may still turn out to be the beginning of a stop string is held back.
        watched = [] if job.body.include_stop_str_in_output else job.body.stops
        self._lag = max((len(stop) for stop in watched), default=1) - 1
        self.is_finished = False

    def advance(self) -> Step:
        """The next token."""
        token = next(self._plan, IM_END)
        candidates = self._prefix.candidates(token, self._top)
        self._prefix.extend(token)
        self._left -= 1
        text = self._decoder.push(token)
        generated = Token(token, text, candidates)
        if token in (IM_END, END_OF_TEXT) and not self._body.ignore_eos:
            return self._finish([generated], "stop", None if token == IM_END else token)
        if token in (self._body.stop_token_ids or ()):
            return self._finish([generated], "stop", token)
        searched = len(self._text)
        self._text += "" if token in self._skipped else text
        stop = self._cut_at_stop(searched)
        if stop is not None:
            return self._finish([generated], "stop", stop)
        if self._left <= 0:
            return self._finish([generated], "length", None)
        return Step(self._choice, [generated], self._release(len(self._text) - self._lag))

    def abort(self) -> Step:
        """The end without a token."""
        return self._finish([], "abort", None)

    def _finish(self, tokens: list[Token], reason: str, stop: int | str | None) -> Step:
        self.is_finished = True
        return Step(self._choice, tokens, self._release(len(self._text)), reason, stop)

    def _cut_at_stop(self, searched: int) -> str | None:
        for stop in self._body.stops:
            found = self._text.find(stop, max(0, searched - len(stop) + 1))
            if found >= 0:
                kept = len(stop) if self._body.include_stop_str_in_output else 0
                self._text = self._text[: found + kept]
                return stop
        return None

    def _release(self, until: int) -> str:
        start, self._released = self._released, max(self._released, until)
        return self._text[start : self._released]


async def _sleep_until(due: float, abort: asyncio.Event) -> None:
    delay = due - asyncio.get_running_loop().time()
    if delay <= 0:
        # The event loop gets a turn for every token, so that a disconnect or an abort stops the generation at once.
        await asyncio.sleep(0)
        return
    try:
        async with asyncio.timeout(delay):
            await abort.wait()
    except TimeoutError:
        return


def group_steps(steps: Sequence[Step]) -> Step:
    """Steps of one choice as one, as the engine groups tokens with `stream_interval`."""
    last = steps[-1]
    tokens = [token for step in steps for token in step.tokens]
    return last._replace(tokens=tokens, text="".join(step.text for step in steps))
