import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from switchyard_py.store import Filesystem

SHORT_WRITE = """
import os, resource, sys
from switchyard_py.store import Filesystem
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    Filesystem().create(sys.argv[1], b"x" * 3000)
except OSError as error:
    print(error.strerror, os.path.exists(sys.argv[1]))
"""


@pytest.fixture
def filesystem() -> Filesystem:
    return Filesystem()


def test_files_and_directories_are_for_the_owner_only(filesystem: Filesystem, tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        filesystem.make_directory(str(tmp_path / "d"))
        filesystem.create(str(tmp_path / "d" / "f"), b"data")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "d" / "f").stat().st_mode) == 0o600
    assert filesystem.read(str(tmp_path / "d" / "f")) == b"data"


def test_never_writes_over_a_file(filesystem: Filesystem, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        filesystem.create(str(tmp_path / "f"), b"new")
    assert (tmp_path / "f").read_bytes() == b"old"


def test_a_file_that_cannot_be_written_whole_is_removed_again(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHORT_WRITE, str(tmp_path / "f")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["File", "too", "large", "False"]


def test_short_writes_are_continued(filesystem: Filesystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    filesystem.create(str(tmp_path / "f"), bytes(range(256)))
    assert (tmp_path / "f").read_bytes() == bytes(range(256))


def test_reading_a_pipe_does_not_hang(filesystem: Filesystem, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert filesystem.read(str(tmp_path / "pipe.json")) == b""


def test_reading_a_directory_is_an_error(filesystem: Filesystem, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        filesystem.read(str(tmp_path))
