"""Content blocks of a system prompt, a user's turn or a tool's result, as parts of chat content."""

from collections.abc import Iterator

from switchyard_py.dialects.translation import (
    Part,
    as_array,
    as_object,
    as_text,
    content_of,
    image_part,
    is_text,
    joined_text,
    refusal,
    text_part,
)
from switchyard_py.rawjson import Slice, decode, join_object

Block = dict[str, Slice]


def blocks_of(value: Slice, where: str) -> Iterator[tuple[Block, str, str]]:
    """The blocks of an array of content: each with its type and its place.

    Raises:
        RequestRefused: something is no block.
    """
    for index, item in enumerate(as_array(value, where)):
        place = f"{where}[{index}]"
        block = as_object(item, place)
        yield block, decode(as_text(block.get("type"), f"{place}.type")), place


def content(value: Slice | None, where: str) -> Slice:
    """Chat content of a string or an array of blocks; nothing at all is an empty text.

    Raises:
        RequestRefused: it has a block the engine cannot be given.
    """
    return content_of([] if value is None else parts(value, where))


def parts(value: Slice, where: str) -> list[Part]:
    """The same as parts: one for a string."""
    if is_text(value):
        return [text_part(value)]
    return [part for block, kind, place in blocks_of(value, where) for part in block_parts(block, kind, place)]


def block_parts(block: Block, kind: str, where: str) -> list[Part]:
    """The parts of one block: one, but for documents and search results.

    Raises:
        RequestRefused: the engine cannot be given such a block.
    """
    match kind:
        case "text":
            return [text_part(as_text(block.get("text"), f"{where}.text"))]
        case "image":
            return [image_part(_image_url(as_object(block.get("source"), f"{where}.source"), f"{where}.source"))]
        case "document":
            return [*_texts(block, "title", "context"), *_document(block, f"{where}.source")]
        case "search_result":
            return [*_texts(block, "title", "source"), *parts(block.get("content", b"[]"), f"{where}.content")]
        case "tool_reference":
            # The engine gets the definitions of all tools, deferred or not; vLLM has a part of its own for their names.
            name = as_text(block.get("tool_name"), f"{where}.tool_name")
            return [Part(join_object({"type": b'"tool_reference"', "name": name}))]
    raise refusal(where, f"has the type {kind}, which cannot be given to the engine. Write it as a text block.")


def _image_url(source: Block, where: str) -> Slice:
    kind = decode(source.get("type"))
    if kind == "url":
        return as_text(source.get("url"), f"{where}.url")
    if kind != "base64":
        raise refusal(where, "must have the type base64 or url: the engine has no store of files.")
    media_type = as_text(source.get("media_type"), f"{where}.media_type")
    return joined_text([b'"data:"', media_type, b'";base64,"', as_text(source.get("data"), f"{where}.data")])


def _document(block: Block, where: str) -> list[Part]:
    source = as_object(block.get("source"), where)
    kind = decode(source.get("type"))
    if kind == "text":
        return [text_part(as_text(source.get("data"), f"{where}.data"))]
    if kind == "content":
        return parts(source.get("content", b"[]"), f"{where}.content")
    raise refusal(where, "must have the type text or content: the engine reads no other documents.")


def _texts(block: Block, *keys: str) -> list[Part]:
    return [text_part(block[key]) for key in keys if key in block and is_text(block[key])]
