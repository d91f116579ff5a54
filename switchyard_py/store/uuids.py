"""UUIDv7 of calls: names that sort in call order for calls that do not overlap, on one machine.

Time is counted in ticks of 1/4096 millisecond (RFC 9562, method 3: the 12 bits after the milliseconds hold their
fraction), the other 62 bits are random.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

_V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_PREFIX = len("01234567-89ab-7def-")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICKS_PER_MILLISECOND = 4096


def ticks_of_nanoseconds(nanoseconds: int) -> int:
    return nanoseconds * _TICKS_PER_MILLISECOND // 1_000_000


_LAST_TICK = ticks_of_nanoseconds(int(datetime(9999, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000_000)


def ticks_of(uuid: str) -> int | None:
    """The time of a UUIDv7, None for any other name and for times after the year 9998, which no clock gave."""
    if _V7.fullmatch(uuid) is None:
        return None
    ticks = ticks_of_prefix(uuid)
    return ticks if ticks < _LAST_TICK else None


def prefix(ticks: int) -> str:
    """The first 19 characters of a UUIDv7 of that time; they sort as the times do."""
    milliseconds, fraction = divmod(ticks, _TICKS_PER_MILLISECOND)
    return f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}-7{fraction:03x}-"


def ticks_of_prefix(text: str) -> int:
    return int(text[0:8] + text[9:13] + text[15:18], 16)


def iso_time(ticks: int) -> str:
    """UTC, ISO 8601 with microseconds, as in `captured_at` of a record."""
    moment = _EPOCH + timedelta(microseconds=ticks * 1000 // _TICKS_PER_MILLISECOND)
    return moment.isoformat(timespec="microseconds")


def ticks_of_iso_time(text: str) -> int | None:
    """The time an ISO 8601 text with an offset tells, None when it is none or lies before 1970."""
    try:
        ticks = ticks_of_nanoseconds((datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1) * 1000)
    except (ValueError, TypeError):  # TypeError: no offset given
        return None
    return ticks if 0 <= ticks < _LAST_TICK else None


def newest_ticks(names: Iterable[str]) -> int:
    """The time of the newest UUIDv7 among file names that start with a uuid; 0 without any."""
    candidates = [name for name in names if name[14:15] == "7"]
    while candidates:
        newest = max(candidates)
        ticks = ticks_of(newest[:36])
        if ticks is not None:
            return ticks
        candidates.remove(newest)
    return 0


class UUIDSource:
    """Issues the uuids of one process, each later than those before and than every name it was told of.

    Usable from several threads.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock` gives nanoseconds since 1970 and may step back."""
        self._clock = clock
        self._last = 0
        self._lock = threading.Lock()

    def observe(self, ticks: int) -> None:
        """Issue nothing up to this time any more."""
        with self._lock:
            self._last = max(self._last, ticks)

    def issue(self) -> str:
        with self._lock:
            self._last = ticks = max(ticks_of_nanoseconds(self._clock()), self._last) + 1
        random = int.from_bytes(os.urandom(8)) & (1 << 62) - 1 | 1 << 63
        return f"{prefix(ticks)}{random >> 48:04x}-{random & (1 << 48) - 1:012x}"
