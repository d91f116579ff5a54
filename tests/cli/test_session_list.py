"""`sessions list`: which sessions there are, from a directory or a proxy."""

import json
from pathlib import Path
from typing import Any

from mixed_sessions import session_ids


def test_a_line_for_each_session_with_what_became_of_its_calls(invoke: Any, mixed: Path) -> None:
    result = invoke("sessions", "list", "--dir", mixed)
    assert (result.exit_code, result.stderr) == (0, "")
    heading, *lines = result.stdout.splitlines()
    assert heading.split() == ["first", "call", "(UTC)", "calls", "session", "calls", "are"]
    assert all(len(line) <= 80 for line in lines)
    told = {line.split()[3]: (line.split()[2], line.split(maxsplit=4)[4]) for line in lines}
    assert list(told) == [session_id for _, session_id in session_ids(len(lines))]
    assert told["loop-0"] == ("3", "all valid")
    assert told["corrupt-0"] == ("3", "1 invalid")
    assert told["lost-0"] == ("3", "1 lost")
    assert told["killed-0"] == ("3", "1 abandoned")
    assert told["failures-0"] == ("1", "1 failed")


def test_json_is_what_the_proxy_lists(invoke: Any, mixed: Path, served: str) -> None:
    told = [json.loads(line) for line in invoke("sessions", "list", "-d", mixed, "--json").stdout.splitlines()]
    assert told[0]["session_id"] == "loop-0"
    assert told[0]["accounting"]["valid"] == told[0]["calls"] == 3
    assert "cursor" not in told[0]
    result = invoke("sessions", "list", "--url", served, "--json", SWITCHYARD_READER_KEY="reader-key")
    assert [json.loads(line) for line in result.stdout.splitlines()] == told


def test_an_empty_directory_of_records(invoke: Any, tmp_path: Path) -> None:
    (tmp_path / "rl_data" / "sessions").mkdir(parents=True)
    result = invoke("sessions", "list")
    assert (result.exit_code, result.stdout) == (0, "there are no sessions yet\n")
    assert invoke("sessions", "list", "--json").stdout == ""


def test_what_cannot_be_read_is_named(invoke: Any, mixed: Path, tmp_path: Path) -> None:
    sessions = tmp_path / "rl_data" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "loop-0").symlink_to(mixed / "sessions" / "loop-0")
    (sessions / "turning").symlink_to("turning")
    result = invoke("sessions", "list")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.startswith("warning: session directory turning cannot be read: ")
    # Nobody can say of all sessions that they are well.
    assert invoke("sessions", "verify").exit_code == 1
