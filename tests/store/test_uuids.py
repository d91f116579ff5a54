import uuid as standard
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchyard_py.store.uuids import (
    UUIDSource,
    iso_time,
    newest_ticks,
    prefix,
    ticks_of,
    ticks_of_iso_time,
    ticks_of_nanoseconds,
    ticks_of_prefix,
)

SECOND = 1_000_000_000
NOW = 1_772_366_400 * SECOND  # 2026-03-01T12:00:00Z


def clock(*times: int) -> UUIDSource:
    remaining: Iterator[int] = iter(times)
    return UUIDSource(lambda: next(remaining))


def test_is_a_version_7_uuid_of_the_clock_with_a_sub_millisecond_fraction() -> None:
    issued = clock(NOW + 123_456_789).issue()
    parsed = standard.UUID(issued)
    assert (parsed.version, parsed.variant) == (7, standard.RFC_4122)
    assert parsed.int >> 80 == (NOW + 123_456_789) // 1_000_000
    assert (parsed.int >> 64) & 0xFFF == 456_789 * 4096 // 1_000_000 + 1
    assert str(parsed) == issued


@given(st.lists(st.integers(0, 2 * NOW), min_size=2, max_size=50))
def test_later_ones_sort_later_whatever_the_clock_does(times: list[int]) -> None:
    source = clock(*times)
    issued = [source.issue() for _ in times]
    assert issued == sorted(set(issued))


def test_is_one_step_beyond_the_newest_name_when_the_clock_is_behind() -> None:
    newest = ticks_of_nanoseconds(NOW) + 5
    source = clock(NOW - 3600 * SECOND)
    source.observe(newest)
    assert ticks_of(source.issue()) == newest + 1


def test_an_older_name_changes_nothing() -> None:
    source = clock(NOW)
    source.observe(ticks_of_nanoseconds(NOW) - 5)
    assert ticks_of(source.issue()) == ticks_of_nanoseconds(NOW) + 1


def test_no_two_are_equal_even_at_one_time() -> None:
    assert len({clock(NOW).issue() for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    "name",
    [
        "",
        "notes",
        "f14703e0-daf8-4df3-81f4-71f5526b9b2c",  # version 4
        "019ca909-9a00-7000-c000-000000000000",  # another variant
        "019CA909-9A00-7000-8000-000000000000",
        "019ca909-9a00-7000-8000-000000000000\n",
        "ffffffff-ffff-7fff-bfff-ffffffffffff",  # the year 10889: no clock said so
    ],
)
def test_other_names_have_no_time(name: str) -> None:
    assert ticks_of(name) is None


@given(st.integers(0, 2 * NOW))
def test_the_time_of_a_uuid_can_be_read_back(nanoseconds: int) -> None:
    ticks = ticks_of_nanoseconds(nanoseconds)
    assert ticks_of_prefix(prefix(ticks)) == ticks
    assert ticks_of(prefix(ticks) + "8000-000000000000") == ticks
    read_back = ticks_of_iso_time(iso_time(ticks))
    assert read_back is not None
    assert 0 <= ticks - read_back <= 5  # ISO times have microseconds


def test_iso_times_look_as_in_records() -> None:
    assert iso_time(ticks_of_nanoseconds(NOW)) == "2026-03-01T12:00:00.000000+00:00"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-03-01T12:00:00", "1969-12-31T23:59:59+00:00"])
def test_other_texts_are_no_times(text: str) -> None:
    assert ticks_of_iso_time(text) is None


def test_the_newest_name_is_found_among_others() -> None:
    ticks = ticks_of_nanoseconds(NOW)
    v7 = [prefix(ticks + step) + "8000-000000000000.json" for step in (0, 7, 3)]
    junk = ["f14703e0-daf8-4df3-81f4-71f5526b9b2c.json", "zzzzzzzzzzzzzz7zzz.json", "notes.txt", "x"]
    assert newest_ticks([*junk, *v7]) == ticks + 7
    assert newest_ticks(junk) == 0
