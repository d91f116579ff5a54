"""`sessions key` makes keys that a proxy with the same secrets takes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from switchyard_py.access import Access, Admission
from switchyard_py.config import AuthSettings, load_bundle

SECRET = "session-secret-1"
VARIABLE = "SWITCHYARD_SESSION_SECRET"
ROUTES = "routes: {p: {model: m, base_url: 'http://127.0.0.1:1/v1'}}\n"


@pytest.fixture
def signing(tmp_path: Path) -> Path:
    """A bundle with two session secrets, the first of them from the environment."""
    path = tmp_path / "signing.yaml"
    path.write_text(
        ROUTES + "auth: {caller_keys: [caller-key], session_secrets: ['${FIRST:-session-secret-2}', session-secret-1]}"
    )
    return path


@pytest.mark.parametrize("session_id", ["rollout-17", "a.b", "日本", "a b", "--help"])
def test_the_key_admits_to_its_session(invoke: Any, signing: Path, session_id: str) -> None:
    result = invoke("-c", signing, "--", "sessions", "key", "--", session_id)
    assert (result.exit_code, result.stderr) == (0, "")
    (key,) = result.stdout.splitlines()
    assert key.startswith(f"sycap-session:{session_id}.")
    access = Access(load_bundle(signing, {}).auth)
    assert access.admit_caller({"x-api-key": key}) == Admission(session_id, bound=True)


def test_the_first_secret_signs(invoke: Any, signing: Path) -> None:
    key = invoke("-c", signing, "sessions", "key", "s", FIRST="session-secret-3").stdout.strip()
    assert _session_of(key, "session-secret-3") == "s"


def test_the_variable_signs_where_no_bundle_is_given(invoke: Any, signing: Path) -> None:
    key = invoke("sessions", "key", "s", **{VARIABLE: SECRET}).stdout.strip()
    assert _session_of(key, SECRET) == "s"
    # What the proxy takes is what its bundle says.
    key = invoke("-c", signing, "sessions", "key", "s", **{VARIABLE: SECRET}).stdout.strip()
    assert _session_of(key, "session-secret-2") == "s"


@pytest.mark.parametrize(
    ("arguments", "environ", "says"),
    [
        (["sessions", "key", "s"], {}, "nothing to sign the key with: give a route bundle with --routing-profiles"),
        (["sessions", "key", "s"], {VARIABLE: ""}, f"or set {VARIABLE}"),
        (["sessions", "key", "s"], {VARIABLE: "short-secret"}, f"{VARIABLE} must have at least 16 characters"),
        (
            ["-c", "no-secrets.yaml", "sessions", "key", "s"],
            {VARIABLE: SECRET},
            "no-secrets.yaml: auth.session_secrets",
        ),
        (["-c", "nope.yaml", "sessions", "key", "s"], {}, "nope.yaml: file not found"),
        (["sessions", "key", ".."], {VARIABLE: SECRET}, "The session id cannot be used: it is a path step"),
        (["sessions", "key", ""], {VARIABLE: SECRET}, "The session id cannot be used: it has 0 characters"),
        (["sessions", "key", "a\nb"], {VARIABLE: SECRET}, "The session id cannot be used: it has control characters"),
    ],
)
def test_what_cannot_be_signed_is_one_line(
    invoke: Any, tmp_path: Path, arguments: list[str], environ: dict[str, str], says: str
) -> None:
    (tmp_path / "no-secrets.yaml").write_text(ROUTES)
    result = invoke(*arguments, **environ)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "short-secret" not in result.stderr


def test_a_command_and_an_id_are_needed(invoke: Any) -> None:
    assert invoke("sessions").exit_code == 2
    assert invoke("sessions", "key").exit_code == 2


def test_an_id_that_is_no_text_is_refused(tmp_path: Path) -> None:
    switchyard = str(Path(sys.executable).with_name("switchyard"))
    done = subprocess.run(
        [switchyard.encode(), b"sessions", b"key", b"a\xff"],
        env={**os.environ, VARIABLE: SECRET},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"lone surrogates" in done.stderr


def _session_of(key: str, secret: str) -> str | None:
    return Access(AuthSettings(session_secrets=(secret,))).admit_caller({"x-api-key": key}).session_id
