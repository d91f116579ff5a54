import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchyard_py.store.names import (
    State,
    call_file,
    digest_directory,
    is_digest,
    is_readable,
    parse_call_file,
    session_directory,
    temporary_file,
)

ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=80)


@pytest.mark.parametrize("session_id", ["a", "0", "rollout-17_b", "z" * 64, "f" * 63])
def test_a_harmless_id_is_its_own_directory(session_id: str) -> None:
    assert session_directory(session_id) == session_id


@pytest.mark.parametrize(
    "session_id",
    ["A", "é", "a/b", "..", ".", "-a", "_a", "a" * 65, "a\n", "a b", "a%2Fb", "../../etc/passwd", "ab" * 32, "a."],
)
def test_any_other_id_has_the_directory_of_the_original_proxy(session_id: str) -> None:
    assert session_directory(session_id) == hashlib.sha256(session_id.encode()).hexdigest()
    assert session_directory(session_id) == digest_directory(session_id)


@given(ids, ids)
def test_no_two_ids_share_a_directory_not_even_without_regard_to_case(one: str, other: str) -> None:
    first, second = session_directory(one), session_directory(other)
    assert (first.lower() == second.lower()) == (one == other)
    assert is_readable(first) != is_digest(first)


@pytest.mark.parametrize("session_id", ["", "\ud800", "a\udfff"])
def test_an_id_that_cannot_be_written_is_refused(session_id: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - UnicodeEncodeError has a text of its own
        session_directory(session_id)


@pytest.mark.parametrize("state", State)
def test_a_file_name_tells_uuid_and_state(state: State) -> None:
    assert parse_call_file(call_file("some-uuid", state)) == ("some-uuid", state)


@pytest.mark.parametrize("name", ["", "x", ".json", "x.json.tmp", "x.txt", "open", "x.JSON", "x.json~", "json"])
def test_any_other_file_name_tells_nothing(name: str) -> None:
    assert parse_call_file(name) is None


def test_a_temporary_file_is_no_state_and_names_its_writer() -> None:
    name = temporary_file("some-uuid", "host:boot:1:ab")
    assert parse_call_file(name) is None
    assert "host:boot:1:ab" in name


def test_a_later_state_overrules_an_earlier_one() -> None:
    assert State.OPEN < State.FAILED < State.LOST < State.UNDELIVERED < State.COMMITTED
