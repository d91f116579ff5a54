"""What the engines say they serve: their model cards, looked up again when they are old or were missing.

An engine that is down never makes a caller wait for long, and the last cards known stay good.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field

import msgspec

from switchyard_py.config import Target
from switchyard_py.routing.credentials import target_headers
from switchyard_py.upstream import Upstream, UpstreamError, UpstreamRequest

log = logging.getLogger(__name__)

FRESH_SECONDS = 30.0
# An engine that did not answer is asked again sooner, because it may just be starting.
RETRY_SECONDS = 2.0
LOOKUP_SECONDS = 2.0
MAX_CARDS_BYTES = 4 * 1024 * 1024


class Card(msgspec.Struct):
    """The part of a vLLM model card that is used; `max_model_len` is in tokens."""

    id: str
    max_model_len: int | None = None


class _Cards(msgspec.Struct):
    data: list[Card]


_CARDS = msgspec.json.Decoder(_Cards)


@dataclass(slots=True)
class _Known:
    cards: list[Card] = field(default_factory=list)
    answered: bool = False
    good_until: float = 0.0
    lookup: asyncio.Task[None] | None = None


class Catalogue:
    """Model cards by engine, shared by all who ask."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._known: dict[tuple[str, str | None], _Known] = {}

    async def names(self, target: Target) -> list[str]:
        """Ids of all models the engine has, in its order."""
        return [card.id for card in await self._cards(target)]

    async def serves(self, target: Target, model: str) -> bool:
        """Whether the engine has a model of that name."""
        return model in await self.names(target)

    async def max_model_len(self, target: Target, model: str) -> int | None:
        """The context length of one of the engine's models in tokens, None while it is not known."""
        return next((card.max_model_len for card in await self._cards(target) if card.id == model), None)

    async def answers(self, target: Target) -> bool:
        """Whether the engine answered when it was last asked."""
        await self._cards(target)
        return self._known[_key(target)].answered

    async def close(self) -> None:
        """End the look-ups under way."""
        lookups = [known.lookup for known in self._known.values() if known.lookup is not None]
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    async def _cards(self, target: Target) -> list[Card]:
        known = self._known.setdefault(_key(target), _Known())
        if time.monotonic() >= known.good_until:
            if known.lookup is None:
                known.lookup = asyncio.create_task(self._look_up(target, known))
            # Shielded: one caller that goes away must not end the look-up for the others.
            await asyncio.shield(known.lookup)
        return known.cards

    async def _look_up(self, target: Target, known: _Known) -> None:
        try:
            request = UpstreamRequest(
                "GET",
                f"{target.base_url}/models",
                target_headers(target),
                connect_timeout=LOOKUP_SECONDS,
                total_timeout=LOOKUP_SECONDS,
            )
            known.answered = False
            reply = await self._upstream.send(request)
            known.answered = True
            try:
                body = await reply.read(MAX_CARDS_BYTES)
            finally:
                reply.close()
            if reply.status == 200:
                known.cards = _CARDS.decode(body).data
                known.good_until = time.monotonic() + FRESH_SECONDS
                return
            log.info("the engine of target %s answers /models with HTTP %d", target.id, reply.status)
        except (UpstreamError, msgspec.DecodeError) as error:
            log.info("the models of target %s cannot be looked up: %s", target.id, error)
        finally:
            known.lookup = None
        known.good_until = time.monotonic() + RETRY_SECONDS


def _key(target: Target) -> tuple[str, str | None]:
    return target.base_url, target.api_key
