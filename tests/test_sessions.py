"""Which session a call belongs to: every source, every precedence, and the ids that cannot be used."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from reference_cases import ReferenceCase, reference_cases

from switchyard_py.access import Access
from switchyard_py.config import AuthSettings
from switchyard_py.errors import RequestRefused
from switchyard_py.rawjson import split_object
from switchyard_py.sessions import Identity, header_values, identify

Place = tuple[dict[str, str], dict[str, Any], str | None]
"""Headers, body fields and the session in the base URL of one call."""

KEY = "sycap-session:"


def header(name: str, *, value: str = "{}") -> Callable[[str], Place]:
    return lambda session: ({name: value.format(session)}, {}, None)


def user_id(session: str) -> Place:
    return {}, {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": session})}}, None


# In order of rank, first the one that wins.
SOURCES: dict[str, Callable[[str], Place]] = {
    "proxy_x_session_id": header("proxy_x_session_id"),
    "proxy-x-session-id": header("proxy-x-session-id"),
    "x-switchyard-session-id": header("x-switchyard-session-id"),
    "base URL": lambda session: ({}, {}, session),
    "body": lambda session: ({}, {"proxy_x_session_id": session}, None),
    "x-session-id": header("x-session-id"),
    "x-switchyard-api-key": header("x-switchyard-api-key", value=KEY + "{}"),
    "authorization": header("authorization", value=f"Bearer {KEY}{{}}"),
    "x-api-key": header("x-api-key", value=KEY + "{}"),
    "x-litellm-session-id": header("x-litellm-session-id"),
    "x-claude-code-session-id": header("x-claude-code-session-id"),
    "session-id": header("session-id"),
    "session_id": header("session_id"),
    "x-opencode-session": header("x-opencode-session"),
    "x-session-id of a harness": lambda session: (
        {"x-session-id": session, "x-session-affinity": session},
        {},
        None,
    ),
    "metadata.user_id": user_id,
}


def find(*places: Place, **options: Any) -> Identity:
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    path = None
    for place_headers, fields, in_path in places:
        headers |= place_headers
        body |= fields
        path = path or in_path
    fields_on_the_wire = split_object(json.dumps(body).encode())
    sent = header_values([(name.encode(), value.encode()) for name, value in headers.items()])
    key_session = session_of_key(sent)
    return identify(sent, fields_on_the_wire, path, key_session=key_session, **{"reads_user_id": True} | options)


def session_of_key(headers: dict[str, str]) -> str | None:
    return Access(AuthSettings()).admit_caller(headers).session_id


@pytest.mark.parametrize("source", SOURCES)
def test_each_source_names_the_session(source: str) -> None:
    assert find(SOURCES[source]("one")).session_id == "one"


# A call has one x-session-id: what it is depends on x-session-affinity.
PAIRS = [
    pair for pair in itertools.combinations(SOURCES, 2) if not all(name.startswith("x-session-id") for name in pair)
]


@pytest.mark.parametrize(("winner", "loser"), PAIRS)
def test_the_higher_rank_wins(winner: str, loser: str) -> None:
    identity = find(SOURCES[loser]("low"), SOURCES[winner]("high"))
    assert identity.session_id == "high"


def test_without_any_source_a_call_belongs_to_no_session() -> None:
    assert find(
        ({"x-request-id": "r", "authorization": "Bearer sk-1", "x-parent-session-id": "p"}, {}, None)
    ) == Identity(parent_session_id="p")


@pytest.mark.parametrize("source", SOURCES)
def test_an_empty_source_is_none(source: str) -> None:
    for nothing in ("", "   "):
        identity = find(SOURCES["metadata.user_id"]("next"), SOURCES[source](nothing))
        assert identity.session_id == (None if source == "metadata.user_id" else "next")


@pytest.mark.parametrize("value", [5, 0, True, False, None, [], ["a"], {}, {"a": 1}, 1e300])
def test_a_body_field_that_is_no_text_names_no_session(value: object) -> None:
    assert find(({}, {"proxy_x_session_id": value}, None)).session_id is None


def test_a_plain_session_header_counts_unless_the_affinity_header_says_the_harness_made_it_up() -> None:
    both = {"x-session-id": "a", "x-litellm-session-id": "l"}
    assert find((both, {}, None)).session_id == "a"
    assert find((both | {"x-session-affinity": "other"}, {}, None)).session_id == "a"
    made_up = find((both | {"x-session-affinity": "a"}, {}, None))
    assert made_up.session_id == "l"
    assert made_up.agent == {"x-session-id": "a"}


@pytest.mark.parametrize(
    ("name", "value", "session"),
    [
        ("authorization", "bearer sycap-session:a b c", "a b c"),
        ("authorization", "BEARER  sycap-session:a", "a"),
        ("authorization", "Basic sycap-session:a", None),
        ("authorization", "sycap-session:a", None),
        ("authorization", "Bearer SYCAP-SESSION:a", None),
        ("authorization", "Bearer sycap-session:", None),
        ("x-api-key", "Bearer sycap-session:a", None),
        ("x-api-key", "sycap-session:a:b", "a:b"),
        ("x-goog-api-key", "sycap-session:a", None),
    ],
)
def test_an_api_key_names_a_session_only_in_its_form(name: str, value: str, session: str | None) -> None:
    assert find(({name: value}, {}, None)).session_id == session


@pytest.mark.parametrize(
    "user_id",
    [
        "plain",
        "{",
        '{"session_id":5}',
        '{"session_id":" "}',
        "[1]",
        '{"a":' * 100_000,
        None,
        5,
        {"session_id": "s"},
    ],
)
def test_a_user_id_of_another_form_names_no_session(user_id: object) -> None:
    assert find(({}, {"metadata": {"user_id": user_id}}, None)).session_id is None
    assert find(({}, {"metadata": user_id}, None)).session_id is None


def test_a_user_id_is_read_only_where_the_dialect_has_one() -> None:
    assert find(user_id("u"), reads_user_id=False) == Identity()


def test_the_list_of_native_headers_can_be_replaced() -> None:
    place: Place = {"x-mine": "m", "x-litellm-session-id": "l"}, {}, None
    assert find(place, native_headers=("x-mine",)) == Identity("m")
    assert find(place, native_headers=()) == Identity()


@pytest.mark.parametrize(
    ("raw", "session"),
    [
        ("日本".encode(), "日本"),
        ("café".encode("latin-1"), "café"),
        (b"\xe9\xff", "éÿ"),
        (b"  pad\t ", "pad"),
        (b"a/../b?c=d&e#f %20;:\"'<>|*", "a/../b?c=d&e#f %20;:\"'<>|*"),
    ],
)
def test_header_bytes_are_utf8_where_they_can_be(raw: bytes, session: str) -> None:
    assert identify(header_values([(b"Proxy_X_Session_Id", raw)]), {}).session_id == session


def test_of_equal_header_names_the_first_counts() -> None:
    assert header_values([(b"X-A", b"1"), (b"x-a", b"2"), (b"X-B", b"")]) == {"x-a": "1", "x-b": ""}


def test_the_same_id_in_header_body_and_url_is_the_same_session() -> None:
    sources = ("proxy_x_session_id", "body", "base URL", "authorization")
    assert {find(SOURCES[source]("é 日")).session_id for source in sources} == {"é 日"}


USABLE = [
    "a",
    "x" * 512,
    "a/b",
    "a/completions",
    "../../etc/passwd",
    "é",
    "...",
    "a%2Fb",
    "A",
    "\U0001f600" * 512,
    "a\u200bb",
]


@pytest.mark.parametrize("session", USABLE)
def test_ids_are_opaque(session: str) -> None:
    assert find(({}, {"proxy_x_session_id": f" {session}\t"}, None)).session_id == session
    assert find(({"x-session-id": "s", "x-parent-session-id": session}, {}, None)).parent_session_id == session


@pytest.mark.parametrize(
    ("session", "says"),
    [
        ("x" * 513, "513 characters"),
        (".", "path step"),
        ("..", "path step"),
        ("a\x00b", "control characters"),
        ("a\nb", "control characters"),
        ("a\x7fb", "control characters"),
        ("a\x85b", "control characters"),
        ("\ud800x", "lone surrogates"),
    ],
)
def test_an_id_that_cannot_be_used_is_refused(session: str, says: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        find(({}, {"proxy_x_session_id": session}, None))
    assert says in str(caught.value)
    assert (caught.value.status, caught.value.code) == (400, "invalid_session")
    assert "1 to 512 printable characters" in str(caught.value)


def test_a_parent_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(RequestRefused):
        find(({"x-session-id": "s", "x-parent-session-id": "x" * 513}, {}, None))


@pytest.mark.parametrize("session", ["a\u00a0", "\u3000a", "a\u2003b", "\u00a0"])
def test_white_space_that_is_no_blank_belongs_to_the_id(session: str) -> None:
    assert identify({}, {"proxy_x_session_id": json.dumps(session).encode()}).session_id == session
    assert identify({}, {"proxy_x_session_id": json.dumps(f" \t{session} ").encode()}).session_id == session


@pytest.mark.parametrize("session", ["a\x85", "\x1fa", "a\n", "\ra", "\x0ca"])
def test_control_characters_around_an_id_are_not_trimmed_off(session: str) -> None:
    with pytest.raises(RequestRefused, match="control characters"):
        identify({}, {"proxy_x_session_id": json.dumps(session).encode()})


def test_an_unusable_id_that_lost_refuses_nothing() -> None:
    assert find(({"x-session-id": "x" * 513, "proxy_x_session_id": "s"}, {}, None)).session_id == "s"


def test_what_lost_and_what_names_sub_agents_is_kept() -> None:
    headers = {
        "proxy_x_session_id": "trainer",
        "x-session-id": "native",
        "x-litellm-session-id": "lite",
        "x-claude-code-agent-id": "sub",
        "thread-id": "t",
        "x-codex-parent-thread-id": "pt",
        "x-codex-window-id": "w",
        "x-parent-session-id": "parent",
        "authorization": "Bearer secret",
    }
    identity = find((headers, {"prompt_cache_key": "group"}, None), user_id("x" * 600))
    assert identity == Identity(
        "trainer",
        "parent",
        {
            "x-session-id": "native",
            "x-litellm-session-id": "lite",
            "metadata.user_id": "x" * 512,
            "x-claude-code-agent-id": "sub",
            "thread-id": "t",
            "x-codex-parent-thread-id": "pt",
            "x-codex-window-id": "w",
            "prompt_cache_key": "group",
        },
    )


def test_the_id_that_won_is_not_repeated() -> None:
    assert find(({"session-id": "s", "session_id": "s", "thread-id": ""}, {"prompt_cache_key": 5}, None)) == Identity(
        "s"
    )


# Where the session differs from the reference's on purpose.
DELIBERATE = {
    "session_body_whitespace": "white space is no id",
    "session_body_long": "ids are limited to 512 characters",
    "session_header_long_8k": "ids are limited to 512 characters",
    "session_body_nul_char": "control characters are refused",
    "session_body_lone_surrogate": "refused with 400 instead of 500",
    "session_header_padded": "trailing white space is trimmed like leading one",
    "session_header_utf8_bytes": "bytes that are UTF-8 are read as UTF-8",
    "session_header_proxyDASHxDASHsessionDASHid": "the hyphenated twin of proxy_x_session_id counts",
    "session_header_xDASHswitchyardDASHsessionDASHid": "this header counts as assigned",
    "session_header_sessionDASHid": "a harness's own header counts",
    "session_header_sessionUSCid": "a harness's own header counts",
}
CASES = {
    name: case
    for name, case in reference_cases().items()
    if name.startswith(("session_", "precedence_")) and isinstance(case.body, dict)
}


def test_the_reference_cases_are_there() -> None:
    assert len(CASES) > 40
    assert DELIBERATE.keys() <= CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_the_session_is_the_one_the_reference_found(name: str) -> None:
    case = CASES[name]
    found = reference_session(case)
    stored = case.record and (case.record["session_id"], case.record["parent_session_id"])
    assert (found != stored) == (name in DELIBERATE), found


def reference_session(case: ReferenceCase) -> tuple[str | None, str | None] | str | None:
    sent = header_values([(name.encode(), header_bytes(value)) for name, value in case.headers])
    fields = split_object(json.dumps(case.body).encode())
    try:
        identity = identify(sent, fields, key_session=session_of_key(sent))
    except RequestRefused:
        return "refused"
    return identity.session_id and (identity.session_id, identity.parent_session_id)


def header_bytes(value: Any) -> bytes:
    text: str = value if isinstance(value, str) else value["bytes_latin1"]
    return text.encode("latin-1")
