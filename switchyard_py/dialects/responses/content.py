"""Content parts of messages and tool results, as parts of chat content."""

from collections.abc import Iterator

from switchyard_py.dialects.translation import (
    Part,
    as_array,
    as_object,
    as_text,
    image_part,
    is_text,
    refusal,
    text_part,
)
from switchyard_py.rawjson import Slice, decode

_TEXTS = ("input_text", "output_text", "text")


def parts(value: Slice | None, where: str) -> list[Part]:
    """The parts of a string or an array of content of the user, the system or a tool.

    Raises:
        RequestRefused: it is neither, or has a part the engine cannot be given.
    """
    if value is not None and is_text(value):
        return [text_part(value)]
    return [_part(part, kind, place) for part, kind, place in _parts_of(value, where)]


def texts(value: Slice | None, where: str) -> list[Slice]:
    """The texts of a turn of the assistant; what it refused with is text as well.

    Raises:
        RequestRefused: it has something else.
    """
    if value is not None and is_text(value):
        return [value]
    found = []
    for part, kind, place in _parts_of(value, where):
        if kind not in (*_TEXTS, "refusal"):
            raise refusal(place, f"has the type {kind}, which no turn of the engine has. Write it as output_text.")
        key = "refusal" if kind == "refusal" else "text"
        found.append(as_text(part.get(key), f"{place}.{key}"))
    return found


def _parts_of(value: Slice | None, where: str) -> Iterator[tuple[dict[str, Slice], str, str]]:
    """The parts of an array of content: each with its type and its place."""
    if value is None:
        raise refusal(where, "must be a string or an array of content parts.")
    for index, item in enumerate(as_array(value, where)):
        place = f"{where}[{index}]"
        part = as_object(item, place)
        yield part, decode(as_text(part.get("type"), f"{place}.type")), place


def _part(part: dict[str, Slice], kind: str, where: str) -> Part:
    if kind in _TEXTS:
        return text_part(as_text(part.get("text"), f"{where}.text"))
    if kind != "input_image":
        raise refusal(where, f"has the type {kind}, which cannot be given to the engine. Write it as input_text.")
    if "image_url" not in part:
        raise refusal(where, "must have an image_url, which may be a data: one: the engine has no store of files.")
    return image_part(as_text(part["image_url"], f"{where}.image_url"))
