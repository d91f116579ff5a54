"""Whether a directory can be relied on for more calls, told before it is full."""

from __future__ import annotations

import os
from pathlib import Path

from switchyard_py.store.filesystem import Filesystem

# Unless the operator says how much: on a large disk a fixed amount, on a small one a share of it.
_FREE_BYTES = 1 << 30
_FREE_FILES = 10_000
_SHARE = 0.02


def store_fault(directory: Path, min_free_bytes: int | None = None, filesystem: Filesystem | None = None) -> str | None:
    """Why the directory is not to be relied on, with the figures; None when it is.

    Blocks. `min_free_bytes` None: 1 GiB, or 2 % of the file system where that is less; the same share, and at most
    10,000, is asked of the number of files that can still be made.
    """
    filesystem = filesystem or Filesystem()
    path = os.fspath(directory)
    try:
        filesystem.probe(path)
        space = filesystem.space(path)
    except OSError as error:
        return f"the capture directory takes no files: {os.strerror(error.errno or 0)}"
    free = space.f_bavail * space.f_frsize
    least = _least(_FREE_BYTES, space.f_blocks * space.f_frsize) if min_free_bytes is None else min_free_bytes
    if free < least:
        return f"the capture directory is nearly full: {free} bytes are free, and capture.min_free_bytes is {least}"
    # Some file systems do not count files, and say 0.
    least_files = _least(_FREE_FILES, space.f_files)
    if space.f_favail < least_files:
        return f"the capture directory is nearly full: {space.f_favail} more files fit, and {least_files} should"
    return None


def _least(amount: int, whole: int) -> int:
    return min(amount, int(whole * _SHARE))
