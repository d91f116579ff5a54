"""One run of an agent sent through the proxy: a session of its own, and the two texts the agent's container reads.

The agent's OpenHands posts to the model server that Gym's configuration dictionary names, with the model and the
`completion_kwargs` of its TOML. Pointing the one at the proxy and putting the session into the other is all it takes:
OpenHands itself is not changed, nor the container of the evaluation, which calls no model. Without a run through the
proxy every text comes back as it went in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

import tomlkit
import yaml
from tomlkit.exceptions import TOMLKitError

from switchyard_py.gym.address import ProxyAddress

FRAMEWORK = "openhands"
SESSION_FIELD = "proxy_x_session_id"


class RoutingRefused(ValueError):
    """A text of the agent's container cannot be pointed at the proxy. The message says what is missing in it."""


@dataclass(frozen=True, slots=True)
class CapturedRun:
    """One run whose model calls go to the proxy.

    `route` is the model id of the bundle's route and, as NeMo Gym wants it, the name of the model server as well.
    """

    address: ProxyAddress
    route: str
    session_id: str


def captured_run(
    address: ProxyAddress | None, *, route: str, agent_framework: str, verify_golden_patch: bool
) -> CapturedRun | None:
    """A run with a session id of its own (32 lower-case hex digits); None where no model calls go to the proxy."""
    if address is None or agent_framework != FRAMEWORK or verify_golden_patch:
        return None
    return CapturedRun(address, route, uuid4().hex)


def agent_toml(text: str, run: CapturedRun | None) -> str:
    """OpenHands' TOML with the route as `[llm.model] model` and the session in its `completion_kwargs`.

    Everything else keeps its text. Raises RoutingRefused.
    """
    if run is None:
        return text
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise RoutingRefused(f"the agent's TOML cannot be read: {error}") from None
    model = _table(_table(document, "llm", "llm"), "model", "llm.model")
    model["model"] = run.route
    if "completion_kwargs" not in model:
        model["completion_kwargs"] = tomlkit.inline_table()
    _table(model, "completion_kwargs", "llm.model.completion_kwargs")[SESSION_FIELD] = run.session_id
    return tomlkit.dumps(document)


def agent_config(text: str, run: CapturedRun | None) -> str:
    """Gym's configuration dictionary, YAML text, with the model server's host and port those of the proxy.

    Everything else keeps its text. As Gym itself looks a server up, it is the first entry of the first entry under the
    server's name. Raises RoutingRefused.
    """
    if run is None:
        return text
    try:
        node = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        # Its text would quote lines of the dictionary, which holds API keys.
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise RoutingRefused(f"the configuration dictionary is no YAML{place}") from None
    server = _first_value(_first_value(_last(node, run.route, run.route)[1], run.route), run.route)
    places = {
        _scalar(text, server, "host", run.route): json.dumps(run.address.host),
        _scalar(text, server, "port", run.route): str(run.address.port),
    }
    for start, end in sorted(places, reverse=True):
        text = text[:start] + (" " if start == end else "") + places[start, end] + text[end:]
    return text


def _table(parent: Mapping[str, object], key: str, name: str) -> dict[str, object]:
    table = parent.get(key)
    if not isinstance(table, dict):
        raise RoutingRefused(f"the agent's TOML has no table [{name}]")
    return table


def _pairs(node: yaml.Node | None, server: str) -> list[tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode) or not node.value:
        raise RoutingRefused(f"the configuration dictionary has no model server {server}: is it the route's name too?")
    pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
    return pairs


def _last(node: yaml.Node | None, key: str, server: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """The last pair of a key, which is the one that counts."""
    return next((pair for pair in reversed(_pairs(node, server)) if pair[0].value == key), (None, None))


def _first_value(node: yaml.Node | None, server: str) -> yaml.Node:
    return _pairs(node, server)[0][1]


def _scalar(text: str, node: yaml.Node, key: str, server: str) -> tuple[int, int]:
    """Begin and end of the value of `key` in the text."""
    name, value = _last(node, key, server)
    if name is not None and isinstance(value, yaml.ScalarNode):
        start, end = value.start_mark.index, value.end_mark.index
        # An alias stands elsewhere, and a value with an anchor is used elsewhere; a block of lines ends with a line.
        if start >= name.end_mark.index and text[start : start + 1] not in ("&", "|", ">"):
            return start, end
    raise RoutingRefused(f"the model server {server} has no {key} of its own in the configuration dictionary")
