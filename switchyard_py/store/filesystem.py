"""The system calls the store makes on sessions, in one place so that a test can make any of them fail or crawl."""

from __future__ import annotations

import contextlib
import os
import tempfile


class Filesystem:
    """Each method raises OSError as the system call does. Files are made with mode 0600, directories with 0700."""

    def make_directory(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        return True

    def names(self, path: str) -> list[str]:
        return os.listdir(path)

    def create(self, path: str, data: bytes) -> None:
        """Make a new file that holds `data`; after an error no file is left, if it can be removed."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                self.write(descriptor, data)
            finally:
                os.close(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                self.unlink(path)
            raise

    def write(self, descriptor: int, data: bytes) -> None:
        # One write can be short (a signal, a nearly full disk); the next one then tells why.
        written = os.write(descriptor, data)
        if written < len(data):
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[os.write(descriptor, rest) :]

    def read(self, path: str) -> bytes:
        # O_NONBLOCK: a pipe that somebody put there must not hang the reader.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb", buffering=0) as file:
            return file.readall()

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def sync(self, path: str) -> None:
        """Make the content of a file, or the names in a directory, survive a power failure."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def probe(self, directory: str) -> None:
        """Raise OSError unless a file can be made and written; it has no name where the file system can do that."""
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            self.write(file.fileno(), b".")

    def space(self, directory: str) -> os.statvfs_result:
        return os.statvfs(directory)

    def modified_at(self, path: str) -> int:
        """Time of the last change of a file or directory, nanoseconds since 1970."""
        return os.stat(path).st_mtime_ns
