"""A small JSON value that satisfies a JSON schema.

Understands type, enum, const, properties, required, items, prefixItems, the size and range keywords, pattern (best
effort), anyOf, oneOf, allOf and references inside the schema. Everything else is ignored.
"""

import math
from collections.abc import Mapping
from typing import Any

from switchyard_py.simulator.pattern_sample import UnsupportedPatternError, sample_pattern

_MAX_DEPTH = 24
_KEYWORD_TYPES = {
    "object": ("properties", "required", "additionalProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_FORMATS = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "127.0.0.1",
}
_FILLER = "text"


class UnsatisfiableSchemaError(ValueError):
    """No value was found: the schema excludes all, recurses without end, refers outside itself or is no schema."""


def sample_value(schema: object) -> Any:
    """A JSON value that satisfies `schema`, required members only. Raises UnsatisfiableSchemaError."""
    try:
        return _sample(schema, schema, _MAX_DEPTH)
    except (TypeError, AttributeError) as error:
        raise UnsatisfiableSchemaError(f"not a JSON schema: {error}") from error


def _sample(schema: object, root: object, depth: int) -> Any:
    if schema is False or depth == 0:
        raise UnsatisfiableSchemaError("the schema excludes every value or recurses without end")
    if not isinstance(schema, Mapping):
        return _FILLER
    merged = _merge(schema, root, depth)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(merged.get(keyword), list):
            return _first_branch(merged, keyword, root, depth)
    if "const" in merged:
        return merged["const"]
    if merged.get("enum"):
        return merged["enum"][0]
    return _sample_type(merged, root, depth)


def _first_branch(schema: Mapping[str, Any], keyword: str, root: object, depth: int) -> Any:
    rest = {key: value for key, value in schema.items() if key != keyword}
    # An optional value is written as a union with null; anything else is the more telling sample.
    for branch in sorted(schema[keyword], key=lambda b: isinstance(b, Mapping) and b.get("type") == "null"):
        try:
            return _sample({"allOf": [rest, branch]}, root, depth - 1)
        except UnsatisfiableSchemaError:
            continue
    raise UnsatisfiableSchemaError(f"no branch of {keyword} can be satisfied")


def _merge(schema: Mapping[str, Any], root: object, depth: int) -> dict[str, Any]:
    """The schema with its reference and its allOf folded in."""
    if depth == 0:
        raise UnsatisfiableSchemaError("the schema recurses without end")
    merged = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
    others = list(schema.get("allOf") or [])
    if "$ref" in schema:
        others.append(_resolve(str(schema["$ref"]), root))
    for other in others:
        if other is False:
            raise UnsatisfiableSchemaError("the schema excludes every value")
        if isinstance(other, Mapping):
            _fold(merged, _merge(other, root, depth - 1))
    return merged


def _fold(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if key not in into:
            into[key] = value
        elif key == "properties":
            both = {**into[key], **value}
            for name in into[key].keys() & value.keys():
                both[name] = {"allOf": [into[key][name], value[name]]}
            into[key] = both
        elif key == "required":
            into[key] = [*into[key], *(name for name in value if name not in into[key])]
        elif key == "enum":
            into[key] = [item for item in into[key] if item in value]
        elif key in ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"):
            into[key] = max(into[key], value)
        elif key in ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"):
            into[key] = min(into[key], value)
        elif key == "type":
            into[key] = _common_types(into[key], value)


def _common_types(first: Any, second: Any) -> list[str]:
    ours = first if isinstance(first, list) else [first]
    theirs = second if isinstance(second, list) else [second]
    if "number" in ours and "integer" in theirs:
        ours = [*ours, "integer"]
    return [kind for kind in ours if kind in theirs]


def _resolve(reference: str, root: object) -> object:
    if not reference.startswith("#"):
        raise UnsatisfiableSchemaError(f"{reference} refers outside the schema")
    target = root
    for step in filter(None, reference[1:].split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or name not in target:
            raise UnsatisfiableSchemaError(f"{reference} refers to nothing")
        target = target[name]
    return target


def _type_of(schema: Mapping[str, Any]) -> str:
    declared = schema.get("type")
    if isinstance(declared, list):
        if not declared:
            raise UnsatisfiableSchemaError("the schema's types exclude each other")
        return str(next((kind for kind in declared if kind != "null"), "null"))
    if isinstance(declared, str):
        return declared
    for kind, keywords in _KEYWORD_TYPES.items():
        if any(keyword in schema for keyword in keywords):
            return kind
    return "string"


def _sample_type(schema: Mapping[str, Any], root: object, depth: int) -> Any:
    kind = _type_of(schema)
    if kind == "object":
        return _sample_object(schema, root, depth)
    if kind == "array":
        return _sample_array(schema, root, depth)
    if kind in ("number", "integer"):
        return _sample_number(schema, whole=kind == "integer")
    if kind == "boolean":
        return True
    return None if kind == "null" else _sample_string(schema)


def _sample_object(schema: Mapping[str, Any], root: object, depth: int) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    names = list(schema.get("required") or [])
    names += [name for name in properties if name not in names][: max(0, schema.get("minProperties", 0) - len(names))]
    extra = schema.get("additionalProperties", True)
    value = {name: _sample(properties.get(name, extra), root, depth - 1) for name in names}
    while len(value) < schema.get("minProperties", 0):
        value[f"key{len(value)}"] = _sample(extra, root, depth - 1)
    return value


def _sample_array(schema: Mapping[str, Any], root: object, depth: int) -> list[Any]:
    heads = schema.get("prefixItems") or []
    length = max(schema.get("minItems", 0), min(1, schema.get("maxItems", 1)) if "items" in schema else 0)
    items = [*heads, *([schema.get("items", True)] * length)][:length]
    return [_sample(item, root, depth - 1) for item in items]


def _sample_number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    step = schema.get("multipleOf") or (1 if whole else None)
    least = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    most = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    value = 1 if least <= 1 <= most else least if least > 1 else most
    if step:
        value = math.ceil(value / step) * step if value <= least or value == 1 else math.floor(value / step) * step
    if value == schema.get("exclusiveMinimum") or value < least:
        value = value + step if step else (least + most) / 2 if math.isfinite(most) else least + 1
    if value == schema.get("exclusiveMaximum") or value > most:
        value = value - step if step else (least + most) / 2 if math.isfinite(least) else most - 1
    if not least <= value <= most or value in (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")):
        raise UnsatisfiableSchemaError(f"no number between {least} and {most} fits")
    return int(value) if float(value).is_integer() else value


def _sample_string(schema: Mapping[str, Any]) -> str:
    text = str(_FORMATS.get(schema.get("format", ""), _FILLER))
    if "pattern" in schema:
        try:
            text = sample_pattern(schema["pattern"])
        except UnsupportedPatternError:
            return text
    shortest = int(schema.get("minLength", 0))
    padded = text + text[-1:] * (shortest - len(text)) if text else " " * shortest
    longest = len(padded) if "pattern" in schema else int(schema.get("maxLength", len(padded)))
    return padded[:longest]
