import math

from hypothesis import given, settings
from hypothesis import strategies as st

from switchyard_py.simulator.logprobs import IMPOSSIBLE, Prefix, prompt_logprobs
from switchyard_py.simulator.tokenizer import SPECIAL_TOKENS, VOCABULARY_SIZE

TOKENS = st.lists(st.integers(0, VOCABULARY_SIZE - 1), max_size=20)
USED = [*range(256), *SPECIAL_TOKENS]


@settings(deadline=None)
@given(TOKENS)
def test_every_prefix_has_a_distribution(prefix: list[int]) -> None:
    candidates = [Prefix(prefix).candidates(token)[0] for token in range(VOCABULARY_SIZE)]
    assert math.isclose(math.fsum(math.exp(c.logprob) for c in candidates), 1.0)
    assert sorted(candidates[token].rank for token in USED) == list(range(1, len(USED) + 1))


@given(TOKENS, st.sampled_from(USED), st.integers(0, 20))
def test_the_most_likely_tokens_agree_with_the_ranks(prefix: list[int], token: int, top: int) -> None:
    own, *others = Prefix(prefix).candidates(token, top)
    assert own.token == token
    assert [c.rank for c in others] == [rank for rank in range(1, top + 1) if rank != own.rank]
    assert all(Prefix(prefix).candidates(c.token)[0] == c for c in others)


@given(TOKENS)
def test_a_prompt_has_the_numbers_of_its_generation(tokens: list[int]) -> None:
    prefix = Prefix(tokens[:1])
    generated = []
    for token in tokens[1:]:
        generated.append(prefix.candidates(token, 2))
        prefix.extend(token)
    assert prompt_logprobs(tokens, 2)[1:] == generated


def test_an_unused_token_has_no_probability() -> None:
    assert Prefix().candidates(300)[0].logprob == IMPOSSIBLE


def test_different_prefixes_have_different_distributions() -> None:
    assert Prefix([1, 2]).candidates(3) != Prefix([2, 1]).candidates(3)
