"""Directory listings that miss no call while calls change their state."""

from __future__ import annotations

from switchyard_py.store.filesystem import Filesystem

# The C library reads at least 32 KB of names at a time, and the kernel lets nothing change meanwhile: 100 names of
# the longest kind fit.
_READ_AT_ONCE = 100


def file_names(filesystem: Filesystem, directory: str) -> list[str]:
    """The names in a directory, each once; raises OSError.

    A call that is committed between two reads of a large directory can be missed under both of its names: the second
    listing, which then has the new name, is added.
    """
    names = filesystem.names(directory)
    if len(names) > _READ_AT_ONCE:
        names = list({*names, *filesystem.names(directory)})
    return names
