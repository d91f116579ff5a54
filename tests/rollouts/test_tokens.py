"""Packed ids, and the prefix tree against a comparison of every pair."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchyard_py.rollouts.tokens import TokenTree, common_ids, pack_ids, unpack_ids

Ids = st.lists(st.integers(1, 2), max_size=6)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_ids_are_packed_and_come_back(ids: list[int]) -> None:
    packed = pack_ids(ids)
    assert packed is not None
    assert unpack_ids(packed).tolist() == ids


@pytest.mark.parametrize("ids", [None, "12", (1, 2), [1, True], [1.0], [None], ["1"], [2**63], [-(2**63) - 1], [[1]]])
def test_what_is_no_list_of_ids_is_not_packed(ids: object) -> None:
    assert pack_ids(ids) is None


@given(Ids, Ids)
def test_the_common_beginning_is_found(one: list[int], other: list[int]) -> None:
    common = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    expected = min(len(one), len(other)) if common is None else common
    assert common_ids(pack_ids(one) or b"", pack_ids(other) or b"") == expected


@given(st.lists(st.tuples(Ids, st.lists(st.integers(1, 2), min_size=1, max_size=4))))
def test_the_longest_earlier_sequence_that_a_prompt_begins_with_is_found(
    calls: list[tuple[list[int], list[int]]],
) -> None:
    tree = TokenTree()
    nodes = []
    for number, (prompt, generation) in enumerate(calls):
        earlier = [before + more for before, more in calls[:number]]
        beginnings = [sequence for sequence in earlier if prompt[: len(sequence)] == sequence]
        node, parent = tree.add(number, pack_ids(prompt) or b"", pack_ids(generation) or b"")
        nodes.append(node)
        if not beginnings:
            assert parent is None
        else:
            assert parent is not None
            assert [calls[each][0] + calls[each][1] for each in parent.calls[:1]] == [max(beginnings, key=len)]
    for node, (prompt, generation) in zip(nodes, calls, strict=True):
        assert unpack_ids(node.path()).tolist() == prompt + generation
