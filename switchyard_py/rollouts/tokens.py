"""The token sequences of a session in one compressed prefix tree.

Every prompt + generation is a path from the root. What two sequences share is stored once, so a session whose prompts
repeat the history takes the memory of the history, and the longest earlier sequence that a prompt begins with is found
on the way down: the cost of a call is linear in the bytes of its prompt, whatever came before it.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field

ID_BYTES = 8
"""Ids are kept as signed 64-bit integers."""


def pack_ids(ids: object) -> bytes | None:
    """The ids of a list, `ID_BYTES` each; None for what is not a list of 64-bit integers that are no booleans."""
    if not isinstance(ids, list) or list(map(type, ids)).count(int) != len(ids):
        return None
    try:
        return struct.pack(f"={len(ids)}q", *ids)
    except struct.error:
        return None


def unpack_ids(packed: bytes) -> array[int]:
    """The inverse of `pack_ids`."""
    return array("q", packed)


def common_ids(one: bytes, other: bytes) -> int:
    """How many ids two packed sequences have in common from the beginning."""
    start, end = 0, min(len(one), len(other)) // ID_BYTES
    while start < end:
        middle = (start + end + 1) // 2
        if one[start * ID_BYTES : middle * ID_BYTES] == other[start * ID_BYTES : middle * ID_BYTES]:
            start = middle
        else:
            end = middle - 1
    return start


@dataclass(slots=True, eq=False)
class Node:
    """A point in the tree: `label` leads here from `parent`, `calls` are those whose prompt + generation ends here."""

    label: bytes
    parent: Node | None
    children: dict[bytes, Node] = field(default_factory=dict)
    """By their first id."""
    calls: list[int] = field(default_factory=list)

    def path(self) -> bytes:
        """All ids from the root to here, packed."""
        labels = []
        node: Node | None = self
        while node is not None:
            labels.append(node.label)
            node = node.parent
        return b"".join(reversed(labels))


class TokenTree:
    """Calls are added in call order."""

    def __init__(self) -> None:
        self._root = Node(b"", None)

    def add(self, call: int, prompt: bytes, generation: bytes) -> tuple[Node, Node | None]:
        """Add a call's packed ids; returns where they end, and where the longest earlier call ends that its prompt
        begins with (prompt + generation of that one; equal length counts), if there is any."""
        sequence = prompt + generation
        node, parent, at = self._root, None, 0
        while at < len(sequence):
            child = node.children.get(sequence[at : at + ID_BYTES])
            if child is None:
                child = node.children[sequence[at : at + ID_BYTES]] = Node(sequence[at:], node)
            elif not sequence.startswith(child.label, at):
                child = _split(child, common_ids(child.label, sequence[at : at + len(child.label)]) * ID_BYTES)
            node = child
            at += len(node.label)
            if node.calls and at <= len(prompt):
                parent = node
        node.calls.append(call)
        return node, parent


def _split(node: Node, at: int) -> Node:
    """Put a node in the middle of the label that leads to `node`, which keeps its identity."""
    above = node.parent
    assert above is not None
    middle = Node(node.label[:at], above, {node.label[at : at + ID_BYTES]: node})
    above.children[node.label[:ID_BYTES]] = middle
    node.label, node.parent = node.label[at:], middle
    return middle
