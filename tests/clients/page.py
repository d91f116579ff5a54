"""The files that the page of a client holds: what a user copies from it is what the lane runs."""

import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "clients"
_FILE = re.compile(r"^```(?P<language>\w+) (?P<name>[\w.]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def files_of(client: str) -> dict[str, str]:
    """The blocks of a page that have a file name behind their language, by that name."""
    page = (PAGES / f"{client}.md").read_text()
    return {found["name"]: found["text"] for found in _FILE.finditer(page)}
