"""`sessions show`: the calls of a session as a tree."""

import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mixed_sessions import KINDS
from rollout_records import call, envelope
from stored_calls import intent

from switchyard_py.cli.call_tree import print_session
from switchyard_py.cli.terminal import Terminal, printable
from switchyard_py.rollouts import build_lineage, read_session
from switchyard_py.store import Writer


def shown(invoke: Any, mixed: Path, session_id: str) -> str:
    result = invoke("sessions", "show", session_id, "--dir", mixed)
    assert (result.exit_code, result.stderr) == (0, "")
    stdout: str = result.stdout
    return stdout


def tree(text: str) -> list[str]:
    """Record, glyphs, role and state of each line of the tree, notes and empty lines left out."""
    body = text[text.index("  record tree") : text.index("  chain  role")].splitlines()[1:]
    lines = []
    for line in body:
        if found := re.match(r" +(\d+) ([├─│ ]*[●○✗]) +(\w+) .* (\S+)$", line):
            lines.append(" ".join(found.groups()))
    return lines


def test_a_conversation_is_one_line_down(invoke: Any, mixed: Path) -> None:
    text = shown(invoke, mixed, "loop-0")
    assert text.startswith("\n  loop-0\n  calls: 3 begun, 3 valid\n")
    assert tree(text) == ["0 ● turn valid", "1 ● turn valid", "2 ● turn valid"]
    assert "main chain: 0 (*), the session is one chain" in text
    (first,) = re.findall(r"^ +0 ●    turn +(\d+) +(\d+) tool_calls +\+0.00 +\d+\.\d\d  valid$", text, re.MULTILINE)
    record = json.loads(sorted((mixed / "sessions" / "loop-0").iterdir())[0].read_bytes())
    assert tuple(map(int, first)) == tuple(len(record[f"{of}_token_ids"]) for of in ("prompt", "generation"))


@pytest.mark.parametrize(
    ("kind", "lines", "says"),
    [
        ("title", ["0 ○ side valid", "1 ● turn valid", "2 ● turn valid", "3 ● turn valid"], "no side call"),
        (
            "retry",
            ["0 ● turn valid", "1 ├─○ turn retried", "2 ● turn valid", "3 ● turn valid"],
            "its prompt was sent again, and the agent went on with record 2",
        ),
        (
            "undecided",
            ["0 ○ turn valid", "1 ├─○ turn valid", "2 ○ turn valid"],
            "no main chain: the last step has several answers, and nothing says which one the agent used; it may "
            "end with record 1 or 2",
        ),
        (
            "forgets",
            ["0 ○ turn valid", "1 ● turn valid"],
            "most likely cause: the agent did not send the reasoning back",
        ),
        ("forgets", ["0 ○ turn valid", "1 ● turn valid"], "generated; record 1 continues record 0 without its tokens"),
        (
            "compaction",
            ["0 ○ turn valid", "1 ○ turn valid", "2 ○ turn valid", "3 ● turn valid", "4 ● turn valid"],
            "continues chain 0 with a compacted history",
        ),
        ("truncated", ["0 ● turn truncated"], "trainable, with: truncated"),
        ("constrained", ["0 ✗ turn constrained"], "not trainable: constrained"),
        (
            "invalid",
            ["0 ● turn valid", "2 ● turn valid", "1 ✗ turn invalid"],
            "not valid: no generation token ids (",
        ),
        (
            "lost",
            ["0 ● turn valid", "1 ● turn valid", "2 ✗ turn lost"],
            "its answer went to the agent and could not be stored: nobody has its tokens",
        ),
        (
            "corrupt",
            ["0 ● turn valid", "1 ● turn valid"],
            "1 record of delivered calls cannot be read",
        ),
        ("foreign", ["0 ● turn valid", "1 ● turn valid"], ".json: foreign: a record of another session"),
    ],
)
def test_what_a_session_shows(invoke: Any, mixed: Path, kind: str, lines: list[str], says: str) -> None:
    text = shown(invoke, mixed, f"{kind}-0")
    assert tree(text) == lines
    assert says in text


def test_agents_have_letters_where_there_are_several(invoke: Any, mixed: Path) -> None:
    text = shown(invoke, mixed, "subagent-0")
    assert re.findall(r"^ +(\d) .* (\w) +valid$", text, re.MULTILINE) == [
        ("0", "a"),
        ("2", "a"),
        ("1", "b"),
        ("3", "b"),
    ]
    assert "agent b: helper-1" in text
    # The trees of two agents stand apart.
    assert "\n\n       1 ○    subagent" in text


def test_a_session_without_records(invoke: Any, mixed: Path) -> None:
    text = shown(invoke, mixed, "failures-0")
    assert "calls: 1 begun, 1 failed\n    1 failed: upstream_error: Simulated failure with status 500.\n" in text
    assert "no records\n\n  no main chain: none of the agent's own turns was recorded with its tokens" in text


@pytest.mark.parametrize("kind", KINDS)
def test_json_is_the_lineage_that_the_proxy_answers(invoke: Any, mixed: Path, served: str, kind: str) -> None:
    (line,) = invoke("sessions", "show", f"{kind}-0", "--dir", mixed, "--json").stdout.splitlines()
    answer = json.loads(line)
    assert answer["session_id"] == f"{kind}-0"
    from_proxy = invoke("sessions", "show", f"{kind}-0", "--url", served, "--json", SWITCHYARD_READER_KEY="reader-key")
    # Why calls failed and which files are faulty only the directory tells.
    assert json.loads(from_proxy.stdout) == answer | {"failures": {}, "faults": []}


