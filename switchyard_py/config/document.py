"""Reading the file: YAML of text keys and JSON values, duplicate keys refused, environment references expanded."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from switchyard_py.config.errors import ConfigError

Location = tuple[str | int, ...]

# A default may not hold "${": nested references would end at the wrong brace.
_REFERENCE = re.compile(r"\$\{(?:(?P<name>[A-Za-z_]\w*)(?P<fallback>:-(?P<default>(?:(?!\$\{)[^}])*))?\})?", re.ASCII)
_LARGEST_INTEGER = 2**64 - 1
_SMALLEST_INTEGER = -(2**63)


def path_text(location: Location) -> str:
    """Write a location the way a reader of the file would: `routes.policy.aliases[0]`, odd keys quoted."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if re.fullmatch(r"[\w/:-]+", part) else repr(part))
    return text


def read_document(path: Path) -> Any:
    """Return the YAML document in `path` as plain values, references not yet expanded.

    Raises ConfigError for an unreadable file, bad UTF-8, bad YAML and duplicate keys.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return yaml.load(text, _Loader)  # noqa: S506  a safe loader with fewer types
    except FileNotFoundError:
        raise ConfigError(path, "", "file not found") from None
    except UnicodeDecodeError as error:
        raise ConfigError(path, "", f"is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(path, "", f"cannot read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        # A quoted word is text of the file, perhaps a secret; signs and `<token>` names are not.
        problem = re.sub(
            r"'[^']*'", lambda quoted: quoted[0] if re.match(r"'(<|.{0,2}')", quoted[0]) else "'...'", problem
        )
        raise ConfigError(path, where, f"invalid YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError(path, "", f"invalid YAML: {error.reason} at character {error.position}") from None
    except (ValueError, LookupError):
        raise ConfigError(path, "", "invalid YAML: a value does not fit its type or !!tag") from None
    except RecursionError:
        raise ConfigError(path, "", "invalid YAML: nested too deeply") from None


def expand_document(path: Path, document: Any, environ: Mapping[str, str]) -> Any:
    """Return the document with references expanded in every text value.

    Raises ConfigError for a missing variable, a key that is not text and a value that JSON cannot carry.
    """
    try:
        return _expand(path, (), document, environ)
    except RecursionError:
        raise ConfigError(path, "", "an alias (*name) refers to a value that contains itself: write it out") from None


def _expand(path: Path, location: Location, value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError(path, path_text(location), f"the key {key!r} is not text: write it in quotes")
        return {key: _expand(path, (*location, key), item, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(path, (*location, index), item, environ) for index, item in enumerate(value)]
    if isinstance(value, str):
        return _expand_text(path, location, value, environ)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(path, path_text(location), "must be finite: JSON has no infinity and no NaN")
    if isinstance(value, int) and not _SMALLEST_INTEGER <= value <= _LARGEST_INTEGER:
        raise ConfigError(path, path_text(location), "is an integer beyond 64 bits: write a smaller one, or quote it")
    return value


def _expand_text(path: Path, location: Location, text: str, environ: Mapping[str, str]) -> str:
    def expansion(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            problem = "holds a '${' that begins no reference: write ${NAME} or ${NAME:-default}"
            raise ConfigError(path, path_text(location), problem)
        value = environ.get(name)
        if match["fallback"] is not None:
            return value or match["default"]
        if value is None:
            problem = f"the environment variable {name} is not set: set it, or write ${{{name}:-default}}"
            raise ConfigError(path, path_text(location), problem)
        return value

    expanded = _REFERENCE.sub(expansion, text)
    try:
        expanded.encode()
    except UnicodeEncodeError:
        raise ConfigError(path, path_text(location), "is not valid Unicode text") from None
    return expanded


_YAML_TAG = "tag:yaml.org,2002:"
_KEPT_TAGS = {_YAML_TAG + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}


class _Loader(yaml.SafeLoader):
    """YAML's JSON-like types only: a date stays text, any other tag is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012  a plain class attribute in the base class
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT_TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {  # noqa: RUF012
        tag: constructor
        for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag in _KEPT_TAGS
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        # Checked before `<<` is flattened: a key beside `<<` may repeat a merged one.
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be text", key.start_mark)
            name = (key.tag, key.value)
            if name in lines:
                problem = f"duplicate key {key.value}, already given in line {lines[name]}"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            lines[name] = key.start_mark.line + 1
        return node


# A number in JSON and YAML 1.2, which YAML 1.1 reads as text: 1e-3.
_Loader.add_implicit_resolver(_YAML_TAG + "float", re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+$"), list("-+0123456789"))
