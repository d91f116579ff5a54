"""The tools an agent offers, and how the engine is to choose among them.

The engine knows functions only. Those of a namespace get a name that holds both; calls are told with the two apart.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from switchyard_py.dialects.translation import (
    as_array,
    as_object,
    as_text,
    function_tool,
    joined_text,
    named_choice,
    refusal,
)
from switchyard_py.rawjson import Slice, decode, join_array

# Tools that OpenAI runs, or models of its own know without a definition: harnesses offer them unasked and live without.
_DROPPED = ("web_search", "image_generation", "local_shell", "tool_search")
_FUNCTION_FIELDS = ("description", "parameters", "strict")
_BETWEEN = b'"__"'
_MODES = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class Namespaced:
    """What the agent calls a function: its namespace and its name in there, JSON strings."""

    namespace: Slice
    name: Slice


@dataclass(frozen=True, slots=True)
class Offer:
    """The fields `tools`, `tool_choice` of the chat request, and the functions of namespaces by their engine's name."""

    fields: Mapping[str, Slice]
    namespaced: Mapping[str, Namespaced] = field(default_factory=dict)


def offer(tools: Slice | None, choice: Slice | None) -> Offer:
    """What the engine is offered.

    Raises:
        RequestRefused: a tool is one that the engine cannot call, or the choice is none.
    """
    functions = list(_functions([] if tools is None else as_array(tools, "tools"), "tools"))
    _check_names(functions)
    fields = _choose(functions, choice)
    namespaced = {function.name: function.called for function in functions if function.called is not None}
    return Offer(fields, namespaced)


def engine_name(item: dict[str, Slice], where: str) -> Slice:
    """The engine's name of the function that `item`, a call or a choice, names.

    Raises:
        RequestRefused: it names none.
    """
    name = as_text(item.get("name"), f"{where}.name")
    if "namespace" not in item:
        return name
    return joined_text([as_text(item["namespace"], f"{where}.namespace"), _BETWEEN, name])


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    where: str
    json: bytes
    called: Namespaced | None


def _functions(tools: Iterable[Slice], where: str, namespace: Slice | None = None) -> Iterator[_Function]:
    for index, tool in enumerate(tools):
        place = f"{where}[{index}]"
        fields = as_object(tool, place)
        kind = decode(as_text(fields.get("type"), f"{place}.type"))
        if kind == "function":
            yield _function(fields, place, namespace)
        elif kind == "namespace" and namespace is None:
            name = as_text(fields.get("name"), f"{place}.name")
            yield from _functions(as_array(fields.get("tools"), f"{place}.tools"), f"{place}.tools", name)
        elif not kind.startswith(_DROPPED):
            raise refusal(place, f"is a tool of the type {kind}, which the engine cannot call. Offer functions only.")


def _function(fields: dict[str, Slice], where: str, namespace: Slice | None) -> _Function:
    name = as_text(fields.get("name"), f"{where}.name")
    called = None if namespace is None else Namespaced(namespace, name)
    full = engine_name(fields if namespace is None else {"namespace": namespace, "name": name}, where)
    definition = function_tool([("name", full), *((key, fields.get(key)) for key in _FUNCTION_FIELDS)])
    return _Function(decode(full), where, definition, called)


def _check_names(functions: list[_Function]) -> None:
    """Two functions of one name would make it unknown which was called."""
    seen: dict[str, _Function] = {}
    for function in functions:
        other = seen.setdefault(function.name, function)
        if other is not function and (other.called or function.called):
            raise refusal(function.where, f"is called {function.name} by the engine, as {other.where} is. Rename one.")


def _choose(functions: list[_Function], choice: Slice | None) -> dict[str, Slice]:
    mode = decode(choice)
    if isinstance(mode, dict):
        fields = as_object(choice, "tool_choice")
        kind = mode.get("type")
        if kind == "function":
            return {**_tools(functions), "tool_choice": named_choice(engine_name(fields, "tool_choice"))}
        if kind == "allowed_tools":
            allowed = set(_allowed(fields))
            functions = [function for function in functions if function.name in allowed]
            mode, choice = mode.get("mode", "auto"), fields.get("mode", b'"auto"')
    if mode is None:
        return _tools(functions)
    if mode not in _MODES:
        raise refusal("tool_choice", "must be auto, none, required, a function or allowed_tools.")
    if not functions and mode != "required":
        # vLLM refuses a choice where there is none.
        return {}
    return {**_tools(functions), "tool_choice": choice or b'"auto"'}


def _tools(functions: list[_Function]) -> dict[str, Slice]:
    # vLLM refuses an empty list, OpenAI does not.
    return {"tools": join_array(function.json for function in functions)} if functions else {}


def _allowed(choice: dict[str, Slice]) -> Iterator[str]:
    for index, item in enumerate(as_array(choice.get("tools"), "tool_choice.tools")):
        where = f"tool_choice.tools[{index}]"
        fields = as_object(item, where)
        if decode(fields.get("type")) == "function":
            yield decode(engine_name(fields, where))
