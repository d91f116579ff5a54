"""Rows on disk: Parquet or JSON Lines, as the name of the file says (`.parquet`, `.jsonl`).

Both hold the same columns and every number exactly. A file appears under its name only when it is whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow.parquet import ParquetFile, ParquetWriter

from switchyard_py.rawjson import encode
from switchyard_py.rollouts.rows import Row, Segment
from switchyard_py.strictjson import decode

# Rows are held in memory until so many tokens are together, which then are one row group of a Parquet file.
GROUP_TOKENS = 1_000_000

_SEGMENT = pa.struct([("call", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("trained", pa.bool_())])
SCHEMA = pa.schema(
    [
        ("session_id", pa.string()),
        ("input_ids", pa.list_(pa.int64())),
        ("loss_mask", pa.list_(pa.uint8())),
        ("logprobs", pa.list_(pa.float64())),
        ("segments", pa.list_(_SEGMENT)),
        ("reward", pa.float64()),
        # JSON text: rows of one file may tell different things.
        ("metadata", pa.string()),
    ]
)

F = TypeVar("F", bound=Callable[..., Any])


def write_rows(path: Path, rows: Iterable[Row]) -> int:
    """Write rows to a file, replacing one of the same name; how many. Raises ValueError for other kinds of files."""
    write = _by_suffix(path, _write_jsonl, _write_parquet)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        count = write(partial, rows)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file, in order. Raises ValueError for other kinds of files."""
    return _by_suffix(path, _read_jsonl, _read_parquet)(path)


def _by_suffix(path: Path, jsonl: F, parquet: F) -> F:
    kinds = {".jsonl": jsonl, ".parquet": parquet}
    if path.suffix not in kinds:
        raise ValueError(f"{path.name}: a file of rows is named .parquet or .jsonl")
    return kinds[path.suffix]


def _write_jsonl(path: Path, rows: Iterable[Row]) -> int:
    count = 0
    with path.open("wb") as file:
        for row in rows:
            file.write(row.to_json() + b"\n")
            count += 1
    return count


def _read_jsonl(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for line in file:
            yield _row(**decode(line))


def _write_parquet(path: Path, rows: Iterable[Row]) -> int:
    count = 0
    with ParquetWriter(path, SCHEMA) as writer:
        for group in _groups(rows):
            columns = {name: [getattr(row, name) for row in group] for name in SCHEMA.names}
            columns["segments"] = [[asdict(segment) for segment in row.segments] for row in group]
            columns["metadata"] = [encode(row.metadata).decode() for row in group]
            writer.write_table(pa.table(columns, SCHEMA))
            count += len(group)
    return count


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    tokens = 0
    for row in rows:
        group.append(row)
        tokens += len(row.input_ids)
        if tokens >= GROUP_TOKENS:
            yield group
            group, tokens = [], 0
    if group:
        yield group


def _read_parquet(path: Path) -> Iterator[Row]:
    with ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            for index in range(len(table)):
                cells = {name: table.column(name)[index] for name in SCHEMA.names}
                arrays = {name: cells.pop(name).values.to_numpy() for name in ("input_ids", "loss_mask", "logprobs")}
                values = {name: cell.as_py() for name, cell in cells.items()}
                yield _row(**arrays, **values | {"metadata": decode(values["metadata"].encode())})


def _row(input_ids: Any, loss_mask: Any, logprobs: Any, segments: list[dict[str, Any]], **others: Any) -> Row:
    return Row(
        input_ids=np.asarray(input_ids, np.int64),
        loss_mask=np.asarray(loss_mask, np.uint8),
        logprobs=np.asarray(logprobs, np.float64),
        segments=tuple(Segment(**segment) for segment in segments),
        **others,
    )
