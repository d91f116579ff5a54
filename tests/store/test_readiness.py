import errno
import os
import resource
from pathlib import Path

import pytest
from stored_calls import FaultyFilesystem

from switchyard_py.store import Filesystem, store_fault

GIB = 1 << 30


class FullerFilesystem(Filesystem):
    """One that says how much space there is."""

    def __init__(self, *, free: int, whole: int, free_files: int = 10**6, files: int = 10**7) -> None:
        self.free, self.whole, self.free_files, self.files = free, whole, free_files, files

    def space(self, directory: str) -> os.statvfs_result:
        blocks, free = self.whole // 4096, self.free // 4096
        return os.statvfs_result((4096, 4096, blocks, free, free, self.files, self.free_files, self.free_files, 0, 255))


def test_a_directory_with_space_is_ready_and_keeps_no_file(tmp_path: Path) -> None:
    assert store_fault(tmp_path, 1) is None
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("least", "free", "whole", "expected"),
    [
        (None, GIB, 100 * GIB, None),
        (None, GIB - 4096, 100 * GIB, GIB),
        (None, GIB // 50 + 4096, GIB, None),
        (None, GIB // 50 - 8192, GIB, GIB // 50),
        (5 * GIB, 5 * GIB, 100 * GIB, None),
        (5 * GIB, 4 * GIB, 100 * GIB, 5 * GIB),
        (0, 0, GIB, None),
    ],
)
def test_it_is_not_ready_before_it_is_full(
    tmp_path: Path, least: int | None, free: int, whole: int, expected: int | None
) -> None:
    fault = store_fault(tmp_path, least, FullerFilesystem(free=free, whole=whole))
    if expected is None:
        assert fault is None
    else:
        figures = f"{free // 4096 * 4096} bytes are free, and capture.min_free_bytes is {expected}"
        assert fault == f"the capture directory is nearly full: {figures}"


@pytest.mark.parametrize(("free_files", "files", "least"), [(9_999, 10**7, 10_000), (19, 1000, 20), (0, 0, None)])
def test_files_run_out_as_space_does(tmp_path: Path, free_files: int, files: int, least: int | None) -> None:
    disk = FullerFilesystem(free=GIB, whole=GIB, free_files=free_files, files=files)
    expected = least and f"the capture directory is nearly full: {free_files} more files fit, and {least} should"
    assert store_fault(tmp_path, None, disk) == expected


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("call", ["create", "write"])
def test_errors_are_named(tmp_path: Path, call: str, number: int) -> None:
    filesystem = FaultyFilesystem()
    filesystem.errors = {call: number}
    fault = store_fault(tmp_path, 0, filesystem)
    assert fault == f"the capture directory takes no files: {os.strerror(number)}"


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    fault = store_fault(tmp_path / "gone", 0)
    assert fault == "the capture directory takes no files: No such file or directory"


def test_descriptors_that_have_run_out(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        fault = store_fault(tmp_path, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert fault == "the capture directory takes no files: Too many open files"
