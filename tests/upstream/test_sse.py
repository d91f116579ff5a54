import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_recordings import Recording, recordings

from switchyard_py.upstream import EventTooLarge, SSEEvent, SSEReader

STREAMS = [recording for recording in recordings() if recording.is_stream]


def read(*pieces: bytes) -> tuple[list[SSEEvent], bytes]:
    reader = SSEReader()
    return [event for piece in pieces for event in reader.feed(piece)], reader.end()


def fields(stream: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [(event.data, event.event) for event in read(stream)[0]]


@pytest.mark.parametrize(
    ("stream", "data", "event"),
    [
        (b"data: x\n\n", b"x", None),
        (b"data:x\n\n", b"x", None),
        (b"data:  x\n\n", b" x", None),
        (b"data: x\r\n\r\n", b"x", None),
        (b"data: x\r\rdata", b"x", None),
        (b"data: x\n\r\n", b"x", None),
        (b"data: x\r\n\n", b"x", None),
        (b"data: a\ndata\ndata: b\n\n", b"a\n\nb", None),
        (b"data: a\rdata: b\n\n", b"a\nb", None),
        (b"event: end\ndata: {}\n\n", b"{}", b"end"),
        (b"data: a:b\nid: 7\nretry: 5\nunknown\n\n", b"a:b", None),
        (b": keep-alive\n\n", None, None),
        (b"\n", None, None),
        (b"\r\n", None, None),
        (b"datafile: x\n\n", None, None),
        (b"data:\n\n", b"", None),
        (b"data\n\n", b"", None),
        (b"\xef\xbb\xbfdata: x\n\n", b"x", None),
    ],
)
def test_reads_one_block(stream: bytes, data: bytes | None, event: bytes | None) -> None:
    assert fields(stream) == [(data, event)]


def test_only_the_first_bom_is_no_data() -> None:
    for first, value in ((b"data: a\n\n", b"a"), (b": comment\n\n", None)):
        assert fields(first + b"\xef\xbb\xbfdata: b\n\n") == [(value, None), (None, None)]


def test_an_event_is_there_with_its_last_byte() -> None:
    reader = SSEReader()
    assert reader.feed(b"data: a\n") == []
    assert [event.data for event in reader.feed(b"\n")] == [b"a"]
    assert reader.feed(b"data: b\r\n\r") == []
    assert [event.data for event in reader.feed(b"\n")] == [b"b"]


def test_end_returns_what_is_unfinished() -> None:
    assert read(b"data: a\n\ndata: b\n")[1] == b"data: b\n"
    assert read(b"data: a\n\n")[1] == b""
    assert read(b"data: a\r\n\r\n")[1] == b""


@given(
    st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"data: x", b"data:", b"event: e", b":", b"\xef\xbb\xbf", b"y"]))
)
def test_any_split_gives_the_same_events(parts: list[bytes]) -> None:
    stream = b"".join(parts)
    events, rest = whole = read(stream)
    assert b"".join(event.raw for event in events) + rest == stream
    assert read(*(stream[i : i + 1] for i in range(len(stream)))) == whole
    for cut in range(1, len(stream)):
        assert read(stream[:cut], stream[cut:]) == whole


@pytest.mark.parametrize("recording", STREAMS, ids=lambda recording: recording.name)
def test_recorded_streams_survive_every_cut(recording: Recording) -> None:
    stream = recording.body
    events, rest = whole = read(stream)
    assert rest == b""
    assert b"".join(event.raw for event in events) == stream
    assert events[-1].data == b"[DONE]"
    assert read(*(stream[i : i + 1] for i in range(len(stream)))) == whole
    assert read(*(stream[i : i + 97] for i in range(0, len(stream), 97))) == whole
    for event, following in pairwise(events):
        both = event.raw + following.raw
        # Of the long streams, whose events are all alike, the ends of each event and some places between.
        step = 1 if len(stream) <= 12_000 else 31
        for cut in {*range(1, len(event.raw), step), *range(1, 5), *range(len(event.raw) - 4, len(event.raw) + 1)}:
            assert read(both[:cut], both[cut:]) == ([event, following], b"")


def test_too_large_an_event_is_refused_before_it_is_complete() -> None:
    assert len(SSEReader(max_event_bytes=9).feed(b"data: x\n\ndata: y\n\n")) == 2
    for pieces in (
        [b"data: xx\n\n"],
        [b"data: xxxxx"],
        [b"data: x", b"x\n\n"],
        [b"data: x", b"xxx"],
        [b": xxxxxxx\n\n"],
    ):
        reader = SSEReader(max_event_bytes=9)
        with pytest.raises(EventTooLarge, match="9 bytes"):
            [reader.feed(piece) for piece in pieces]


def test_cost_is_linear_in_the_length_of_a_line() -> None:
    def seconds(size: int) -> float:
        stream = b"data: " + b"x" * size + b"\n\n"
        started = time.process_time()
        events, _ = read(*(stream[i : i + 1024] for i in range(0, len(stream), 1024)))
        assert len(events) == 1
        return time.process_time() - started

    small = min(seconds(500_000) for _ in range(3))
    assert seconds(5_000_000) < 40 * small
