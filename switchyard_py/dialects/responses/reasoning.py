"""Reasoning that goes to the agent and comes back with its next request.

`encrypted_content` is no secret: it holds the reasoning for agents that do not send back what they can read, in its
very spelling. OpenAI's own cannot be read by anyone else.
"""

from base64 import b64decode, b64encode

from switchyard_py.dialects.translation import as_array, as_object, as_text, is_text, refusal
from switchyard_py.rawjson import InvalidJSON, Slice, check_utf8, decode

_MARK = "switchyard:"


def encrypted(text: Slice) -> bytes:
    """The `encrypted_content` for a text, both JSON strings."""
    return b'"%b%b"' % (_MARK.encode(), b64encode(bytes(text)[1:-1]))


def reasoning_texts(item: dict[str, Slice], where: str) -> list[Slice]:
    """What a `reasoning` item says: its `encrypted_content` if that is ours, else its content, else its summary.

    Raises:
        RequestRefused: it has not the form of one, or what is ours in it has been changed.
    """
    given = decode(item.get("encrypted_content"))
    if isinstance(given, str) and given.startswith(_MARK):
        return [_decrypted(given.removeprefix(_MARK), f"{where}.encrypted_content")]
    for key in ("content", "summary"):
        if found := _texts(item.get(key), f"{where}.{key}"):
            return found
    return []


def _decrypted(given: str, where: str) -> bytes:
    try:
        text = b'"%b"' % check_utf8(b64decode(given, validate=True))
        if not isinstance(decode(text), str):
            raise InvalidJSON
    except ValueError:
        raise refusal(where, "is not what this proxy wrote: send it back as it was.") from None
    return text


def _texts(value: Slice | None, where: str) -> list[Slice]:
    if value is None:
        return []
    if is_text(value):
        return [value]
    found = []
    for index, part in enumerate(as_array(value, where)):
        place = f"{where}[{index}]"
        found.append(as_text(as_object(part, place).get("text"), f"{place}.text"))
    return found
