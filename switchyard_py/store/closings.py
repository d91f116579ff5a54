"""Marks of sessions that take no more calls: those that are sealed or being sealed, and those that were deleted.

A call puts its intent on disk and then looks for the mark; whoever closes a session puts the mark and then looks for
intents. So of a call and a closing at the same moment at least one sees the other: the call never begins, or the
closing knows of it. Marks are put and removed by one process at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from switchyard_py.store.filesystem import Filesystem
from switchyard_py.store.names import CLOSED, Suffix, session_directory

# No session directory has such a name.
_LOCK = ".lock"
_NEW = ".new"


class SessionClosed(Exception):
    """A session takes no more calls. `str()` says why."""

    def __init__(self, *, deleted: bool) -> None:
        super().__init__("its session was deleted" if deleted else "its session is sealed: it takes no more calls")
        self.deleted = deleted


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """What a sealed session holds, for good.

    `digest` is the hex SHA-256 over the records that `SessionReader.completions` serves, `records` of them, each
    preceded by its length in bytes as a big-endian number of 8 bytes. `calls` names all calls in call order, each with
    the suffix of its state; one that is `open` was abandoned.
    """

    sealed_at: str
    accounting: dict[str, int]
    records: int
    digest: str
    calls: dict[str, Suffix]


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    """A mark. `seal` is None while calls that had begun before the mark may still be open."""

    session_id: str
    deleted: bool = False
    seal: Seal | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Closing)


class Closings:
    """The marks of a directory. All methods block and raise OSError when the store refuses."""

    def __init__(self, root: str, filesystem: Filesystem) -> None:
        self._directory = os.path.join(root, CLOSED)
        self._filesystem = filesystem

    def find(self, session_id: str) -> Closing | None:
        """The mark of a session, None without one, which takes one system call.

        A mark that cannot be understood closes the session too, as one that is being sealed.
        """
        path = self._path(session_id)
        if not self._filesystem.exists(path):
            return None
        try:
            data = self._filesystem.read(path)
        except FileNotFoundError:
            return None
        try:
            return _decoder.decode(data)
        except ValueError:
            return Closing(session_id=session_id)

    def names(self) -> list[str]:
        """Names of all marks, for `named`."""
        try:
            return [name for name in self._filesystem.names(self._directory) if not name.startswith(".")]
        except FileNotFoundError:
            return []

    def named(self, name: str) -> Closing | None:
        """The mark of that name; None when it is gone or cannot be understood."""
        try:
            return _decoder.decode(self._filesystem.read(os.path.join(self._directory, name)))
        except (FileNotFoundError, ValueError):
            return None

    def put_at(self, session_id: str) -> float:
        """When the mark was put, seconds since 1970. Raises FileNotFoundError without one."""
        return self._filesystem.modified_at(self._path(session_id)) / 1e9

    @contextlib.contextmanager
    def lock(self, *, wait: bool = True) -> Iterator[None]:
        """Let nobody else put or remove marks during the block; it must be short.

        Raises BlockingIOError when somebody else does and `wait` is false.
        """
        with contextlib.suppress(FileExistsError):
            self._filesystem.make_directory(self._directory)
        descriptor = os.open(os.path.join(self._directory, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)

    def put(self, closing: Closing) -> None:
        """Put a mark in place of the one before, if any. Under the lock.

        A seal and a tombstone survive a power failure, so that a session is never taken for less than it was.
        """
        durable = closing.deleted or closing.seal is not None
        temporary = os.path.join(self._directory, _NEW)
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.unlink(temporary)
        self._filesystem.create(temporary, _encoder.encode(closing) + b"\n")
        if durable:
            self._filesystem.sync(temporary)
        self._filesystem.rename(temporary, self._path(closing.session_id))
        if durable:
            self._filesystem.sync(self._directory)

    def remove(self, session_id: str) -> None:
        """Remove a mark. Under the lock."""
        self._filesystem.unlink(self._path(session_id))

    def _path(self, session_id: str) -> str:
        return f"{self._directory}/{session_directory(session_id)}"


def now() -> str:
    """UTC in ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
