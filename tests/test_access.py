"""Which keys let in whom: every place of a key, every list, and session keys whole, forged and cut."""

import base64
import hmac
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchyard_py.access import Access, Admission, signed_session_key
from switchyard_py.config import AuthSettings
from switchyard_py.errors import RequestRefused
from switchyard_py.sessions import checked_id, header_values

CALLERS = ("caller-key-old", "caller-key-new")
READERS = ("reader-key-old", "reader-key-new")
SECRETS = ("session-secret-new", "session-secret-old")
ALL = AuthSettings(CALLERS, READERS, SECRETS)


def places(key: str) -> dict[str, dict[str, str]]:
    """One request for each place of a key."""
    return {
        "bearer": {"authorization": f"Bearer {key}"},
        "spelling": {"authorization": f"bearer \t {key}"},
        "x-api-key": {"x-api-key": key},
        "x-switchyard-api-key": {"x-switchyard-api-key": key},
        "beside others": {"authorization": "Bearer sk-dummy", "x-api-key": key, "x-switchyard-api-key": "other"},
    }


def refused(admit: Any, headers: Mapping[str, str]) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        admit(headers)
    return caught.value


NO_KEYS: list[dict[str, str]] = [
    {},
    {"authorization": ""},
    {"authorization": "Bearer"},
    {"authorization": "Bearer "},
    {"authorization": "caller-key-new"},
    {"authorization": "Basic caller-key-new"},
    {"x-api-key": "Bearer caller-key-new"},
    {"x-api-key": "caller-key-ne"},
    {"x-api-key": "caller-key-newer"},
    {"x-api-key": "CALLER-KEY-NEW"},
    {"x-api-key": "caller-key-new caller-key-old"},
    {"x-api-key": "schlüssel"},
    {"x-goog-api-key": "caller-key-new"},
    {"cookie": "caller-key-new"},
    {"x-api-key": "reader-key-new"},
    {"x-api-key": "session-secret-new"},
]


@pytest.mark.parametrize("key", CALLERS)
@pytest.mark.parametrize("place", places(""))
def test_every_caller_key_calls_from_every_place(key: str, place: str) -> None:
    assert Access(AuthSettings(caller_keys=CALLERS)).admit_caller(places(key)[place]) == Admission()


@pytest.mark.parametrize("headers", NO_KEYS, ids=str)
def test_nothing_else_calls(headers: dict[str, str]) -> None:
    error = refused(Access(ALL).admit_caller, headers)
    assert (error.status, error.code) == (401, "invalid_api_key")
    assert error.body()["error"] == {
        "message": str(error),
        "type": "authentication_error",
        "param": None,
        "code": "invalid_api_key",
    }
    assert error.headers["x-should-retry"] == "false"
    assert error.headers["www-authenticate"] == "Bearer"
    assert "send a caller key or the signed key of a session as `Authorization: Bearer`" in str(error)
    assert "key-new" not in str(error)


def test_the_refusal_says_whether_a_key_came() -> None:
    access = Access(AuthSettings(caller_keys=CALLERS))
    assert str(refused(access.admit_caller, {})).startswith("This request brings no key: send a caller key as ")
    wrong = refused(access.admit_caller, {"x-api-key": "wrong"})
    assert str(wrong).startswith("The key of this request is not one that is known here: send a caller key as ")


@pytest.mark.parametrize("key", READERS)
@pytest.mark.parametrize("place", places(""))
def test_every_reader_key_reads_from_every_place(key: str, place: str) -> None:
    Access(ALL).admit_reader(places(key)[place])


@pytest.mark.parametrize(
    "headers",
    [{}, *({"x-api-key": key} for key in (*CALLERS, *SECRETS, signed_session_key("s", SECRETS[0]), "reader-key"))],
    ids=str,
)
def test_nothing_else_reads(headers: dict[str, str]) -> None:
    error = refused(Access(ALL).admit_reader, headers)
    assert (error.status, error.code) == (401, "invalid_api_key")
    assert "send a reader key" in str(error)


def test_nobody_is_asked_for_a_key_that_is_not_given() -> None:
    for headers in NO_KEYS:
        assert Access(AuthSettings(reader_keys=READERS)).admit_caller(headers) == Admission()
        Access(AuthSettings(caller_keys=CALLERS, session_secrets=SECRETS)).admit_reader(headers)


def test_every_known_key_is_compared_even_after_one_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    Access(ALL).admit_caller({"x-api-key": CALLERS[0]})
    assert compared == [(CALLERS[0].encode(), key.encode()) for key in CALLERS]
    compared.clear()
    Access(ALL).admit_reader({"x-api-key": READERS[0]})
    assert compared == [(READERS[0].encode(), key.encode()) for key in READERS]
    compared.clear()
    Access(AuthSettings(session_secrets=SECRETS)).admit_caller({"x-api-key": signed_session_key("s", SECRETS[0])})
    assert len(compared) == len(SECRETS)


IDS = ["s", "a.b", "a.b.c", "..a", "s.", "é/日本", "a b", "sycap-session:s", "x" * 512, "a:b", "%2e"]


