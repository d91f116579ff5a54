"""`sessions export`: training rows of many sessions, taken up where it ended."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mixed_sessions import KINDS

from switchyard_py.rollouts.row_files import read_rows
from switchyard_py.rollouts.rows import triples


def ids(directory: Path) -> list[str]:
    return sorted(each.name for each in (directory / "sessions").iterdir())


def records(directory: Path, session_id: str) -> list[dict[str, Any]]:
    return [json.loads(file.read_bytes()) for file in sorted((directory / "sessions" / session_id).glob("*.json"))]


def manifest(output: Path) -> dict[str, dict[str, Any]]:
    """The last line of each session."""
    _, *entries = (json.loads(line) for line in (output / "_manifest.jsonl").read_text().splitlines())
    return {entry["session_id"]: entry for entry in entries}


@pytest.fixture
def own(mixed: Path, tmp_path: Path) -> Path:
    """A copy of the sessions that may be changed."""
    shutil.copytree(mixed, tmp_path / "rl_data")
    return tmp_path / "rl_data"


@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
@pytest.mark.parametrize("mode", ["strict", "lineage"])
def test_a_file_for_each_session_that_is_accepted(
    invoke: Any, mixed: Path, tmp_path: Path, mode: str, file_format: str
) -> None:
    result = invoke("sessions", "export", "out", "--mode", mode, "--format", file_format, "--dir", mixed)
    assert (result.exit_code, result.stderr) == (0, "")
    accepted = [each for each in ids(mixed) if getattr(KINDS[each.rpartition("-")[0]], mode)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        ["_manifest.jsonl", *(f"{session_id}.{file_format}" for session_id in accepted)]
    )
    assert result.stdout.startswith(f"{len(accepted)} files in out: {len(accepted)} rows, ")
    assert f"\n{len(ids(mixed)) - len(accepted)} sessions not exported:\n" in result.stdout
    (row,) = read_rows(tmp_path / "out" / f"loop-0.{file_format}")
    assert [
        (
            each.call,
            each.prompt_token_ids.tolist(),
            each.generation_token_ids.tolist(),
            each.generation_log_probs.tolist(),
        )
        for each in triples(row)
    ] == [
        (each["uuid"], each["prompt_token_ids"], each["generation_token_ids"], each["generation_log_probs"])
        for each in records(mixed, "loop-0")
    ]


def test_what_a_row_is(invoke: Any, mixed: Path, tmp_path: Path) -> None:
    def calls(rows: str) -> list[list[str]]:
        command = ("sessions", "export", rows, "title-0", "--rows", rows, "--mode", "lineage", "--dir", mixed)
        assert invoke(*command).exit_code == 0
        return [[segment.call for segment in row.segments] for row in read_rows(tmp_path / rows / "title-0.parquet")]

    title, *turns = [record["uuid"] for record in records(mixed, "title-0")]
    assert calls("main") == [turns]
    assert calls("all") == [turns, [title]]
    assert calls("calls") == [[uuid] for uuid in (title, *turns)]


def test_single_calls_are_exported_where_no_chain_can_be(invoke: Any, mixed: Path, tmp_path: Path) -> None:
    arguments = ("--rows", "calls", "--mode", "lineage", "--dir", mixed)
    invoke("sessions", "export", "out", "undecided-0", "corrupt-0", "failures-0", *arguments)
    assert len(list(read_rows(tmp_path / "out" / "undecided-0.parquet"))) == 3
    refusals = {
        name: entry["refusal"]["code"] for name, entry in manifest(tmp_path / "out").items() if "refusal" in entry
    }
    assert refusals == {"corrupt-0": "incomplete", "failures-0": "not_trainable"}
    invoke("sessions", "export", "strict", "loop-0", "title-0", "--rows", "calls", "--dir", mixed)
    assert len(list(read_rows(tmp_path / "strict" / "loop-0.parquet"))) == 3
    assert "refusal" in manifest(tmp_path / "strict")["title-0"]


def test_what_is_there_is_not_written_again(invoke: Any, own: Path, tmp_path: Path) -> None:
    first = invoke("sessions", "export", "out")
    files = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.parquet")}
    (tmp_path / "out" / "loop-0.parquet").unlink()
    again = invoke("sessions", "export", "out")
    assert f"; {len(files) - 1} of them were there already" in again.stdout
    assert again.stdout.split(";")[0] == first.stdout.split("\n")[0]
    now = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.parquet")}
    assert now.keys() == files.keys()
    assert {name for name in now if now[name] != files[name]} <= {"loop-0.parquet"}


def test_a_session_that_grew_is_exported_again_and_one_that_broke_loses_its_file(
    invoke: Any, own: Path, tmp_path: Path
) -> None:
    sessions, output = own / "sessions", tmp_path / "out"
    (last,) = sorted((sessions / "loop-0").iterdir())[2:]
    kept = last.rename(tmp_path / last.name)
    invoke("sessions", "export", "out", "loop-0", "loop-1")
    assert [len(row.segments) for row in read_rows(output / "loop-0.parquet")] == [2]
    kept.rename(last)
    broken = min((sessions / "loop-1").iterdir())
    broken.write_bytes(broken.read_bytes()[:-1])
    result = invoke("sessions", "export", "out", "loop-0", "loop-1")
    assert [len(row.segments) for row in read_rows(output / "loop-0.parquet")] == [3]
    assert not (output / "loop-1.parquet").exists()
    assert manifest(output)["loop-1"]["refusal"]["code"] == "incomplete"
    assert "incomplete, such as loop-1: delivered calls without a record that can be read: 1" in result.stdout


def test_an_export_that_was_killed_goes_on(invoke: Any, own: Path, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("switchyard")), "sessions", "export", "out", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(3)]
        process.kill()
        seen += process.stdout.readlines()
    assert len(seen) >= 3
    lines = [json.loads(line) for line in invoke("sessions", "export", "out", "--json").stdout.splitlines()]
    assert sorted(line["session_id"] for line in lines) == ids(own)
    assert any(line["outcome"] == "present" for line in lines)
    expected = {f"{each}.parquet" for each in ids(own) if KINDS[each.rpartition("-")[0]].strict}
    assert {path.name for path in (tmp_path / "out").glob("*.parquet")} == expected
    for name in expected:
        assert len(list(read_rows(tmp_path / "out" / name))) == 1


def test_a_line_of_the_manifest_that_was_cut_off_does_no_harm(invoke: Any, mixed: Path, tmp_path: Path) -> None:
    command = ("sessions", "export", "out", "--format", "jsonl", "loop-0", "loop-1", "--dir", mixed)
    whole = invoke(*command).stdout
    path = tmp_path / "out" / "_manifest.jsonl"
    written = path.read_bytes()
    for length in range(0, len(written), 7):
        path.write_bytes(written[:length])
        invoke(*command)
        assert path.read_bytes() == written
    assert invoke(*command).stdout == f"{whole.strip()}; 2 of them were there already\n"


def test_a_directory_holds_files_that_were_made_alike(invoke: Any, mixed: Path) -> None:
    invoke("sessions", "export", "out", "loop-0", "--dir", mixed)
    result = invoke("sessions", "export", "out", "loop-0", "--mode", "lineage", "--dir", mixed)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: out holds files made otherwise: format parquet, mode strict, rows main; name another directory\n"
    )


def test_what_stops_an_export_is_one_line(invoke: Any, mixed: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty" / "sessions").mkdir(parents=True)
    for arguments, says in (
        (["file", "--dir", mixed], "error: cannot write to file: File exists\n"),
        (["out", "nope", "--dir", mixed], f"error: there is no session 'nope' in {mixed}\n"),
        (["out", "--dir", "empty"], "error: there are no sessions to export\n"),
    ):
        result = invoke("sessions", "export", *arguments)
        assert (result.exit_code, result.stdout, result.stderr) == (1, "", says)


@pytest.mark.parametrize("package", ["numpy", "pyarrow"])
def test_without_the_extra_it_says_what_to_install(mixed: Path, tmp_path: Path, package: str) -> None:
    (tmp_path / "missing" / package).mkdir(parents=True)
    (tmp_path / "missing" / package / "__init__.py").write_text(
        f'raise ModuleNotFoundError("No module named {package}", name="{package}")'
    )
    done = subprocess.run(
        [str(Path(sys.executable).with_name("switchyard")), "sessions", "export", "out", "--dir", str(mixed)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "missing")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: export needs {package}, which is not installed: pip install 'switchyard-py[training]'\n"
    )
