"""The page `docs/what-happens-when.md`, made from the rows. The tests play every row, and find what it says."""

from collections.abc import Iterator

from fault_matrix.agent_faults import AGENT
from fault_matrix.engine_faults import ENGINE
from fault_matrix.fault import Fault, Outcome
from fault_matrix.store_faults import STORE

PARTS = {"engine": ENGINE, "store": STORE, "agent": AGENT}
FAULTS: dict[str, Fault] = {
    f"{part}, {heading[0].lower()}{heading[1:]}: {fault.name}": fault
    for part, groups in PARTS.items()
    for heading, group in groups.items()
    for fault in group
}

INTRODUCTION = """\
# What happens when

<!-- Made by `make docs` from the rows in tests/fault_matrix, which `make test` plays. Do not edit. -->

One fault a row, in one model call of a session. Where a streamed call ends otherwise than a buffered one, that stands
after "stream:". Calls answered with text and with a tool call end alike.

- **The agent sees**: "its answer" is all of it, as the engine gave it. A number is the HTTP status; the `code` beside
  it is that of the proxy's own [error](http-api.md#errors), "the engine's words" are those of its body. "The
  beginning" of a stream never holds a complete tool call, nor an end; after an error event nothing follows.
- **The session says**: what became of the call in its [account](http-api.md#get-v1sessionsidcompletions), in brackets
  the reason. What follows "then" is so when the store works again.
- **You see**: the counts in `/v1/stats` that move, `/readyz` where it turns bad, and the log: the reason (level info,
  with the name of the call, its `x-request-id`), a warning or an error.
- **Sent**: how often the engine got the call, each time under the same `x-request-id`; "stopped" where the proxy ended
  the generation.

After each of them the proxy serves the next call.
"""


def page() -> str:
    """The text of the page."""
    return "".join([INTRODUCTION, *(text for part in PARTS for text in _part(part))])


def _part(part: str) -> Iterator[str]:
    yield f"\n## The {part}\n"
    for heading, faults in PARTS[part].items():
        yield f"\n### {heading}\n\n| the {part} ... | the agent sees | the session says | you see | sent |\n"
        yield "|---|---|---|---|---|\n"
        yield from map(_row, faults)


def _row(fault: Fault) -> str:
    cells = [_cell(fault, name) for name in ("agent", "session", "operator", "sent")]
    return f"| {fault.name} | {' | '.join(cells)} |\n"


def _cell(fault: Fault, name: str) -> str:
    outcomes = [fault.buffered, fault.streamed]
    one, other = (None if outcome is None else _words(outcome, name) for outcome in outcomes)
    if one is None or other is None or one == other:
        return one or other or ""
    return f"{one}; stream: {other}"


def _words(outcome: Outcome, name: str) -> str:
    words: str = getattr(outcome, name)
    return words