@pytest.mark.parametrize("session_id", IDS)
def test_a_signed_key_is_the_id_and_a_mac_behind_the_last_dot(session_id: str) -> None:
    # Keys that agents hold must stay good when the proxy is updated.
    digest = hmac.digest(b"session-secret-new", b"switchyard session key 1\0" + session_id.encode(), "sha256")
    mac = base64.urlsafe_b64encode(digest[:16]).decode().rstrip("=")
    assert signed_session_key(session_id, SECRETS[0]) == f"sycap-session:{session_id}.{mac}"


@pytest.mark.parametrize("session_id", IDS)
@pytest.mark.parametrize("secret", SECRETS)
def test_a_signed_key_lets_in_the_calls_of_its_session(session_id: str, secret: str) -> None:
    key = signed_session_key(session_id, secret)
    for headers in places(key).values():
        admission = Access(ALL).admit_caller(headers)
        assert admission == Admission(session_id, bound=True)
        admission.check(session_id)
    # Where nobody is asked for keys it names the session and forbids nothing.
    assert Access(AuthSettings(session_secrets=SECRETS)).admit_caller({"x-api-key": key}) == Admission(session_id)


@pytest.mark.parametrize("other", ["t", "S", "s.", "", None])
def test_a_signed_key_alone_opens_no_other_session(other: str | None) -> None:
    admission = Access(ALL).admit_caller({"x-api-key": signed_session_key("s", SECRETS[0])})
    with pytest.raises(RequestRefused, match="for one session") as caught:
        admission.check(other)
    assert (caught.value.status, caught.value.code) == (403, "permission_denied")
    assert caught.value.headers["x-should-retry"] == "false"


def test_beside_a_caller_key_a_session_key_only_names_the_session() -> None:
    headers = {"x-api-key": CALLERS[0], "authorization": f"Bearer {signed_session_key('s', SECRETS[0])}"}
    admission = Access(ALL).admit_caller(headers)
    assert admission == Admission("s")
    admission.check("another")


GENUINE = signed_session_key("s", SECRETS[0])
FORGED = {
    "unsigned": "sycap-session:s",
    "empty": "sycap-session:",
    "no mac": "sycap-session:s.",
    "another id": GENUINE.replace(":s.", ":t."),
    "longer id": GENUINE.replace(":s.", ":ss."),
    "blank in the id": GENUINE.replace(":s.", ":s ."),
    "cut": GENUINE[:-1],
    "longer": GENUINE + "A",
    "padded": GENUINE + "==",
    "other alphabet": "sycap-session:a.GLf5+++0NyvO9Rv6dS/ciA",
    "not ASCII": GENUINE[:-1] + "é",
    "another secret": signed_session_key("s", "session-secret-gone"),
    "plain HMAC": "sycap-session:s."
    + base64.urlsafe_b64encode(hmac.digest(SECRETS[0].encode(), b"s", "sha256")[:16]).decode().rstrip("="),
}


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("auth", [ALL, AuthSettings(session_secrets=SECRETS)], ids=["callers asked", "open"])
def test_a_session_key_that_is_not_signed_names_nothing_and_opens_nothing(forged: str, auth: AuthSettings) -> None:
    for headers in places(FORGED[forged]).values():
        error = refused(Access(auth).admit_caller, headers)
        assert (error.status, error.code) == (401, "invalid_api_key")
        assert "not signed" in str(error)
        assert "session-secret" not in str(error)


def test_not_even_beside_a_caller_key_as_its_call_would_be_recorded_elsewhere() -> None:
    headers = {"x-api-key": CALLERS[0], "authorization": "Bearer sycap-session:s"}
    assert refused(Access(ALL).admit_caller, headers).status == 401


def test_without_secrets_everything_behind_the_marker_is_the_id_and_it_opens_nothing() -> None:
    for key, session_id in ((GENUINE, GENUINE.removeprefix("sycap-session:")), ("sycap-session: a.b ", "a.b")):
        assert Access(AuthSettings()).admit_caller({"x-api-key": key}) == Admission(session_id)
        callers_only = Access(AuthSettings(caller_keys=CALLERS))
        assert refused(callers_only.admit_caller, {"x-api-key": key}).status == 401
        beside = {"x-api-key": CALLERS[0], "authorization": f"Bearer {key}"}
        assert callers_only.admit_caller(beside) == Admission(session_id)


@given(st.text(min_size=1, max_size=40), st.integers(0, 10_000), st.characters(codec="utf-8"))
def test_any_usable_id_goes_to_and_fro_and_any_change_is_seen(text: str, place: int, new: str) -> None:
    try:
        session_id = checked_id(text)
    except RequestRefused:
        return
    key = signed_session_key(session_id, SECRETS[0])
    sent = header_values([(b"X-Api-Key", key.encode())])
    assert Access(ALL).admit_caller(sent).session_id == session_id
    place = place % (len(key) - len("sycap-session:")) + len("sycap-session:")
    changed = key[:place] + new + key[place + 1 :]
    if changed != key:
        headers = header_values([(b"X-Api-Key", changed.encode())])
        assert refused(Access(ALL).admit_caller, headers).status == 401


def test_keys_never_show_in_a_repr() -> None:
    access = Access(ALL)
    assert "key-" not in repr(access) + repr(ALL)
    assert "secret-" not in repr(access) + repr(ALL)
