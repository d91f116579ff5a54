"""Server-sent events, read without touching a socket.

Invariant: the `raw` bytes of all events, in order, followed by `end()`, are the input, however the input was cut.
Grammar: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

import re
from typing import NamedTuple

from switchyard_py.upstream.errors import EventTooLarge

DEFAULT_MAX_EVENT_BYTES = 64 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")
# A "\r" at the end of the input may be half of "\r\n", so as the last byte of a block it counts only once the next
# byte is there.
_BLANK_LINE = re.compile(rb"\r\n|\n|\r(?=[^\n])")
_BLOCK_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?=[^\n]))")
_LONGEST_BLOCK_END = len(b"\r\n\r\n")


class SSEEvent(NamedTuple):
    """One block of a stream.

    `raw`: its exact bytes with the blank line that ends it. `data`: the values of its data lines joined with "\\n", or
    None when it has none (a comment, a blank line). `event`: the value of its last event line, or None.
    """

    raw: bytes
    data: bytes | None
    event: bytes | None


class SSEReader:
    """Cuts a byte stream into events; cost is linear in the bytes fed."""

    __slots__ = ("_at_start", "_max_event_bytes", "_pending")

    def __init__(self, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pending = bytearray()
        self._at_start = True

    @property
    def waiting(self) -> int:
        """Bytes of an event whose end has not come."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[SSEEvent]:
        """Return the events that `data` completes. Raises EventTooLarge; the reader is of no use afterwards."""
        events: list[SSEEvent] = []
        limit = self._max_event_bytes
        if self._pending:
            resume = max(0, len(self._pending) - _LONGEST_BLOCK_END + 1)
            self._pending += data
            end = _end_of_block(self._pending, 0, resume)
            if (len(self._pending) if end < 0 else end) > limit:
                raise EventTooLarge(limit)
            if end < 0:
                return events
            events.append(self._event(bytes(self._pending[:end])))
            data = bytes(self._pending[end:])
            self._pending.clear()

        start, size = 0, len(data)
        only_newlines = b"\r" not in data
        while start < size:
            # Nearly every event of an engine is one "data: " line: no regular expression, no list of lines.
            newline = data.find(b"\n", start)
            one_line = only_newlines and data.startswith(b"data: ", start) and data.startswith(b"\n\n", newline)
            end = newline + 2 if one_line else _end_of_block(data, start, start)
            if (size if end < 0 else end) - start > limit:
                raise EventTooLarge(limit)
            if end < 0:
                self._pending += data[start:]
                break
            if one_line:
                self._at_start = False
                events.append(SSEEvent(data[start:end], data[start + 6 : newline], None))
            else:
                events.append(self._event(data[start:end]))
            start = end
        return events

    def end(self) -> bytes:
        """Return what no blank line ended; b"" when the stream stopped between two events.

        A stream that ends its last event with a lone "\\r" counts as unfinished: "\\n" could have followed.
        """
        rest = bytes(self._pending)
        self._pending.clear()
        return rest

    def _event(self, raw: bytes) -> SSEEvent:
        text = raw.removeprefix(_BOM) if self._at_start else raw
        self._at_start = False
        if text.startswith(b"data: ") and text.find(b"\n") == len(text) - 2 and b"\r" not in text:
            # The same one line, cut by the network: a large one would keep a regular expression busy for long.
            return SSEEvent(raw, text[6:-2], None)
        data_lines: list[bytes] = []
        event: bytes | None = None
        for line in _LINE_END.split(text):
            name, _, value = line.partition(b":")
            if name == b"data":
                data_lines.append(value.removeprefix(b" "))
            elif name == b"event":
                event = value.removeprefix(b" ")
        return SSEEvent(raw, b"\n".join(data_lines) if data_lines else None, event)


def _end_of_block(stream: bytes | bytearray, start: int, resume: int) -> int:
    """Where the block that begins at `start` ends, or -1; bytes between `start` and `resume` hold no end."""
    match = _BLANK_LINE.match(stream, start) or _BLOCK_END.search(stream, resume)
    return match.end() if match else -1
