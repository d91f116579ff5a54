"""Whether a directory can be relied on for more calls, told before it is full."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from switchyard_py.store.filesystem import Filesystem

# Unless the operator says how much: on a large disk a fixed amount, on a small one a share of it.
_FREE_BYTES = 1 << 30
_FREE_FILES = 10_000
_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Room:
    """What is free on a file system for whoever is not root, and how much of it should be."""

    free_bytes: int
    least_bytes: int
    free_files: int
    least_files: int


def free_room(directory: Path, min_free_bytes: int | None = None, filesystem: Filesystem | None = None) -> Room:
    """The room on the file system of a directory. Blocks; raises OSError.

    `min_free_bytes` None: 1 GiB, or 2 % of the file system where that is less; the same share, and at most 10,000, is
    asked of the number of files that can still be made.
    """
    space = (filesystem or Filesystem()).space(os.fspath(directory))
    least_bytes = _least(_FREE_BYTES, space.f_blocks * space.f_frsize) if min_free_bytes is None else min_free_bytes
    # Some file systems do not count files, and say 0.
    return Room(space.f_bavail * space.f_frsize, least_bytes, space.f_favail, _least(_FREE_FILES, space.f_files))


def store_fault(directory: Path, min_free_bytes: int | None = None, filesystem: Filesystem | None = None) -> str | None:
    """Why the directory is not to be relied on, with the figures; None when it is.

    Blocks. `min_free_bytes`: see `free_room`.
    """
    filesystem = filesystem or Filesystem()
    try:
        filesystem.probe(os.fspath(directory))
        room = free_room(directory, min_free_bytes, filesystem)
    except OSError as error:
        return f"the capture directory takes no files: {os.strerror(error.errno or 0)}"
    if room.free_bytes < room.least_bytes:
        return (
            f"the capture directory is nearly full: {room.free_bytes} bytes are free, "
            f"and capture.min_free_bytes is {room.least_bytes}"
        )
    if room.free_files < room.least_files:
        return f"the capture directory is nearly full: {room.free_files} more files fit, and {room.least_files} should"
    return None


def _least(amount: int, whole: int) -> int:
    return min(amount, int(whole * _SHARE))
