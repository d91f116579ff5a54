"""The keys of the proxy itself, and those that come by the name of an environment variable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from switchyard_py.config.document import Location, path_text
from switchyard_py.config.errors import ConfigError
from switchyard_py.config.fields import caller_key_fault, session_secret_fault
from switchyard_py.config.schema import AuthEntry
from switchyard_py.config.settings import AuthSettings

Fault = Callable[[str], str | None]
"""Says why a key cannot be used; None if it can."""

_KINDS: dict[str, Fault] = {
    "caller_keys": caller_key_fault,
    "reader_keys": caller_key_fault,
    "session_secrets": session_secret_fault,
}


def resolve_auth(path: Path, entry: AuthEntry, environ: Mapping[str, str]) -> AuthSettings:
    """Return what the section `auth` comes to.

    Raises ConfigError for a variable that is not set or holds no usable key, and for a secret that is given twice:
    agents with a key for both sides could read sessions, and readers with the secret could sign keys.
    """
    given = entry.given()
    secrets: dict[str, tuple[str, ...]] = {}
    owners: dict[str, str] = {}
    for kind, fault in _KINDS.items():
        name = f"{kind}_env" if f"{kind}_env" in given else kind
        values = given.get(name, ())
        if name != kind:
            values = tuple(
                key_from_environment(path, ("auth", name, index), variable, environ, fault)
                for index, variable in enumerate(values)
            )
        for index, value in enumerate(values):
            if value in owners:
                problem = f"is one of {owners[value]} already: use each secret for one purpose, once"
                raise ConfigError(path, path_text(("auth", name, index)), problem)
            owners[value] = name
        secrets[kind] = values
    return AuthSettings(**secrets)


def key_from_environment(
    path: Path, location: Location, variable: str, environ: Mapping[str, str], fault: Fault
) -> str:
    """Return the key in an environment variable. Raises ConfigError when there is none, or it cannot be used."""
    key = environ.get(variable)
    if not key:
        raise ConfigError(path, path_text(location), f"the environment variable {variable} is not set")
    if problem := fault(key):
        raise ConfigError(path, path_text(location), f"the environment variable {variable} {problem}")
    return key
