"""Retries: an agent that asks again what its last attempt brought it no answer to.

Where the answer was whole and its record lies undelivered, the retry is answered from it, in the form it asks for now,
and nothing is generated: the record becomes delivered before the answer goes out, and stays undelivered when it does
not. Any other retry is a new call, and its record names the call it repeats.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from switchyard_py.agent import EVENT_STREAM, JSON, AgentGone
from switchyard_py.capture.ledger import OpenCall, SessionClosed, StoreUnavailable
from switchyard_py.capture.retries import MissedCall, Retries
from switchyard_py.config import CaptureSettings
from switchyard_py.engines import vllm
from switchyard_py.errors import Kind, SwitchyardError
from switchyard_py.passage import Passage

log = logging.getLogger(__name__)

Work = Callable[..., Awaitable[bytes]]
"""`await work(size, function, *args)` runs a function that handles so many bytes."""


class Replays:
    """What this process knows of calls whose agents got no answer. Other processes know nothing of it."""

    def __init__(self, capture: CaptureSettings, work: Work) -> None:
        self._retries = Retries(capture.replay_seconds, capture.replay_max_bytes)
        self._work = work

    @asynccontextmanager
    async def attempt(self, passage: Passage) -> AsyncIterator[bool]:
        """Serve a call during the block; whether its agent has its answer by then, so that nothing is to be sent.

        Raises:
            AgentGone: the agent went before it had the answer.
            SwitchyardError: there is an answer, and the store does not let it go.
        """
        agent, key = passage.agent, passage.request_key
        with agent.present():
            passage.repeats = await self._retries.claim(key)
        with self._retries.attempt(key, lambda: agent.gone):
            answered = False
            if passage.repeats is not None:
                passage.course.retry_of = passage.repeats.call.uuid
                answered = await self._answer(passage, passage.repeats)
            yield answered

    def not_begun(self, passage: Passage) -> None:
        """The call cannot begin after all: another attempt may repeat what it repeats."""
        if passage.repeats is not None:
            self._retries.restore(passage.repeats)

    def failed(self, call: OpenCall) -> None:
        """The agent of a call got no answer, and there is none."""
        self._retries.add(call)

    async def undelivered(self, passage: Passage, call: OpenCall) -> None:
        """The agent of a call did not get its answer, which is whole.

        Whether the record is in the store shows when a retry asks for it.
        """
        answer = None if passage.answer is None else await self._work(passage.size, passage.answer)
        self._retries.add(call, answer)

    async def _answer(self, passage: Passage, missed: MissedCall) -> bool:
        """Answer from the record of a call that was missed; False if that cannot be done."""
        if missed.answer is None:
            return False
        agent, call = passage.agent, missed.call
        try:
            body = await self._work(len(missed.answer), _rendered, missed.answer, passage, call.uuid)
            record = await call.deliver()
            if record is None:
                return False
            if agent.gone:
                await call.undelivered(record)
                raise AgentGone
        except SessionClosed:
            return False  # nor will a new call begin
        except StoreUnavailable as error:
            self._retries.restore(missed)
            text = f"The answer to the attempt before is withheld, because {error}."
            raise SwitchyardError(Kind.CAPTURE_UNAVAILABLE, text) from error
        except AgentGone:
            self._retries.restore(missed)
            raise
        agent.observation.replayed = True
        agent.request_id = call.uuid
        log.info("call %s of session %s is answered to a retry", call.uuid, call.intent.session_id)
        if passage.prepared.streamed:
            await agent.start(200, EVENT_STREAM)
            await agent.finish(body)
        else:
            await agent.answer(200, JSON, body)
        return True


def _rendered(answer: bytes, passage: Passage, call_id: str) -> bytes:
    """A whole answer as the agent asks for it."""
    if not passage.prepared.streamed:
        return passage.inquiry.reply(answer, call_id)
    stream = passage.inquiry.stream(call_id)
    live = [stream.live(chunk) for chunk in vllm.answer_chunks(answer, usage=passage.prepared.wants.usage)]
    return b"".join(live) + stream.tail()
