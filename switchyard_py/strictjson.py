"""JSON as everybody can read it: what orjson, which trainers read records with, would refuse is refused here.

Decoded by msgspec, because orjson takes three times the memory while it reads. msgspec by itself accepts more: integers
of any size, and nesting as deep as the interpreter's stack allows.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from switchyard_py.rawjson import check_utf8, is_deeper

_ORJSON_DEPTH = 1024
# orjson reads integers beyond 64 bits as floats, which end at 1.8e308.
_LONG_NUMBER = b"0" * 309
_DIGITS_AS_ZEROS = bytes(ord("0") if chr(byte).isdecimal() else 0 for byte in range(256))


def decode(text: bytes) -> Any:
    """The value of a JSON text. Integers keep their value, whatever their size.

    Raises:
        ValueError: orjson would refuse the text, or it is nested too deeply for this interpreter.
    """
    try:
        check_utf8(text)  # says where in the text it is not
        value = msgspec.json.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if is_deeper(text, _ORJSON_DEPTH):
        raise ValueError(f"it is nested deeper than {_ORJSON_DEPTH} levels")
    if _has_long_number(text):
        orjson.loads(text)  # decides: the digits may be those of a text or a fraction
    return value


def _has_long_number(text: bytes) -> bool:
    # Every fourth byte tells most of the time, at a third of the cost.
    few = _LONG_NUMBER[: len(_LONG_NUMBER) // 4] in text[::4].translate(_DIGITS_AS_ZEROS)
    return few and _LONG_NUMBER in text.translate(_DIGITS_AS_ZEROS)
