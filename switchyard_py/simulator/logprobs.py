"""Log-probabilities: a fixed probability distribution for every prefix.

Every prefix ranks all tokens in use, by an affine permutation drawn from a hash of the prefix; the probability of a
token falls with its rank as a power law. So the log-probability of a token depends on the prefix and the token alone,
the distribution sums to one, ranks and most likely tokens agree with it, and asking for the log-probabilities of a
prompt gives the very numbers that were reported when it was generated.
"""

import hashlib
import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from switchyard_py.simulator.tokenizer import SPECIAL_TOKENS, VOCABULARY_SIZE

_RANKED = [*range(256), *SPECIAL_TOKENS]
"""The tokens a model can emit; the unused rows of the vocabulary have no probability."""

_PLACES = {token: place for place, token in enumerate(_RANKED)}
_UNITS = [factor for factor in range(1, len(_RANKED)) if math.gcd(factor, len(_RANKED)) == 1]
_EXPONENT = 1.25
_LOG_TOTAL = math.log(sum(rank**-_EXPONENT for rank in range(1, len(_RANKED) + 1)))
_BY_RANK = [-_EXPONENT * math.log(rank) - _LOG_TOTAL for rank in range(1, len(_RANKED) + 1)]

IMPOSSIBLE = -9999.0
"""What the engine reports where there is no probability."""


class Candidate(NamedTuple):
    """A token with its log-probability and its rank, 1 being the most likely."""

    token: int
    logprob: float
    rank: int


class Prefix:
    """A growing token sequence and the distribution of the token after it."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self._hash = hashlib.blake2b(array("H", tokens).tobytes(), digest_size=8)

    def extend(self, token: int) -> None:
        """Append one token."""
        self._hash.update(array("H", (token,)).tobytes())

    def candidates(self, token: int, top: int = 0) -> list[Candidate]:
        """The candidate `token` first, then the `top` most likely others in order of rank.

        The most likely list counts `token` when it is among them, as the engine does: with `top` 2 and `token` at rank
        1 there is one other.
        """
        factor, shift = self._permutation()
        place = _PLACES.get(token)
        rank = None if place is None else (place * factor + shift) % len(_RANKED)
        own = (
            Candidate(token, IMPOSSIBLE, VOCABULARY_SIZE)
            if rank is None
            else Candidate(token, _BY_RANK[rank], rank + 1)
        )
        inverse = pow(factor, -1, len(_RANKED))
        others = [
            Candidate(_RANKED[(other - shift) * inverse % len(_RANKED)], _BY_RANK[other], other + 1)
            for other in range(top)
            if other != rank
        ]
        return [own, *others]

    def _permutation(self) -> tuple[int, int]:
        digest = self._hash.digest()
        # A factor without a common divisor is invertible modulo the number of tokens: the ranks are a permutation.
        factor = _UNITS[int.from_bytes(digest[:4], "big") % len(_UNITS)]
        return factor, int.from_bytes(digest[4:], "big")


def prompt_logprobs(tokens: Sequence[int], top: int) -> list[list[Candidate] | None]:
    """The candidates at each position of a prompt; the first position has none."""
    prefix = Prefix(tokens[:1])
    positions: list[list[Candidate] | None] = [None]
    for token in tokens[1:]:
        positions.append(prefix.candidates(token, top))
        prefix.extend(token)
    return positions
