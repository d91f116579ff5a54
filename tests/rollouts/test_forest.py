"""Random sessions against the truth of what made them, and against a comparison of every pair of calls."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from session_records import Record, assistant, causes, envelope, lineage_of, record, result, user

from switchyard_py.rollouts import Forest, Role

AGENTS: dict[str, dict[str, str]] = {"": {}, "a1": {"x-claude-code-agent-id": "a1"}}


@dataclass
class Made:
    """A session as it was made: what each call extends, and what it repeats."""

    records: list[Record] = field(default_factory=list)
    parents: list[int | None] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)

    def call(self, parent: int | None, suffix: int, agent: str, prompt: list[int] | None = None) -> None:
        number = len(self.records)
        before = None if parent is None else self.records[parent]
        ids = [] if before is None else before["prompt_token_ids"] + before["generation_token_ids"]
        if prompt is None:
            # Ids that nothing else has: what a prompt begins with is then what it was made of.
            prompt = ids + [1000 * (number + 1) + each for each in range(suffix if ids else suffix + 1)]
        generation = [-1000 * (number + 1) - each for each in range(1 + number % 3)]
        messages: list[Any] = [] if before is None else [*before["messages"]]
        added = [] if before is not None and suffix == 0 else [user(f"question {number}")]
        messages = [*messages, *added, assistant(f"answer {number}")]
        call = {"agent": AGENTS[agent]}
        self.records.append(record(number, prompt, generation, messages, call=call))
        self.parents.append(parent)
        self.agents.append(agent)

    def repeat(self, number: int) -> None:
        """The same prompt once more, answered otherwise."""
        original = self.records[number]
        self.call(self.parents[number], 1, self.agents[number], original["prompt_token_ids"])
        self.records[-1]["messages"] = [*original["messages"][:-1], self.records[-1]["messages"][-1]]


@st.composite
def sessions(draw: st.DrawFn) -> Made:
    """Roots, continuations from anywhere (forks, with or without a suffix), retries, two agents interleaved."""
    made = Made()
    for _ in range(draw(st.integers(1, 9))):
        action = draw(st.sampled_from(["root", "extend", "extend", "repeat"])) if made.records else "root"
        if action == "root":
            made.call(None, draw(st.integers(1, 3)), draw(st.sampled_from(sorted(AGENTS))))
            continue
        number = draw(st.integers(0, len(made.records) - 1))
        if action == "extend":
            made.call(number, draw(st.integers(0, 2)), made.agents[number])
        else:
            made.repeat(number)
    return made


@settings(max_examples=200, deadline=None)
@given(sessions())
def test_the_lineage_is_how_the_session_was_made(made: Made) -> None:
    lineage = lineage_of(made.records)
    forest = lineage.forest
    assert [forest.parent(number) for number in range(len(made.records))] == made.parents
    assert list(lineage.roles) == [Role.SUBAGENT if agent else Role.TURN for agent in made.agents]
    for number, original in enumerate(made.records):
        assert forest.prompt_token_ids(number).tolist() == original["prompt_token_ids"]
        assert forest.generation_token_ids(number).tolist() == original["generation_token_ids"]
        assert [*forest.prompt_messages(number), forest.calls[number].reply] == original["messages"]
    prompts = [(tuple(each["prompt_token_ids"]), agent) for each, agent in zip(made.records, made.agents, strict=True)]
    steps = {key: [at for at, other in enumerate(prompts) if other == key] for key in prompts}
    inner = set(made.parents)
    superseded = set()
    for step in steps.values():
        if any(each in inner for each in step):
            superseded |= {each for each in step if each not in inner}
    assert {each for step in lineage.attempts for each in step.superseded} == superseded
    leaves = [each for each in range(len(prompts)) if each not in inner | superseded]
    assert [chain.leaf for chain in lineage.chains] == leaves
    for chain in lineage.chains:
        assert [None, *chain.calls[:-1]] == [made.parents[each] for each in chain.calls]
        assert forest.token_ids(chain.leaf)[: len(forest.token_ids(chain.calls[0]))] == forest.token_ids(chain.calls[0])
    turns = [leaf for leaf in leaves if not made.agents[leaf]]
    open_step = turns and len(steps[prompts[turns[-1]]]) > 1 and not set(steps[prompts[turns[-1]]]) & inner
    if not turns or open_step:
        assert lineage.main.chain is None
    else:
        assert lineage.main.chain is not None
        assert lineage.chains[lineage.main.chain].leaf == turns[-1]


Ids = st.lists(st.integers(1, 2), max_size=5)
Call = st.tuples(Ids.filter(bool), Ids.filter(bool))


@settings(max_examples=200, deadline=None)
@given(st.lists(Call, max_size=8))
def test_a_parent_is_the_longest_earlier_call_that_a_prompt_begins_with(
    calls: list[tuple[list[int], list[int]]],
) -> None:
    records = [
        record(number, prompt, generation, [user(str(number)), assistant("a")])
        for number, (prompt, generation) in enumerate(calls)
    ]
    forest = Forest("s")
    for each in records:
        forest.add(each)
    for number, (prompt, _) in enumerate(calls):
        earlier = [before + more for before, more in calls[:number]]
        found = [at for at, sequence in enumerate(earlier) if prompt[: len(sequence)] == sequence]
        # Of equal sequences the latest.
        expected = max(found, key=lambda at: (len(earlier[at]), at)) if found else None
        assert forest.parent(number) == expected


def test_a_link_tells_what_was_added_and_changed() -> None:
    first = record(0, [1], [2], [user("q"), assistant("a")])
    added = [user("r"), assistant("from nowhere"), user("s")]
    second = record(1, [1, 2, 3, 4], [5], [*first["messages"], *added, assistant("b")], call={"route": "other"})
    lineage = lineage_of([first, second | {"tools": [{"id": "run"}]}])
    link = lineage.forest.placements[1].link
    assert link is not None
    assert (link.parent, link.added_tokens, link.known_messages) == (0, 2, 2)
    assert lineage.forest.added_messages(1) == added
    assert (link.unseen_replies, link.route_changed, link.tools_changed) == (1, True, True)
    root = lineage.forest.placements[0].link
    assert root is not None
    assert (root.parent, root.added_tokens, root.unseen_replies, root.route_changed) == (None, 1, 0, False)


def test_messages_that_were_left_out_do_not_shift_what_was_added() -> None:
    first = record(0, [1], [2], [user(""), user("q"), assistant("a")])
    second = record(1, [1, 2, 3], [4], [user("q"), assistant("a"), user("r"), assistant("b")])
    assert lineage_of([first, second]).forest.added_messages(1) == [user("r")]


def test_calls_whose_ids_nobody_has_are_kept_and_not_placed() -> None:
    good = record(0, [1], [2], [user("q"), assistant("a")])
    bad = [record(1, [1, 2], [], []), None, {**good, "session_id": "other"}, dict(good)]
    lineage = lineage_of([good, *bad])
    flaws = [call.flaw.rule.value for call in lineage.forest.calls if call.flaw]
    assert flaws == ["R5", "R1", "R1", "R2"]
    assert [placement.link is None for placement in lineage.forest.placements] == [False, True, True, True, True]
    assert lineage.forest.token_ids(1).tolist() == []
    assert lineage.forest.added_messages(1) == []
    assert [chain.calls for chain in lineage.chains] == [(0,)]
    assert lineage.main.chain == 0


def test_a_reply_is_found_by_its_tool_call_even_if_the_agent_shortens_the_id() -> None:
    function = {"name": "run", "arguments": "{}"}
    reply = assistant(None, tool_calls=[{"id": "call_a-b", "type": "function", "function": function}])
    resent = assistant(None, tool_calls=[{"id": "callab", "type": "function", "function": function}])
    first = record(0, [1], [2, 3], [user("q"), reply])
    between = record(1, [7], [8], [user("q"), assistant("other")])
    third = record(2, [1, 2, 5], [6], [user("q"), resent, result("r", "callab"), assistant("b")])
    assert causes(lineage_of([first, between, third]))[-1][:3] == (2, 0, 2)


def test_a_call_of_another_conversation_is_not_taken_for_a_broken_one() -> None:
    first = record(0, [1], [2], [user("q"), assistant("a")])
    other = record(1, [5], [6], [user("another question"), assistant("b")])
    at_once = record(2, [7], [8], [user("q"), user("and"), assistant("c")])
    at_once["call"] |= {"started_at": other["call"]["started_at"]}
    assert causes(lineage_of([first, other, at_once])) == []


def test_an_empty_session_has_no_chain() -> None:
    lineage = lineage_of([])
    assert lineage.chains == ()
    assert (lineage.main.chain, lineage.main.reason.value) == (None, "no_turn")
    assert lineage.session_id == envelope([])["session_id"]


def test_numbers_that_no_double_holds_are_no_obstacle() -> None:
    tools = [{"id": "run", "inputSchema": {"jsonSchema": {"maximum": 10**30}}}]
    call = {"id": "c", "function": {"name": "run", "arguments": {"n": 10**30}}}
    first = record(0, [1], [2, 3], [user("q"), assistant(None, tool_calls=[call])], tools=tools)
    resent = {"role": "user", "content": [{"n": 10**30}]}
    second = record(1, [1, 2, 4], [5], [user("q"), first["messages"][-1], resent, assistant("b")], tools=tools)
    lineage = lineage_of([first, second])
    assert lineage.forest.calls[0].tools is lineage.forest.calls[1].tools
    assert causes(lineage) == [(1, 0, 2, "other_tokenisation")]
