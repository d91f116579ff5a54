"""How long an engine asks to be left alone."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from switchyard_py.attempts import advised_pause


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("7", 7), ("0.5", 0.5), ("-3", 0), ("", None), ("soon", None), ("nan", None), ("inf", None),
     ("Mon, 99 Foo 2026", None)],
)  # fmt: skip
def test_a_number_of_seconds(text: str, seconds: float | None) -> None:
    assert advised_pause({"retry-after": text}) == seconds


def test_a_date() -> None:
    later = datetime.now(UTC) + timedelta(seconds=100)
    pause = advised_pause({"retry-after": format_datetime(later, usegmt=True)})
    assert pause is not None
    assert 98 < pause <= 100
    assert advised_pause({"retry-after": "Mon, 01 Jan 2024 00:00:00 GMT"}) == 0


def test_none_at_all() -> None:
    assert advised_pause({}) is None
