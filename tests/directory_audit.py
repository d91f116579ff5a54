"""What lies in a directory of records, read by the rules of its format with the standard library only."""

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STATES = ("open", "failed", "lost", "undelivered", "json")
"""Suffixes of a call's file; of two files of one call the later one in this order tells its state."""

_READABLE = re.compile(r"(?![0-9a-f]{64}$)[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True)
class StoredCall:
    """One call: the suffix that is its state, and what that file holds."""

    uuid: str
    state: str
    content: dict[str, Any]

    @property
    def session_id(self) -> str:
        return str(self.content["session_id"])

    @property
    def has_record(self) -> bool:
        return self.state in ("json", "undelivered")

    @property
    def fate(self) -> str:
        """The name of its state in an account of a directory nobody writes to."""
        if self.state == "json":
            return "valid" if self.content["is_valid"] else "invalid"
        return "abandoned" if self.state == "open" else self.state


def stored_calls(directory: Path) -> dict[str, StoredCall]:
    """All calls by uuid. Raises AssertionError for a file that is torn, misplaced or of no known kind."""
    found: dict[str, StoredCall] = {}
    for path in sorted(directory.glob("sessions/*/*")):
        if path.suffix == ".tmp":
            continue
        uuid, state = path.stem, path.suffix[1:]
        assert state in STATES, f"{path} is of no known kind"
        call = StoredCall(uuid, state, _strict(path))
        assert call.content["uuid"] == uuid, f"{path} holds {call.content['uuid']}"
        assert path.parent.name == _directory_of(call.session_id), f"{path} holds a call of {call.session_id!r}"
        before = found.get(uuid)
        assert before is None or before.session_id == call.session_id, f"{path} is a call of two sessions"
        if before is None or STATES.index(before.state) < STATES.index(state):
            found[uuid] = call
    return found


def accounts(calls: dict[str, StoredCall]) -> dict[str, Counter[str]]:
    """For each session the number of calls by fate."""
    found: dict[str, Counter[str]] = {}
    for call in calls.values():
        found.setdefault(call.session_id, Counter())[call.fate] += 1
    return found


def temporary_files(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("sessions/*/*.tmp")}


def _directory_of(session_id: str) -> str:
    return session_id if _READABLE.fullmatch(session_id) else hashlib.sha256(session_id.encode()).hexdigest()


def _strict(path: Path) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        content = json.loads(path.read_bytes(), parse_constant=refuse)
    except ValueError as error:
        raise AssertionError(f"{path} is torn: {error}") from None
    assert isinstance(content, dict), f"{path} is no object"
    return content
