"""The memory of a long session: what it says once, and little more while it is read."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from benchmarks.rollouts import MOST_TIMES_RECORD, SESSION, write_session
from session_records import assistant, envelope, record, user

from switchyard_py.rollouts import Lineage, Session, accept, build_lineage, read_session

CALLS, TOKENS = 30, 30_000


def test_a_session_without_one_continued_call_is_kept_once_too(tmp_path: Path) -> None:
    """Each prompt leaves out the first id the call before it generated, as without its reasoning."""
    records: list[Any] = []
    messages: list[Any] = []
    for call in range(60):
        ids = [number for number in range(20 * call) if number % 20 != 10]
        messages = [*messages, user(f"{call}" + "x" * 1000), assistant(f"reply {call}")]
        records.append(
            record(
                call % 50,
                [*ids, *range(20 * call, 20 * call + 10)],
                list(range(20 * call + 10, 20 * call + 20)),
                messages,
            )
        )
        records[-1]["uuid"] = str(call)
    path = tmp_path / "envelope.json"
    path.write_bytes(orjson.dumps(envelope(records)))
    del records
    tracemalloc.start()
    try:
        lineage = build_lineage(read_session(path))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(lineage.chains) == 60
    assert {each.position for each in lineage.forest.diagnoses} == {10 + 19 * call for call in range(59)}
    assert kept < 60 * 10_000


@pytest.mark.parametrize("source", ["the envelope", "the directory"])
@pytest.mark.parametrize("read", [build_lineage, accept])
def test_a_session_is_kept_once_and_read_record_by_record(
    read: Callable[[Session], Lineage], source: str, tmp_path: Path
) -> None:
    written = write_session(tmp_path, CALLS, TOKENS)
    tracemalloc.start()
    try:
        lineage = read(read_session(written.sources[source], SESSION))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(lineage.forest.token_ids(CALLS - 1)) == TOKENS
    # Eight bytes for each id of the longest prompt, and some thousand for each call.
    assert kept < 8 * TOKENS + 10_000 * CALLS
    assert peak - kept < MOST_TIMES_RECORD * written.largest
