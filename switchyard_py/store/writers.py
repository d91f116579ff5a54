"""Who is writing: a writer is a file in `writers/` whose owner holds an flock on it for as long as it lives.

A writer's file gets its final name after it is locked, so a file with a final name and no lock is that of a dead
writer, for good. flock is of one machine: on a network file system a writer of another machine can look dead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import socket
import time

_NEW = ".new"
# Kernels stamp directories by a clock that ticks every 1 to 10 ms: a stamp this old cannot be given again.
_STAMP_SETTLED_NS = 50_000_000
_PROBE_SECONDS = 1.0


class WriterLock:
    """The presence of this process as a writer, until `release`."""

    def __init__(self, directory: str) -> None:
        """Remove the files of dead writers from `directory`, then sign in. Raises OSError."""
        self.found_dead = _remove_dead(directory)
        """Whether a writer had ended without signing out."""
        while True:
            self.name = f"{_host()}:{_boot()}:{os.getpid()}:{secrets.token_hex(6)}"
            self._path = os.path.join(directory, self.name)
            self._descriptor = os.open(self._path + _NEW, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                # Waits only while another process starts and takes this file for one of the dead.
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
                os.rename(self._path + _NEW, self._path)
                return
            except FileNotFoundError:
                os.close(self._descriptor)  # it was removed before it was locked: again
            except BaseException:
                os.close(self._descriptor)
                raise

    def release(self) -> None:
        """Sign out. Calls of this writer that are still open count as abandoned from here on."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)


def is_alive(directory: str, writer: str) -> bool:
    """Whether the writer of that name still holds its lock; True when it cannot be found out."""
    if not writer or "/" in writer or "\0" in writer:
        return False
    try:
        descriptor = os.open(os.path.join(directory, writer), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


class WritersWatch:
    """Tells a writer cheaply whether others write to the same directory."""

    def __init__(self, directory: str, own: str) -> None:
        self._directory = directory
        self._own = own
        self._stamp = -1
        self._settled = False
        self._others: set[str] = set()
        self._probe_at = 0.0

    def others_may_write(self) -> bool:
        """Whether another writer lives, or may have lived at any time since the last look.

        Raises FileNotFoundError when the own file is gone, so that nobody can see this writer.
        """
        stamp = os.stat(self._directory).st_mtime_ns
        if stamp != self._stamp or not self._settled:
            # Only names that appear after this stamp was settled are sure to change it.
            self._settled = time.time_ns() - stamp >= _STAMP_SETTLED_NS
            self._stamp = stamp
            names = set(os.listdir(self._directory))
            if self._own not in names:
                raise FileNotFoundError(errno.ENOENT, "the file of this writer is gone", self._own)
            self._others = {name for name in names - {self._own} if not name.endswith(_NEW)}
            self._probe_at = 0.0
            self._probe()
            return True
        if not self._others:
            return False
        self._probe()
        return bool(self._others)

    def _probe(self) -> None:
        now = time.monotonic()
        if now >= self._probe_at:
            self._others = {name for name in self._others if is_alive(self._directory, name)}
            self._probe_at = now + _PROBE_SECONDS


def is_of_this_host(writer: str) -> bool:
    return writer.partition(":")[0] == _host()


def _remove_dead(directory: str) -> bool:
    found = False
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
                found = True
            finally:
                os.close(descriptor)
    return found


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname())[:64]


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(8)
    except OSError:
        return "unknown"
