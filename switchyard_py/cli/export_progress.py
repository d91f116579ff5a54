"""What an export tells while it runs: a bar on a terminal, and at the end what became of the sessions."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import orjson
import typer

from switchyard_py.cli.call_tree import counted
from switchyard_py.cli.session_export import MANIFEST, Exported
from switchyard_py.cli.terminal import Terminal, printable


def follow(results: Iterator[Exported], total: int, output: Path, *, as_json: bool) -> int:
    """Run an export to its end; how many sessions could not be read.

    The bar goes to standard error; the rest, as lines of JSON or as a summary, to standard output.
    """
    terminal = Terminal(sys.stdout)
    done: list[Exported] = []
    with typer.progressbar(
        results, total, label="exporting", file=sys.stderr, show_pos=True, hidden=not sys.stderr.isatty()
    ) as bar:
        for result in bar:
            done.append(result)
            if as_json:
                said = {key: value for key, value in asdict(result).items() if value is not None}
                terminal.write(orjson.dumps(said).decode())
    if not as_json:
        terminal.write(*_summary(done, output, terminal))
    return sum(result.outcome == "unreadable" for result in done)


def _summary(done: list[Exported], output: Path, terminal: Terminal) -> Iterator[str]:
    outcomes = Counter(result.outcome for result in done)
    written = [result for result in done if result.file is not None]
    rows, tokens = sum(result.rows for result in written), sum(result.tokens for result in written)
    yield (
        f"{counted(len(written), 'file')} in {output}: {counted(rows, 'row')}, {tokens} tokens"
        + (f"; {outcomes['present']} of them were there already" if outcomes["present"] else "")
    )
    refused = [{"session_id": result.session_id, **result.refusal} for result in done if result.refusal is not None]
    if not refused:
        return
    yield f"{counted(len(refused), 'session')} not exported:"
    reasons: dict[str, list[str]] = defaultdict(list)
    for result in refused:
        reasons[result["code"]].append(f"{result['session_id']}: {result['message']}")
    for code, texts in sorted(reasons.items(), key=lambda item: -len(item[1])):
        yield from terminal.wrap(f"{len(texts):>6}  {code}, such as {printable(texts[0])}", "  ", " " * 10)
    yield from terminal.wrap(
        f"`switchyard sessions verify ID` says more of each; all of them are in {output / MANIFEST}", "", ""
    )
