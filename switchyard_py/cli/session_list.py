"""The list of sessions: a line for each, by its first call."""

from __future__ import annotations

from dataclasses import asdict

import orjson

from switchyard_py.cli.session_sources import SessionSource
from switchyard_py.cli.terminal import Terminal, printable
from switchyard_py.store import SessionSummary

# With an id of 32 characters, and one fate that is not good, a line has 80 columns.
ID_COLUMNS = 32
# Of what a trainer has to know, in the order of its weight.
_FATES = {"lost": "red", "invalid": "red", "open": "yellow", "undelivered": "yellow", "abandoned": None, "failed": None}


def print_list(source: SessionSource, terminal: Terminal, *, as_json: bool) -> None:
    """Print all sessions, each as soon as it is known."""
    number = 0
    for number, summary in enumerate(source.summaries(), start=1):
        if as_json:
            described = {key: value for key, value in asdict(summary).items() if key != "cursor"}
            terminal.write(orjson.dumps(described).decode())
            continue
        if number == 1:
            heading = f"{'first call (UTC)':16} {'calls':>5}  {'session':{ID_COLUMNS}} calls are"
            terminal.write(terminal.style(heading, dim=True))
        began = summary.first_call_at[:16].replace("T", " ")
        session_id = f"{printable(summary.session_id):{ID_COLUMNS}}"
        terminal.write(f"{began:16} {summary.calls:>5}  {session_id} {_state(summary, terminal)}")
    if not number and not as_json:
        terminal.write("there are no sessions yet")


def _state(summary: SessionSummary, terminal: Terminal) -> str:
    counts = [(fate, summary.accounting.get(fate, 0)) for fate in _FATES]
    told = [terminal.style(f"{count} {fate}", fg=_FATES[fate]) for fate, count in counts if count]
    if not told:
        told.append(terminal.style("all valid", fg="green"))
    if summary.sealed:
        told.append(terminal.style("sealed", dim=True))
    return ", ".join(told)
