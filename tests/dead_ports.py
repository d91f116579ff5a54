"""Ports of 127.0.0.1 where no engine answers. Use them through `scripted_engine`."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def unanswered_port() -> Iterator[int]:
    """A port of 127.0.0.1 that neither accepts nor refuses: a connect hangs until its own time limit."""
    with socket.socket() as listener, contextlib.ExitStack() as filling:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        # With the queue of unaccepted connections full, Linux drops further ones in silence.
        for _ in range(2):
            client = filling.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        yield port


@contextlib.contextmanager
def refused_port() -> Iterator[int]:
    """A port of 127.0.0.1 that refuses connections."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
