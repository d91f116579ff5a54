"""Standard output: what it can show, and text that is safe to show."""

from __future__ import annotations

import io
import os
import shutil
import textwrap
from typing import Any, TextIO

import typer


def shows_colours(stream: TextIO) -> bool:
    """Whether it is a terminal and nobody asked for no colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def allow_any_text(stream: TextIO) -> None:
    """See that text its encoding does not have, or the bytes of a file name, end nothing: a `?` is written instead."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")


def printable(text: object) -> str:
    """The text without what moves a cursor or changes colours: agents and engines choose part of what is shown."""
    return "".join(character if character.isprintable() else "�" for character in str(text))


class Terminal:
    """Writes lines to a stream: on a terminal in colours and no wider than that, elsewhere plain and as they are."""

    def __init__(self, stream: TextIO) -> None:
        allow_any_text(stream)
        self._stream = stream
        self._colours = shows_colours(stream)
        self._columns = shutil.get_terminal_size().columns if stream.isatty() else None

    def style(self, text: str, **style: Any) -> str:
        """The text in a style of `typer.style`."""
        return typer.style(text, **style) if self._colours else text

    def wrap(self, text: str, indent: str, hanging: str | None = None) -> list[str]:
        """The lines of a text without colours; all but the first begin with `hanging`, else a little further right."""
        after = f"{indent}  " if hanging is None else hanging
        if self._columns is None:
            return [indent + text]
        return textwrap.wrap(text, self._columns, initial_indent=indent, subsequent_indent=after)

    def write(self, *lines: str) -> None:
        """Write lines, at once."""
        self._stream.write("".join(f"{line.rstrip()}\n" for line in lines))
        self._stream.flush()
