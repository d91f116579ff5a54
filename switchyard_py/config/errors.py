"""The one exception of this room."""

from __future__ import annotations


class ConfigError(Exception):
    """A bundle cannot be used. Its text is one line: file, path inside it, what is wrong, what to write instead."""

    def __init__(self, file: object, path: str, problem: str) -> None:
        text = ": ".join(part for part in (str(file), path, problem) if part)
        super().__init__(" ".join(text.split()))
