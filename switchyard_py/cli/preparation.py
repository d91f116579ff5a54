"""What must hold before the server starts: a private directory, enough descriptors, a bound socket.

Each step ends the command with one line and exit 1 when it cannot be had.
"""

from __future__ import annotations

import os
import resource
import socket
import tempfile
from pathlib import Path

from switchyard_py.cli.options import end


def create_private(directory: Path) -> None:
    """Create the directory of the records, readable by this user only, and see that it can be written."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        end(f"cannot create the record directory {directory}: {error.strerror}")
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        end(f"cannot write to the record directory {directory}: {error.strerror}")


def check_access_log(target: str) -> None:
    """See that the access log can be written; `-` is standard error."""
    from switchyard_py.access_log import STDERR, open_for_append

    if target == STDERR:
        return
    try:
        os.close(open_for_append(target))
    except OSError as error:
        end(f"cannot write the access log {target}: {error.strerror}")


def raise_descriptor_limit() -> tuple[int, int]:
    """Raise this process's soft descriptor limit to the hard one; return both as they are then.

    Each call in flight holds two sockets, and the usual soft limit of 1024 is reached at 500 agents.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS refuses an infinite soft limit
        return soft, hard
    return hard, hard


def bind(host: str, port: int) -> socket.socket:
    """Return a TCP socket bound to the address, not yet listening. A host with a colon is an IPv6 address."""
    # The protocol is named because asyncio sets TCP_NODELAY only where it is: without it replies wait 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        end(f"cannot listen on {host} port {port}: {error.strerror}")
    return listener
