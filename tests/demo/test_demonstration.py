"""A demonstration inside this process: what it shows and what it returns."""

import io
import re
import socket
from pathlib import Path

import pytest

from switchyard_py.demo import Demonstration, Presentation
from switchyard_py.demo.stage import NotStarted

SGR = re.compile(r"\x1b\[[0-9;]*m")


async def play(log_dir: Path, *, colours: bool) -> tuple[str, list[str | None]]:
    stream = io.StringIO()
    with socket.create_server(("127.0.0.1", 0)) as engine, socket.create_server(("127.0.0.1", 0)) as proxy:
        claims = await Demonstration(log_dir, engine, proxy, Presentation(stream, colours=colours)).run()
    return stream.getvalue(), [claim.fault for claim in claims]


def without_names(shown: str) -> str:
    """The text without what differs from run to run."""
    return re.sub(r"127\.0\.0\.1:\d+|demo-\w+|[0-9a-f-]{36}", "", SGR.sub("", shown))


async def test_colours_are_all_that_a_terminal_gets_more(tmp_path: Path) -> None:
    plain, faults = await play(tmp_path, colours=False)
    coloured, _ = await play(tmp_path, colours=True)
    assert faults == [None] * 8
    assert without_names(plain) == without_names(coloured)
    assert "\x1b[2mI\x1b[0m" in coloured, "reasoning is dimmed"
    assert "\x1b[32m\x1b[1m)\x1b[0m" in coloured, "the end of a tool call is marked as released"


async def test_it_fits_80_columns(tmp_path: Path) -> None:
    shown, _ = await play(tmp_path, colours=True)
    lines = [line for line in SGR.sub("", shown).splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 80
    assert len(lines) > 30


async def test_a_directory_of_records_that_cannot_be_used_is_no_start(tmp_path: Path) -> None:
    (tmp_path / "writers").write_text("in the way")
    with pytest.raises(NotStarted):
        await play(tmp_path, colours=False)