def test_branches_of_branches(capsys: pytest.CaptureFixture[str]) -> None:
    """Records 0 to 2 in a row, 3 beside 1, 4 on 3, 5 beside 4, and 6 on 2."""
    user, reply = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    paths = [[0], [0, 1], [0, 1, 2], [0, 3], [0, 3, 4], [0, 3, 5], [0, 1, 2, 6]]
    records = []
    for path in paths:
        prompt = [number for index in path[:-1] for number in (index, 100 + index)] + [path[-1]]
        records.append(call([user, reply], prompt, [100 + path[-1]], [-1.0]))
    print_session(build_lineage(read_session(envelope(records))), Terminal(sys.stdout))
    drawn = re.findall(r"^ +(\d) ([├─│ ]*[●○])", capsys.readouterr().out, re.MULTILINE)
    assert drawn == [("0", "●"), ("3", "├─○"), ("4", "│ ├─○"), ("5", "│ ○"), ("1", "●"), ("2", "●"), ("6", "●")]


def test_a_call_that_differs_from_the_one_it_continues_says_in_what(capsys: pytest.CaptureFixture[str]) -> None:
    user, reply = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    records = [
        call([user, reply], [1], [2], [-1.0], call={"route": "first"}),
        call([user, reply, user, reply], [1, 2, 3], [4], [-1.0], call={"route": "second"}, tools=[]),
    ]
    print_session(build_lineage(read_session(envelope(records))), Terminal(sys.stdout))
    text = capsys.readouterr().out
    assert "it went to another route than the call before: second" in text
    assert "it has other tools than the call before" in text
    assert text.count("the call before") == 2


def test_equal_answers_are_told_apart_from_one_that_the_agent_went_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    user, reply = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    twice = [call([user, reply], [1], [2], [-1.0]) for _ in range(2)]
    print_session(build_lineage(read_session(envelope(twice))), Terminal(sys.stdout))
    text = capsys.readouterr().out
    assert "its prompt was sent again, and record 1 stands for it" in text
    assert "went on" not in text
    after = call([user, reply, user, reply], [1, 2, 3], [4], [-1.0])
    print_session(build_lineage(read_session(envelope([*twice, after]))), Terminal(sys.stdout))
    assert "its prompt was sent again, and the agent went on with record 1" in capsys.readouterr().out


def test_many_reasons_of_failed_calls_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for number in range(20):
        writer.fail(writer.begin(intent()), "upstream_error: busy" if number < 10 else f"\x1b[2J{number}", None)
    writer.close()
    print_session(build_lineage(read_session(tmp_path, "s")), Terminal(sys.stdout))
    text = capsys.readouterr().out
    assert "calls: 20 begun, 20 failed\n    10 failed: upstream_error: busy\n    1 failed: " in text
    assert "    6 failed for other reasons\n" in text
    assert "\x1b" not in text


def test_a_thousand_calls_in_a_row_are_not_indented(capsys: pytest.CaptureFixture[str]) -> None:
    user, reply = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    records = [call([user, reply], list(range(2 * number + 1)), [2 * number + 1], [-1.0]) for number in range(1000)]
    print_session(build_lineage(read_session(envelope(records))), Terminal(sys.stdout))
    text = capsys.readouterr().out
    assert len(re.findall(r"^ +\d+ ●    turn", text, re.MULTILINE)) == 1000
    assert "0-999: 2000 tokens, 1000 generated" in text


def test_text_of_agents_and_engines_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable("a\x1b[31mb\r\nc日本") == "a�[31mb��c日本"
    steering = "\x1b[2J"
    record = call(
        [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
        [1],
        [2],
        [-1.0],
        finish_reason=steering,
        call={"agent": {"thread-id": steering}, "invalid_reasons": [steering]},
        parent_session_id=steering,
    )
    print_session(build_lineage(read_session(envelope([record, {"uuid": steering}]))), Terminal(sys.stdout))
    assert "\x1b" not in capsys.readouterr().out


def on_terminal(arguments: list[str], **environ: str) -> str:
    """What a terminal of 80 columns gets."""
    main, other = pty.openpty()
    command = [str(Path(sys.executable).with_name("switchyard")), *arguments]
    given = {**os.environ, "COLUMNS": "80", "TERM": "xterm", **environ}
    with subprocess.Popen(command, stdout=other, stderr=other, stdin=other, env=given):
        os.close(other)
        text = b""
        while select.select([main], [], [], 20)[0]:
            try:
                text += os.read(main, 65536)
            except OSError:  # Linux says so when the last one has closed it
                break
    os.close(main)
    return text.decode().replace("\r\n", "\n")


def test_colours_and_width_are_those_of_the_terminal(invoke: Any, mixed: Path) -> None:
    arguments = ["sessions", "show", "forgets-0", "--dir", str(mixed)]
    text = on_terminal(arguments)
    assert "\x1b[32mvalid" in text
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= 80
    assert plain.split() == shown(invoke, mixed, "forgets-0").split()
    assert on_terminal(arguments, NO_COLOR="1") == plain
