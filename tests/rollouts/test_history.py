"""Messages come back as they were given, whatever they share."""

from hypothesis import given
from hypothesis import strategies as st

from switchyard_py.rollouts.history import Histories

Prompts = st.lists(st.tuples(st.lists(st.sampled_from("abc"), max_size=5), st.integers(0, 5)), max_size=6)


@given(Prompts)
def test_conversations_come_back(calls: list[tuple[list[str], int]]) -> None:
    histories = Histories()
    expected = []
    for number, (texts, base) in enumerate(calls):
        messages = [{"content": text} for text in texts]
        reply = {"content": f"reply {number % 2}"}
        histories.add(messages, reply, base if base < number else None)
        expected.append([*messages, reply])
    for number, conversation in enumerate(expected):
        assert histories.conversation(number) == conversation
        assert histories.length(number) == len(conversation)
