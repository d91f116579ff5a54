"""What tests of the store share: intents, records as they are stored, and a disk that refuses."""

import asyncio
import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import orjson

from switchyard_py.capture.ledger import Ledger
from switchyard_py.store import CallIntent, Filesystem, SessionReader, Writer
from switchyard_py.store.reader import CompletionsPage

STARTED_AT = "2026-03-01T12:00:00.000000+00:00"


def intent(session_id: str = "s", **fields: Any) -> CallIntent:
    given: dict[str, Any] = {
        "session_id": session_id,
        "route": "policy",
        "target": "model@127.0.0.1",
        "dialect": "chat",
        "request_id": "req-1",
        "digest": "ab" * 32,
        "started_at": STARTED_AT,
    }
    return CallIntent(**given | fields)


def record(call: CallIntent, *, is_valid: bool = True, **fields: Any) -> bytes:
    """A record of a call as the capture room builds them, with the fields of schema v1."""
    return orjson.dumps(
        {
            "schema_version": 1,
            "uuid": call.uuid,
            "session_id": call.session_id,
            "parent_session_id": call.parent_session_id,
            "captured_at": "2026-03-01T12:00:01.000000+00:00",
            "request_id": "chatcmpl-1",
            "model": "model",
            "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
            "tools": [],
            "tool_choice": "auto",
            "token_count": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3},
            "prompt_token_ids": [1, 2],
            "generation_token_ids": [3],
            "generation_log_probs": [-0.5],
            "finish_reason": "stop",
            "is_valid": is_valid,
        }
        | fields
    )


def names(directory: Path, session: str = "s") -> list[str]:
    """The file names of a session's directory, in order."""
    return sorted(os.listdir(directory / "sessions" / session))


def states(directory: Path) -> list[str]:
    """The suffixes of the session's files, in call order."""
    return [os.path.splitext(name)[1] for name in names(directory)]


async def until_written(ledger: Ledger) -> None:
    async with asyncio.timeout(5):
        while ledger.unwritten:
            await asyncio.sleep(0.005)


def commit(writer: Writer, session_id: str = "s", **fields: object) -> CallIntent:
    call = writer.begin(intent(session_id))
    writer.commit(call, record(call, **fields))  # type: ignore[arg-type]
    return call


def page(reader: SessionReader, session_id: str = "s", **query: object) -> CompletionsPage:
    found = reader.completions(session_id, **query)  # type: ignore[arg-type]
    assert found is not None
    return found


def uuids(reader: SessionReader, session_id: str = "s", **query: object) -> list[str]:
    return [orjson.loads(data)["uuid"] for data in page(reader, session_id, **query)]


def put(directory: Path, name: str, data: bytes, session: str = "s") -> None:
    (directory / "sessions" / session).mkdir(parents=True, exist_ok=True)
    (directory / "sessions" / session / name).write_bytes(data)


def account(**calls: int) -> dict[str, int]:
    fates = ("valid", "invalid", "undelivered", "lost", "failed", "open", "abandoned")
    return {"begun": sum(calls.values())} | {fate: calls.get(fate, 0) for fate in fates}


class FaultyFilesystem(Filesystem):
    """A real file system of which chosen system calls fail with an errno."""

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}

    def fill(self) -> None:
        """No space: files can be made, renamed and removed, not written."""
        self.errors = {"write": errno.ENOSPC}

    def freeze(self) -> None:
        """Mounted read-only."""
        self.errors = dict.fromkeys(("make_directory", "create", "rename", "unlink"), errno.EROFS)

    def refuse_flushes(self) -> None:
        self.errors = {"sync": errno.EIO}

    def refuse_renames(self) -> None:
        self.errors = {"rename": errno.EIO}

    def heal(self) -> None:
        self.errors = {}

    def _maybe_fail(self, name: str) -> None:
        if name in self.errors:
            raise OSError(self.errors[name], os.strerror(self.errors[name]))

    def make_directory(self, path: str) -> None:
        self._maybe_fail("make_directory")
        super().make_directory(path)

    def names(self, path: str) -> list[str]:
        self._maybe_fail("names")
        return super().names(path)

    def create(self, path: str, data: bytes) -> None:
        self._maybe_fail("create")
        super().create(path, data)

    def write(self, descriptor: int, data: bytes) -> None:
        if "write" in self.errors:
            super().write(descriptor, data[: len(data) // 2])
        self._maybe_fail("write")
        super().write(descriptor, data)

    def read(self, path: str) -> bytes:
        self._maybe_fail("read")
        return super().read(path)

    def sync(self, path: str) -> None:
        self._maybe_fail("sync")
        super().sync(path)

    def probe(self, directory: str) -> None:
        self._maybe_fail("create")
        super().probe(directory)

    def rename(self, source: str, target: str) -> None:
        self._maybe_fail("rename")
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._maybe_fail("unlink")
        super().unlink(path)


class SlowFilesystem(Filesystem):
    """Takes its time to put a record under its name."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def rename(self, source: str, target: str) -> None:
        if target.endswith(".json"):
            time.sleep(self._seconds)
        super().rename(source, target)


class GatedFilesystem(FaultyFilesystem):
    """A record gets its name when the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def rename(self, source: str, target: str) -> None:
        if target.endswith(".json"):
            self.waiting.set()
            assert self.gate.wait(5)
        super().rename(source, target)
