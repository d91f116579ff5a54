"""The way from a file to a bundle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from switchyard_py.config.diagnosis import diagnose
from switchyard_py.config.document import expand_document, path_text, read_document
from switchyard_py.config.errors import ConfigError
from switchyard_py.config.resolution import resolve
from switchyard_py.config.schema import BundleEntry, ServerEntry
from switchyard_py.config.settings import Bundle


def load_bundle(path: Path, environ: Mapping[str, str] | None = None) -> Bundle:
    """Return the bundle in the YAML file `path`, with references taken from `environ` (None: the process environment).

    Raises ConfigError, and nothing else, for whatever is wrong with the file.
    """
    environ = os.environ if environ is None else environ
    document = read_document(path)
    expanded = expand_document(path, document, environ)
    try:
        entry = BundleEntry.model_validate(expanded)
    except ValidationError as error:
        location, problem = diagnose(error, document)
        raise ConfigError(path, path_text(location), problem) from None
    return resolve(path, entry, environ)


def parse_server_setting(name: str, text: str, source: str) -> Any:
    """Return the value of one key of `server`, given as `text` by a flag or a variable named `source`.

    Raises ConfigError when the key does not take that value.
    """
    try:
        return getattr(ServerEntry.model_validate({name: text}), name)
    except ValidationError as error:
        _, problem = diagnose(error, {name: text})
        raise ConfigError(source, "", problem) from None
