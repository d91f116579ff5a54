"""What the validator found, in words a person who wrote the file understands."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from switchyard_py.config.document import Location

_SECRET_KEYS = {"api_key", "api_key_env", "extra_headers", "base_url", "auth"}
_LONGEST_VALUE = 60

_WANTED = {
    "string_type": "must be text (put it in quotes)",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of reasonable size",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
}


def diagnose(error: ValidationError, document: Any) -> tuple[Location, str]:
    """Return where the most telling fault of `error` lies, and what is wrong with it.

    `document` is the validated document as the file spells it, before references are expanded: values are
    quoted from it, so that an expanded secret is never shown.
    """
    faults = error.errors(include_url=False, include_input=False)
    # A misspelt key often causes a second fault: report the cause.
    fault = min(faults, key=lambda each: each["type"] != "unknown_key")
    context = fault.get("ctx", {})
    location = tuple(part for part in fault["loc"] if part != "[key]")
    if fault["type"] == "unknown_key":
        return (*location, context["key"]), str(context["text"])
    if fault["type"] == "problem":
        return location, str(context["text"])
    wanted = _WANTED.get(fault["type"], fault["msg"]).format(**context)
    return location, wanted if fault["type"] == "string_too_short" else wanted + _found(location, document)


def _found(location: Location, document: Any) -> str:
    if not _SECRET_KEYS.isdisjoint(location):
        return ""
    value = document
    for part in location:
        try:
            value = value[part]
        except (TypeError, LookupError):
            return ""
    if isinstance(value, dict):
        return ", not a mapping"
    if isinstance(value, list):
        return ", not a list"
    if value is None:
        return ", not null"
    if isinstance(value, bool):
        return f", not {str(value).lower()}"
    text = repr(value)
    return f", not {text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + '...'}"
