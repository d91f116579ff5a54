"""The limits that are in effect, as lines of the log: what a surprised operator looks for first."""

from __future__ import annotations

from collections.abc import Iterator

from switchyard_py.config import ServeSettings, Target
from switchyard_py.store import free_room

_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def limits(settings: ServeSettings, descriptors: int, most_descriptors: int) -> Iterator[str]:
    """One line for the server, one for the store when there is one, one for each target."""
    server, capture = settings.bundle.server, settings.bundle.capture
    yield (
        f"limits: descriptor limit: {descriptors} of {most_descriptors}; workers: {settings.workers}; "
        f"request body: {_size(server.max_body_bytes)}; drain: {server.drain_seconds:g} s; "
        f"grace: {server.grace_seconds:g} s"
    )
    if settings.log_dir is not None:
        yield (
            f"limits of the store: durability: {capture.durability}; begin timeout: {capture.begin_timeout:g} s; "
            + _room(settings)
        )
    for target in {route.target.id: route.target for route in settings.bundle.routes}.values():
        yield _target(target)


def _room(settings: ServeSettings) -> str:
    assert settings.log_dir is not None
    try:
        room = free_room(settings.log_dir, settings.bundle.capture.min_free_bytes)
    except OSError as error:
        return f"free space: not known: {error.strerror}"
    return f"free space: {_size(room.free_bytes)}, not ready below {_size(room.least_bytes)}"


def _target(target: Target) -> str:
    seconds = {
        "connect": target.connect_timeout,
        "first byte": target.first_byte_timeout,
        "idle": target.idle_timeout,
        "total": target.total_timeout,
    }
    timeouts = ", ".join(f"{name} {'none' if limit is None else f'{limit:g} s'}" for name, limit in seconds.items())
    return f"timeouts of target {target.id}: {timeouts}; early headers after {target.early_headers_after:g} s"


def _size(count: int) -> str:
    """The largest unit in which it is a whole number, or at least 10."""
    for unit, size in _UNITS:
        if count >= 10 * size or (count and count % size == 0):
            return f"{count / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} bytes"
