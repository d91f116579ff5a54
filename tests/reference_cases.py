"""The exchanges recorded from the original proxy, by name: what it was asked, what it sent on, answered and stored."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "data" / "reference_cases.jsonl"


@dataclass(frozen=True)
class ReferenceCase:
    """One exchange. Bodies of engine and client are parsed JSON where they were JSON."""

    name: str
    method: str
    path: str
    headers: list[tuple[str, str | dict[str, str]]]
    """Values that are not ASCII are `{"bytes_latin1": ...}`."""
    body: Any
    """What the client sent: JSON, or a text that is the body as it is; None for no body."""
    sent_on: Any
    """The body the engine got, None when it got none."""
    status: int
    answer: Any
    """The answer's JSON, or the text of an event stream or of anything else."""
    record: dict[str, Any] | None

    @property
    def request_json(self) -> dict[str, Any]:
        assert isinstance(self.body, dict)
        return self.body


@cache
def reference_cases() -> dict[str, ReferenceCase]:
    """All kept cases, by name."""
    lines = FILE.read_text().splitlines()
    return {case.name: case for case in (ReferenceCase(**json.loads(line)) for line in lines)}


def reference_case(name: str) -> ReferenceCase:
    return reference_cases()[name]
