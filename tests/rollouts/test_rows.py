"""Rows hold all of a chain, and give back exactly what was captured of each call, also from disk."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import ParquetFile
from rollout_records import call, envelope, forest_of

from switchyard_py.rollouts import Lineage, NothingToTrain, build_lineage, read_session, row_files
from switchyard_py.rollouts.forest import Forest
from switchyard_py.rollouts.row_files import read_rows, write_rows
from switchyard_py.rollouts.rows import Row, Segment, call_rows, chain_rows, row_of, triples

IDS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8)
LOG_PROB = st.floats(max_value=0, allow_nan=False, allow_infinity=False)
DTYPES = ["int64", "uint8", "float64"]
USER = {"role": "user", "content": "hi"}
REPLY = {"role": "assistant", "content": "hello"}
Captured = list[tuple[list[int], list[int], list[float]]]


@st.composite
def chains(draw: st.DrawFn) -> Captured:
    """The triples of the calls of a chain."""
    captured: Captured = []
    before: list[int] = []
    for _ in range(draw(st.integers(1, 5))):
        prompt = before + draw(IDS.filter(bool) if not before else IDS)
        generated = draw(IDS.filter(bool))
        log_probs = draw(st.lists(LOG_PROB, min_size=len(generated), max_size=len(generated)))
        captured.append((prompt, generated, log_probs))
        before = prompt + generated
    return captured


def forest(captured: Captured) -> Forest:
    messages = [[USER, *[REPLY, USER] * number, REPLY] for number in range(len(captured))]
    return forest_of([call(said, *triple) for said, triple in zip(messages, captured, strict=True)])


def row(captured: Captured, **options: Any) -> Row:
    return row_of(forest(captured), range(len(captured)), **options)


def captured_of(row: Row) -> Captured:
    return [
        (
            triple.prompt_token_ids.tolist(),
            triple.generation_token_ids.tolist(),
            triple.generation_log_probs.tolist(),
        )
        for triple in triples(row)
    ]


def exact(captured: Captured) -> str:
    """What == does not tell apart: 1 and 1.0, 0.0 and -0.0."""
    return repr(captured)


@given(chains())
def test_a_row_gives_back_what_was_captured(captured: Captured) -> None:
    assert exact(captured_of(row(captured))) == exact(captured)


@given(chains(), st.sets(st.integers(0, 4)))
def test_the_mask_is_one_exactly_on_generated_ids_that_are_trained(captured: Captured, untrained: set[int]) -> None:
    made = row(captured, untrained=untrained)
    mask: list[int] = []
    generated: list[int] = []
    for number, (prompt, generation, _) in enumerate(captured):
        mask += [0] * (len(prompt) - len(mask)) + [int(number not in untrained)] * len(generation)
        generated += [0] * (len(prompt) - len(generated)) + [1] * len(generation)
    assert made.loss_mask.tolist() == mask
    assert len(made.input_ids) == len(made.logprobs) == len(mask)
    assert not made.logprobs[np.array(generated) == 0].any()


@settings(deadline=None)  # a disk may be busy
@given(st.lists(chains(), max_size=4), st.sampled_from(["rows.jsonl", "rows.parquet"]))
def test_files_hold_rows_exactly(tmp_path_factory: Any, drawn: list[Captured], name: str) -> None:
    rows = [
        row(captured, untrained={0}, metadata={"n": len(captured), "é": None, "large": 2**70}) for captured in drawn
    ]
    path = tmp_path_factory.getbasetemp() / name
    assert write_rows(path, rows) == len(rows)
    read = list(read_rows(path))
    assert [exact(captured_of(again)) for again in read] == [exact(captured) for captured in drawn]
    for made, again in zip(rows, read, strict=True):
        assert (again.session_id, again.segments) == (made.session_id, made.segments)
        assert (again.reward, again.metadata) == (made.reward, made.metadata)
        assert [array.dtype.name for array in (again.input_ids, again.loss_mask, again.logprobs)] == DTYPES
        assert again.loss_mask.tolist() == made.loss_mask.tolist()


SMALL: Captured = [([1, 2], [3], [-0.5]), ([1, 2, 3, 4], [5, 6], [-1, -2.0])]


def test_a_row_in_full() -> None:
    made = row(SMALL, untrained={1})
    assert made.input_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert made.loss_mask.tolist() == [0, 0, 1, 0, 0, 0]
    assert made.logprobs.tolist() == [0, 0, -0.5, 0, -1, -2]
    assert made.segments == (Segment("u0", 2, 3), Segment("u1", 4, 6, trained=False))
    assert (made.session_id, made.reward, made.metadata) == ("s", None, {})


def test_a_row_of_a_single_call() -> None:
    made = row_of(forest(SMALL), [1])
    assert made.loss_mask.tolist() == [0, 0, 0, 0, 1, 1]
    assert captured_of(made) == SMALL[1:]


def test_a_line_of_json_is_what_a_trainer_reads(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [row([([1], [2], [-0.1])])])
    assert orjson.loads((tmp_path / "rows.jsonl").read_bytes()) == {
        "session_id": "s",
        "input_ids": [1, 2],
        "loss_mask": [0, 1],
        "logprobs": [0.0, -0.1],
        "segments": [{"call": "u0", "start": 1, "end": 2, "trained": True}],
        "reward": None,
        "metadata": {},
    }


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_file_that_could_not_be_finished_leaves_the_old_one(tmp_path: Path, name: str) -> None:
    write_rows(tmp_path / name, [row(SMALL)])
    with pytest.raises(IndexError):
        write_rows(tmp_path / name, (row_of(forest(SMALL), [number]) for number in range(3)))
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert len(list(read_rows(tmp_path / name))) == 1


def test_large_files_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "GROUP_TOKENS", 5)
    rows = [row([([number], [2], [-0.1])]) for number in range(8)]
    write_rows(tmp_path / "rows.parquet", rows)
    with ParquetFile(tmp_path / "rows.parquet") as file:
        assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == [3, 3, 2]
    assert [int(again.input_ids[0]) for again in read_rows(tmp_path / "rows.parquet")] == list(range(8))


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    for use in (lambda path: write_rows(path, []), read_rows):
        with pytest.raises(ValueError, match=r"rows.csv: a file of rows is named .parquet or .jsonl"):
            use(tmp_path / "rows.csv")
    assert not list(tmp_path.iterdir())


FORK = [([1], [2], [-1.0]), ([1, 2, 3], [4], [-2.0]), ([1, 2, 5], [6], [-3.0])]


def lineage(captured: Captured, **fields: Any) -> Lineage:
    records = [call([USER, REPLY], *triple, **fields) for triple in captured]
    return build_lineage(read_session(envelope(records)))


def test_each_chain_is_a_row_and_each_call_is_trained_once() -> None:
    main, other = chain_rows(lineage(FORK))
    assert (main.input_ids.tolist(), main.loss_mask.tolist()) == ([1, 2, 5, 6], [0, 1, 0, 1])
    assert (other.input_ids.tolist(), other.loss_mask.tolist()) == ([1, 2, 3, 4], [0, 0, 0, 1])
    assert other.logprobs.tolist() == [0, -1, 0, -2]
    assert captured_of(main) + captured_of(other)[1:] == [FORK[0], FORK[2], FORK[1]]
    (only,) = chain_rows(lineage(FORK), "main")
    assert captured_of(only) == captured_of(main)
    with pytest.raises(NothingToTrain):
        chain_rows(lineage([]))


def test_each_trainable_call_is_a_row() -> None:
    rows = list(call_rows(lineage(FORK)))
    assert [captured_of(made) for made in rows] == [[triple] for triple in FORK]
    assert [made.metadata["call"] for made in rows] == [0, 1, 2]
    assert list(call_rows(lineage(FORK, is_valid=False))) == []


def test_rows_tell_what_they_are() -> None:
    engine = {"engine": {"weight_versions": [{"version": "7"}]}}
    (made,) = chain_rows(lineage(FORK[:1], finish_reason="length", parent_session_id="p", call=engine))
    assert made.metadata == {
        "chain": 0,
        "main": True,
        "role": "turn",
        "agent": "",
        "predecessor": None,
        "reasons": ["truncated"],
        "model": "served",
        "parent_session_id": "p",
        "finish_reasons": ["length"],
        "weight_versions": [[{"version": "7"}]],
    }
