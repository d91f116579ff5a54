"""Which text of a tool call's arguments goes back to the engine: the one it generated, where the agent means the same.

Agents parse the arguments of a call and write them anew: other spacing, another key order, `5.0` as `5`. A prompt made
of that no longer continues the tokens that were sampled, although nothing was changed.
"""

import json
from collections.abc import Hashable
from decimal import Decimal
from typing import Any, Protocol


class ArgumentsMemory(Protocol):
    """The arguments the engine generated, by the id of the tool call."""

    def get(self, tool_call_id: str, given: str, /) -> str | None:
        """The generated text, None for a call that is not remembered.

        Of several it is one with the value of `given`: where an engine counts the calls of a prompt (`functions.f:0`),
        the agents of a session have calls of the same id.
        """


def faithful_arguments(tool_call_id: str, given: str, memory: ArgumentsMemory) -> str:
    """The arguments to send to the engine for a call the agent sends back with `given` as JSON text.

    They are what was generated under this id where that is the same value as `given`, else `given` as it is.
    """
    generated = memory.get(tool_call_id, given)
    return generated if generated is not None and same_value(generated, given) else given


def same_value(one: str, other: str) -> bool:
    """Whether two JSON texts hold the same value.

    Numbers are compared as the decimal numbers they spell, so `1.0` is `1` and `9007199254740993` is not
    `9007199254740992`; of equal keys the last counts; the order of keys does not. Text that is not JSON is the same as
    nothing but itself.
    """
    if one == other:
        return True
    try:
        return bool(_read(one) == _read(other))
    except (ValueError, ArithmeticError, RecursionError):
        return False


def value_hash(text: str) -> int:
    """A number that texts of the same value have in common, within this process; others hardly ever have it too."""
    try:
        return hash(_frozen(_read(text)))
    except (ValueError, ArithmeticError, RecursionError):
        return hash(text)


def _frozen(value: Any) -> Hashable:
    if isinstance(value, dict):
        return frozenset((key, _frozen(member)) for key, member in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _read(text: str) -> Any:
    return json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_refuse)


def _number(text: str) -> tuple[Decimal]:
    # In a tuple, because 1 equals True in Python.
    return (Decimal(text),)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
