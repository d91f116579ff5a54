"""Many sessions as files of training rows: one file a session, so that an export can be taken up where it ended.

A file appears under its name only when it is whole. `_manifest.jsonl` says first how the files are made, then what each
was made of: a session whose account is another one than when its file was written is exported again, and the file of
one that gives no rows any more is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson

from switchyard_py.cli.session_sources import SessionSource
from switchyard_py.cli.session_verdicts import refusal_json
from switchyard_py.rollouts import (
    Lineage,
    Mode,
    NothingToTrain,
    RolloutError,
    Session,
    SourceError,
    build_lineage,
    deliver,
)
from switchyard_py.rollouts.delivery import check_account
from switchyard_py.rollouts.row_files import write_rows
from switchyard_py.rollouts.rows import Row, call_rows, rows_of_chains
from switchyard_py.store import SessionSummary
from switchyard_py.store.names import session_directory

# Readers of Parquet directories leave out names that begin so.
MANIFEST = "_manifest.jsonl"

RowsOf = Literal["main", "all", "calls"]
Outcome = Literal["exported", "present", "refused", "unreadable"]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How files are made: their suffix without the dot, how sessions are read, and what a row is."""

    format: str
    mode: Mode
    rows: RowsOf


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of one session. `file` is its name in the directory; `refusal` as in the manifest."""

    session_id: str
    outcome: Outcome
    file: str | None = None
    rows: int = 0
    tokens: int = 0
    refusal: dict[str, Any] | None = None


class OtherExport(Exception):
    """The directory holds an export that was made otherwise. `str()` says how."""


class Export:
    """An export into a directory, which is made if need be.

    Raises OtherExport, and OSError when the directory cannot be written.
    """

    def __init__(self, directory: Path, options: ExportOptions) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._options = options
        self._manifest = directory / MANIFEST
        made, *entries = _take_up(self._manifest) or [asdict(options)]
        if made != asdict(options):
            raise OtherExport(", ".join(f"{key} {value}" for key, value in made.items()))
        self._known = {entry["session_id"]: entry for entry in entries}

    def run(self, source: SessionSource, summaries: Iterable[SessionSummary]) -> Iterator[Exported]:
        """Export sessions one by one. Raises OSError when a file cannot be written."""
        with self._manifest.open("ab") as manifest:
            if not manifest.tell():
                _add(manifest, asdict(self._options))
            for summary in summaries:
                file = f"{session_directory(summary.session_id)}.{self._options.format}"
                if self._is_present(summary, file):
                    entry = self._known[summary.session_id]
                    yield Exported(summary.session_id, "present", file, entry["rows"], entry["tokens"])
                    continue
                result, accounting = self._export(source, summary.session_id, file)
                _add(manifest, _entry(result, accounting))
                yield result

    def _is_present(self, summary: SessionSummary, file: str) -> bool:
        entry = self._known.get(summary.session_id, {})
        made_of = (entry.get("file"), entry.get("accounting"))
        return made_of == (file, summary.accounting) and (self._directory / file).is_file()

    def _export(self, source: SessionSource, session_id: str, file: str) -> tuple[Exported, dict[str, int] | None]:
        path, counted = self._directory / file, _Counted()
        try:
            lineage, rows = self._rows(source.session(session_id))
            write_rows(path, counted.through(rows))
        except RolloutError as refusal:
            # What it held is no longer what the session gives.
            path.unlink(missing_ok=True)
            outcome: Outcome = "unreadable" if isinstance(refusal, SourceError) else "refused"
            return Exported(session_id, outcome, refusal=refusal_json(refusal)), None
        accounting = None if lineage.accounting is None else dict(lineage.accounting)
        return Exported(session_id, "exported", file, counted.rows, counted.tokens), accounting

    def _rows(self, session: Session) -> tuple[Lineage, Iterator[Row]]:
        """Raises RolloutError when there is none."""
        if self._options.rows == "calls":
            lineage = self._whole(session)
            if not any(verdict.trainable for verdict in lineage.call_verdicts):
                raise NothingToTrain("not_trainable", "no call of it is trainable")
            return lineage, call_rows(lineage)
        delivery = deliver(session, self._options.mode, self._options.rows)
        return delivery.lineage, rows_of_chains(delivery.lineage, delivery.chains)

    def _whole(self, session: Session) -> Lineage:
        if self._options.mode == "strict":
            return deliver(session, "strict").lineage
        lineage = build_lineage(session)
        check_account(lineage)
        return lineage


class _Counted:
    """Counts rows on their way."""

    def __init__(self) -> None:
        self.rows = self.tokens = 0

    def through(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self.rows += 1
            self.tokens += len(row.input_ids)
            yield row


def _entry(result: Exported, accounting: dict[str, int] | None) -> dict[str, Any]:
    """What the manifest says of a session."""
    if result.refusal is not None:
        return {"session_id": result.session_id, "refusal": result.refusal}
    made = {"file": result.file, "rows": result.rows, "tokens": result.tokens}
    return {"session_id": result.session_id, **made, "accounting": accounting}


def _add(manifest: BinaryIO, entry: dict[str, Any]) -> None:
    manifest.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))
    manifest.flush()


def _take_up(manifest: Path) -> list[dict[str, Any]]:
    """The lines of a manifest, none where there is none. One that a crash cut off is removed."""
    try:
        whole, end, _ = manifest.read_bytes().rpartition(b"\n")
    except FileNotFoundError:
        return []
    os.truncate(manifest, len(whole + end))
    return [orjson.loads(line) for line in whole.splitlines()]
