"""Directory, descriptors and socket, as the server finds them."""

import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from switchyard_py.cli.preparation import bind, create_private, raise_descriptor_limit


def test_a_directory_is_created_for_this_user_only(tmp_path: Path) -> None:
    directory = tmp_path / "some" / "where"
    create_private(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    create_private(directory)


def test_a_directory_that_cannot_be_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(typer.Exit) as ended:
            create_private(path)
        assert ended.value.exit_code == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: cannot create the record directory {path}: ")


def test_a_directory_that_takes_no_files_is_told_in_the_systems_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FileNotFoundError) as refused:
        Path("/proc/self/file").touch()
    with pytest.raises(typer.Exit) as ended:
        create_private(Path("/proc/self"))
    assert ended.value.exit_code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: cannot write to the record directory /proc/self: {refused.value.strerror}"


@pytest.fixture
def low_limit() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_descriptor_limit_is_raised_to_the_hard_one(low_limit: int) -> None:
    assert raise_descriptor_limit() == (low_limit, low_limit)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low_limit, low_limit)


def test_a_socket_is_bound_but_not_listening() -> None:
    with bind("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        assert address[1] != 0
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1


def test_an_address_that_cannot_be_had(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        for host, why in (("127.0.0.1", "Address already in use"), ("no such host", "")):
            port = other.getsockname()[1]
            with pytest.raises(typer.Exit) as ended:
                bind(host, port)
            assert ended.value.exit_code == 1
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(f"error: cannot listen on {host} port {port}: {why}")
