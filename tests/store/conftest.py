from collections.abc import Iterator
from pathlib import Path

import pytest

from switchyard_py.store import SessionReader, Writer


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path)
    yield writer
    writer.close()


@pytest.fixture
def reader(tmp_path: Path, writer: Writer) -> SessionReader:
    return SessionReader(tmp_path, writer)
