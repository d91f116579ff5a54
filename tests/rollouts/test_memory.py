"""The memory of a long session: what it says once, and little more while it is read."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.rollouts import MOST_TIMES_RECORD, write_session

from switchyard_py.rollouts import Lineage, Session, accept, build_lineage, read_session

CALLS, TOKENS = 30, 30_000


@pytest.mark.parametrize("read", [build_lineage, accept])
def test_a_session_is_kept_once_and_read_record_by_record(read: Callable[[Session], Lineage], tmp_path: Path) -> None:
    written = write_session(tmp_path / "envelope.json", CALLS, TOKENS)
    tracemalloc.start()
    try:
        lineage = read(read_session(written.path))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(lineage.forest.token_ids(CALLS - 1)) == TOKENS
    # Eight bytes for each id of the longest prompt, and some thousand for each call.
    assert kept < 8 * TOKENS + 10_000 * CALLS
    assert peak - kept < MOST_TIMES_RECORD * written.largest
