"""A byte-level tokenizer with the chat special tokens of a small Qwen3.

Ids 0 to 255 are bytes. The nine special tokens have the ids 2039 to 2047, and the ids between are unused rows, as in
the padded embedding of a real model: they are in the vocabulary, decode to nothing and are never generated. Decoding
an encoded text gives the text back, whatever Unicode it holds.
"""

import codecs
import re
from collections.abc import Sequence

VOCABULARY_SIZE = 2048

END_OF_TEXT = 2039
IM_START = 2040
IM_END = 2041
TOOL_CALL = 2042
TOOL_CALL_END = 2043
TOOL_RESPONSE = 2044
TOOL_RESPONSE_END = 2045
THINK = 2046
THINK_END = 2047

SPECIAL_TOKENS = {
    END_OF_TEXT: "<|endoftext|>",
    IM_START: "<|im_start|>",
    IM_END: "<|im_end|>",
    TOOL_CALL: "<tool_call>",
    TOOL_CALL_END: "</tool_call>",
    TOOL_RESPONSE: "<tool_response>",
    TOOL_RESPONSE_END: "</tool_response>",
    THINK: "<think>",
    THINK_END: "</think>",
}
"""Token id to its text. The ids are those of the recorded exchanges, so recorded id prompts mean the same here."""

CONTROL_TOKENS = frozenset({END_OF_TEXT, IM_START, IM_END})
"""The special tokens a text completion leaves out; the others are ordinary added tokens, as in Qwen3."""

_IDS = {text: token for token, text in SPECIAL_TOKENS.items()}
_SPECIAL = re.compile("(" + "|".join(re.escape(text) for text in _IDS) + ")")


def encode(text: str) -> list[int]:
    """The token ids of `text`; special tokens are recognised by their spelling. A lone surrogate becomes "?"."""
    ids: list[int] = []
    for part in _SPECIAL.split(text):
        if part in _IDS:
            ids.append(_IDS[part])
        else:
            ids.extend(part.encode("utf-8", "replace"))
    return ids


def decode(ids: Sequence[int]) -> str:
    """The text of `ids`, special tokens spelled out; bytes that are no UTF-8 become U+FFFD."""
    decoder = TextDecoder()
    return "".join([decoder.push(token) for token in ids]) + decoder.finish()


def strip_special(text: str) -> str:
    """`text` without anything that would encode to a special token."""
    while (stripped := _SPECIAL.sub("", text)) != text:
        text = stripped
    return text


def token_text(token: int) -> str:
    """The text of one token on its own: empty for a part of a character and for an unused id."""
    return TextDecoder().push(token)


def token_name(token: int) -> str:
    """The vocabulary entry of a token, spaces and control bytes written in the alphabet of byte-level tokenizers."""
    if token in SPECIAL_TOKENS:
        return SPECIAL_TOKENS[token]
    return _BYTE_NAMES[token] if token < 256 else ""


class TextDecoder:
    """Decodes a token sequence one token at a time; a character appears with its last byte."""

    def __init__(self) -> None:
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that `token` completes."""
        if token < 256:
            return self._bytes.decode(bytes((token,)))
        return self.finish() + SPECIAL_TOKENS.get(token, "")

    def finish(self) -> str:
        """U+FFFD when a character is left unfinished, else nothing."""
        text = self._bytes.decode(b"", True)
        self._bytes.reset()
        return text


def _byte_names() -> list[str]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    names: list[str] = []
    shifted = 0
    for byte in range(256):
        if byte in printable:
            names.append(chr(byte))
        else:
            names.append(chr(256 + shifted))
            shifted += 1
    return names


_BYTE_NAMES = _byte_names()
