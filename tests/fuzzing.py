"""What both halves of the fuzz share: many calls at a time, and what must hold whatever was sent.

Callers get an answer out of the table of errors, the account balances, nothing fails unforeseen. Each case depends on
`SEED` and its number only.
"""

import asyncio
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Self

import orjson
from event_stream import DONE
from running_proxy import RunningProxy
from scripted_engine import ScriptedEngine, Turn, chat
from wire_agent import Answer, WireAgent

SEED = int(os.environ.get("SWITCHYARD_FUZZ_SEED", "20260301"))
AGENTS = 24
SESSIONS = 100
_MOST_SHOWN = 12


class Complaints(logging.Handler):
    """What was found, each with the case that shows it. What the program logs as an error is among it.

    As a context manager it listens to the log, and raises AssertionError at the end if there was anything.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._shown: list[str] = []
        self._total = 0

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        logging.getLogger().removeHandler(self)
        if kind is None:
            assert not self._total, f"seed {SEED}, {self._total} complaints:\n" + "\n".join(self._shown)

    def add(self, case: object, what: str) -> None:
        self._total += 1
        if len(self._shown) < _MOST_SHOWN:
            self._shown.append(f"case {case}: {what}")

    def emit(self, record: logging.LogRecord) -> None:
        self.add("unknown", f"logged: {logging.Formatter().format(record)[-1500:]}")


async def drive(
    port: int,
    request: Callable[[int], bytes],
    judge: Callable[[int, Answer], None],
    calls: int,
    within: float = 20,
) -> Counter[int]:
    """Make all calls, some at a time, each in so many seconds; how many were answered with which status."""
    numbers, statuses = count(), Counter[int]()
    began = time.monotonic()

    async def keep_busy() -> None:
        agent = WireAgent(port)
        while (number := next(numbers)) < calls:
            answer = await agent.call(request(number), leave_after=within)
            statuses[answer.status] += 1
            judge(number, answer)
        await agent.close()

    await asyncio.gather(*(keep_busy() for _ in range(AGENTS)))
    seconds = time.monotonic() - began
    print(f"seed {SEED}: {calls} calls in {seconds:.1f} s ({calls / seconds:.0f}/s), by status {dict(statuses)}")
    return statuses


async def check_accounts(running: RunningProxy, complaints: Complaints) -> Counter[str]:
    """No session is out of balance, and no call is in a state that needs a fault of the store or a kill."""
    total = Counter[str]()
    for session in (await running.client.get("/v1/sessions")).json()["sessions"]:
        account = session["accounting"]
        if account["begun"] != sum(account.values()) - account["begun"] or session["faults"]:
            complaints.add(session["session_id"], f"{account}, {session['faults']} faults")
        total.update(account)
    if total["lost"] or total["open"] or total["abandoned"]:
        complaints.add("any", f"a healthy store and a living process leave {total}")
    ledger = (await running.stats())["ledger"]
    if total["begun"] != ledger["begun"] or ledger["open"] or ledger["unwritten"]:
        complaints.add("any", f"{total} in the directory, {ledger} in the process")
    print(f"account: {dict(total)}")
    return total


def _strict(text: bytes) -> Any:
    """JSON as every reader takes it. Raises ValueError."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    orjson.loads(text)
    return json.loads(text, parse_constant=refuse)


def parsed(text: bytes) -> Any:
    # int() refuses more than 4300 digits.
    return json.loads(text, parse_int=lambda digits: int(digits[:4000]))


def valid_records(running: RunningProxy, complaints: Complaints) -> Iterator[dict[str, Any]]:
    for file in [*running.files(".json"), *running.files(".undelivered"), *running.files(".failed")]:
        try:
            record = _strict(file.read_bytes())
        except ValueError as error:
            complaints.add(file.name, f"not strict JSON: {error}")
        else:
            if record.get("is_valid"):
                yield record


def check_error(number: int, answer: Answer, complaints: Complaints) -> None:
    try:
        error = json.loads(answer.body)["error"]
        assert isinstance(error["message"], str), error
        assert answer.headers["x-switchyard-error-source"] in ("switchyard", "provider")
    except (ValueError, KeyError, TypeError, AssertionError) as problem:
        complaints.add(number, f"{answer.status} in another shape ({problem!r}): {answer.body[:300]!r}")


def check_stream(number: int, answer: Answer, complaints: Complaints) -> list[Any]:
    try:
        chunks = [DONE if data.strip() == b"[DONE]" else parsed(data) for data in event_data(answer.body)]
    except ValueError as problem:
        complaints.add(number, f"an event that is not JSON ({problem}): {answer.body[-500:]!r}")
        return []
    errors = [chunk["error"] for chunk in chunks if isinstance(chunk, dict) and chunk.get("error") is not None]
    if len(errors) + chunks.count(DONE) != 1 or not (errors or chunks[-1] == DONE):
        complaints.add(number, f"a stream must end once, by [DONE] or an error event: {answer.body[-500:]!r}")
    elif errors and not _is_error_event(chunks[-1]):
        complaints.add(number, f"an error event must be the last, in the error shape: {answer.body[-500:]!r}")
    return chunks


def _is_error_event(chunk: Any) -> bool:
    error = chunk.get("error") if isinstance(chunk, dict) else None
    return isinstance(error, dict) and isinstance(error.get("message"), str)


def event_data(stream: bytes) -> Iterator[bytes]:
    """The data of each event, with any line ends."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for block in text.split(b"\n\n"):
        lines = [
            line.partition(b":")[2].removeprefix(b" ") for line in block.split(b"\n") if line[:5] in (b"data:", b"data")
        ]
        if lines:
            yield b"\n".join(lines)


async def still_works(running: RunningProxy, engine: ScriptedEngine) -> None:
    engine.reply(chat(Turn(text="hello")))
    assert (await running.chat({}, "after")).status_code == 200
    assert await running.fates("after") == {"valid": 1}
