"""A shortest text that matches a regular expression, for the part of the syntax JSON schemas use.

Alternatives take the first branch, repetitions the lower bound, classes their first printable member. Lookaround and
back-references are not understood.
"""

import re

_CLASSES = {"d": "0", "w": "a", "s": " ", "D": "a", "W": " ", "S": "a"}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_COUNTS = re.compile(r"\{(\d*)(?:,\d*)?\}")
_PRINTABLE = [chr(code) for code in (*range(0x61, 0x7B), *range(0x30, 0x3A), *range(0x41, 0x5B), *range(0x20, 0x7F))]


class UnsupportedPatternError(ValueError):
    """The pattern uses syntax the sampler does not understand."""


def sample_pattern(pattern: str) -> str:
    """A text `pattern` matches from start to end. Raises UnsupportedPatternError."""
    reader = _Reader(pattern)
    text = reader.alternatives()
    if reader.position < len(pattern):
        raise UnsupportedPatternError(f"unbalanced parenthesis in {pattern!r}")
    try:
        matched = re.fullmatch(pattern, text)
    except re.error as error:
        raise UnsupportedPatternError(f"{pattern!r}: {error}") from error
    if matched is None:
        raise UnsupportedPatternError(f"no sample found for {pattern!r}")
    return text


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0

    def alternatives(self) -> str:
        first = self._sequence()
        while self._take("|"):
            self._sequence()
        return first

    def _sequence(self) -> str:
        parts: list[str] = []
        while self._peek() not in ("", "|", ")"):
            piece = self._atom()
            parts.append(piece * self._least_repetition())
        return "".join(parts)

    def _atom(self) -> str:
        char = self._next()
        if char == "(":
            if self._take("?") and not self._take(":"):
                raise UnsupportedPatternError(f"group extension in {self.pattern!r}")
            text = self.alternatives()
            if not self._take(")"):
                raise UnsupportedPatternError(f"missing parenthesis in {self.pattern!r}")
            return text
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        if char in "^$":
            return ""
        return "a" if char == "." else char

    def _escape(self) -> str:
        char = self._next()
        if char in "bBAZz":
            return ""
        if char in "pPkux" or char.isdigit():
            raise UnsupportedPatternError(f"escape \\{char} in {self.pattern!r}")
        return _CLASSES.get(char) or _CONTROLS.get(char) or char

    def _class(self) -> str:
        start = self.position - 1
        self._take("^")
        self._take("]")
        while (char := self._next()) != "]":
            if char == "\\":
                self._next()
        chosen = self.pattern[start : self.position]
        try:
            member = re.compile(chosen)
        except re.error as error:
            raise UnsupportedPatternError(f"{chosen!r}: {error}") from error
        literal = chosen.strip("[]^")[:1]
        for candidate in (*_PRINTABLE, literal):
            if candidate and member.fullmatch(candidate):
                return candidate
        raise UnsupportedPatternError(f"no printable member of {chosen!r}")

    def _least_repetition(self) -> int:
        counts = _COUNTS.match(self.pattern, self.position)
        if counts:
            self.position = counts.end()
            least = int(counts[1] or 0)
        elif self._take("*") or self._take("?"):
            least = 0
        else:
            self._take("+")
            return self._lazily(1)
        return self._lazily(least)

    def _lazily(self, least: int) -> int:
        self._take("?")
        return least

    def _peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise UnsupportedPatternError(f"{self.pattern!r} ends too early")
        self.position += 1
        return char

    def _take(self, char: str) -> bool:
        taken = self._peek() == char
        self.position += taken
        return taken
