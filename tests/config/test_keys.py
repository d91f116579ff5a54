"""The section `auth`: keys in the file, keys in the environment, and what cannot stand."""

import pickle
from typing import Any

import pytest

from switchyard_py.config import AuthSettings, ConfigError, ServeSettings, describe_bundle

ROUTES = "routes: {p: {target: {model: m, base_url: 'http://h:8000/v1'}}}\n"
ENVIRON = {
    "CALLER": "caller-key-1",
    "READER": "reader-key-1",
    "SECRET": "session-secret-1",
    "SHORT": "short",
    "EMPTY": "",
}


def refusal(load: Any, auth: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(f"{ROUTES}auth: {auth}", ENVIRON)
    return str(caught.value).partition("bundle.yaml: ")[2]


def test_nobody_is_asked_unless_the_bundle_says_so(load: Any) -> None:
    assert load(ROUTES).auth == load(ROUTES + "auth:").auth == AuthSettings()


@pytest.mark.parametrize(
    "auth",
    [
        "{caller_keys: [caller-key-1], reader_keys: [reader-key-1, reader-key-2], session_secrets: [session-secret-1]}",
        "{caller_keys: ['${CALLER}'], reader_keys: ['${READER}', reader-key-2], session_secrets: ['${SECRET}']}",
        "{caller_keys_env: [CALLER], reader_keys: [reader-key-1, reader-key-2], session_secrets_env: [SECRET]}",
    ],
)
def test_keys_stand_in_the_file_or_in_the_environment(load: Any, auth: str) -> None:
    assert load(f"{ROUTES}auth: {auth}", ENVIRON).auth == AuthSettings(
        ("caller-key-1",), ("reader-key-1", "reader-key-2"), ("session-secret-1",)
    )


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        ("caller-key-1", "auth: must be a mapping"),
        ("{keys: [a]}", "auth.keys: unknown key: known here are caller_keys, caller_keys_env,"),
        ("{caller_keys: caller-key-1}", "auth.caller_keys: must be a list"),
        ("{caller_keys: {a: caller-key-1}}", "auth.caller_keys: must be a list"),
        ("{caller_keys: null}", "auth.caller_keys: must be a list"),
        ("{caller_keys: []}", "auth.caller_keys: must not be an empty list: give one, or remove the key"),
        ("{reader_keys: []}", "auth.reader_keys: must not be an empty list"),
        ("{session_secrets: []}", "auth.session_secrets: must not be an empty list"),
        ("{reader_keys_env: []}", "auth.reader_keys_env: must not be an empty list"),
        ("{caller_keys: [caller-key-1, '']}", "auth.caller_keys[1]: must have at least 8 characters: make one with"),
        ("{reader_keys: [short]}", "auth.reader_keys[0]: must have at least 8 characters"),
        ("{reader_keys: [12345678]}", "auth.reader_keys[0]: must be text (put it in quotes)"),
        ("{caller_keys: [two words]}", "auth.caller_keys[0]: must be printable ASCII without blanks and line breaks"),
        ('{reader_keys: ["line-break\\n"]}', "auth.reader_keys[0]: must be printable ASCII without blanks"),
        ("{reader_keys: ['schlüssel']}", "auth.reader_keys[0]: must be printable ASCII without blanks"),
        ("{caller_keys: ['sycap-session:a']}", "auth.caller_keys[0]: begins with sycap-session:, which marks"),
        ("{session_secrets: [fifteen-letters]}", "auth.session_secrets[0]: must have at least 16 characters"),
        ("{session_secrets: ['${SHORT}']}", "auth.session_secrets[0]: must have at least 16 characters"),
        ("{caller_keys: ['${NONE}']}", "auth.caller_keys[0]: the environment variable NONE is not set"),
        ("{caller_keys_env: [NONE]}", "auth.caller_keys_env[0]: the environment variable NONE is not set"),
        ("{reader_keys_env: [READER, EMPTY]}", "auth.reader_keys_env[1]: the environment variable EMPTY is not set"),
        ("{reader_keys_env: [SHORT]}", "auth.reader_keys_env[0]: the environment variable SHORT must have at least 8"),
        ("{session_secrets_env: [SHORT]}", "auth.session_secrets_env[0]: the environment variable SHORT must have at"),
        ("{caller_keys_env: [caller-key-1]}", "auth.caller_keys_env[0]: must be the name of an environment variable"),
        (
            "{caller_keys: [caller-key-1], caller_keys_env: [CALLER]}",
            "auth: caller_keys and caller_keys_env are one setting: give one of them",
        ),
        (
            "{caller_keys: [caller-key-1, caller-key-1]}",
            "auth.caller_keys[1]: is one of caller_keys already: use each secret for one purpose, once",
        ),
        ("{caller_keys_env: [CALLER], reader_keys: [caller-key-1]}", "auth.reader_keys[0]: is one of caller_keys_env"),
        (
            "{reader_keys: [session-secret-1], session_secrets_env: [SECRET]}",
            "auth.session_secrets_env[0]: is one of reader_keys already",
        ),
    ],
)
def test_what_cannot_stand_is_one_line_that_shows_no_secret(load: Any, auth: str, expected: str) -> None:
    message = refusal(load, auth)
    assert message.startswith(expected)
    for secret in ("key-1", "secret-1", "short", "two words", "12345678"):
        assert secret not in message


def test_the_key_of_a_target_that_is_in_the_environment_must_fit_a_header_too(load: Any) -> None:
    text = "defaults: {api_key_env: KEY}\n" + ROUTES
    with pytest.raises(
        ConfigError, match=r"defaults\.api_key_env: the environment variable KEY must be printable ASCII"
    ):
        load(text, {"KEY": "secret\n"})


def test_secrets_are_hidden_and_counted(load: Any) -> None:
    bundle = load(ROUTES + "auth: {reader_keys: [reader-key-1, reader-key-2], session_secrets: [session-secret-1]}")
    assert describe_bundle(bundle)["auth"] == {
        "caller_keys": [],
        "reader_keys": ["***", "***"],
        "session_secrets": ["***"],
    }
    settings = ServeSettings(bundle, None, "127.0.0.1", 0, 1, "info")
    for text in (repr(bundle), str(bundle), repr(bundle.auth), repr(settings)):
        assert "key-1" not in text
        assert "secret-1" not in text
    # That is how they reach the workers.
    assert pickle.loads(pickle.dumps(settings)).bundle.auth == bundle.auth
