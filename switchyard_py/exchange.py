"""The engine's end of one call: the reply that a request brought, and what is passed on of it unread."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from switchyard_py.agent import EVENT_STREAM
from switchyard_py.attempts import Attempts
from switchyard_py.engines import vllm
from switchyard_py.engines.vllm import EngineFault
from switchyard_py.heartbeats import Heartbeats
from switchyard_py.passage import Passage
from switchyard_py.refusals import engine_failed, engine_refused
from switchyard_py.routing.credentials import hide_credentials_in_error
from switchyard_py.upstream import Reply, SSEReader, UpstreamError, header_bytes

MAX_REPLY_BYTES = 1024 * 1024 * 1024
MAX_ERROR_BYTES = 1024 * 1024
# After the end of a stream its connection is read out so that it can be used again, but not for ever.
READ_OUT_SECONDS = 1.0


@asynccontextmanager
async def engine_reply(attempts: Attempts, passage: Passage) -> AsyncIterator[Reply]:
    """The engine's reply, once it has begun with status 200; the connection is dropped if it is not read out.

    Raises:
        SwitchyardError: there is none, or, out of the block, it broke off.
        AgentGone: the agent went while it was waited for.
    """
    agent, target = passage.agent, passage.target
    silence = target.early_headers_after if passage.prepared.streamed else None
    try:
        with agent.present(), Heartbeats(agent, silence):
            request = passage.request(agent.request_id)
            reply = await attempts.send(request, target, agent.request_id)
        try:
            if reply.status != 200:
                with agent.present():
                    body = await reply.read(MAX_ERROR_BYTES)
                if not passage.is_overflow(reply.status, body):
                    raise engine_refused(reply.status, reply.headers, body, target)
                reply = passage.empty_reply(agent.request_id)
            if is_event_stream(reply) and not passage.prepared.streamed:
                raise EngineFault("the engine answered with a stream that was not asked for")
            if agent.begun and not is_event_stream(reply):
                raise EngineFault("the engine answered without a stream to a call that asked for one")
            with Heartbeats(agent, silence if is_event_stream(reply) else None):
                yield reply
        finally:
            reply.close()
    except (UpstreamError, EngineFault) as error:
        raise engine_failed(error, target) from error


async def pass_on(passage: Passage, reply: Reply) -> None:
    """Hand what the engine sends to the agent as it is; only a buffered reply may have to be translated."""
    agent = passage.agent
    if not is_event_stream(reply):
        with agent.present():
            body = await reply.read(MAX_REPLY_BYTES)
        content_type = reply.headers.get("content-type", "application/json")
        told = passage.inquiry.reply(hide_credentials_in_error(body, passage.target), agent.request_id)
        await agent.answer(200, ((b"content-type", header_bytes(content_type)),), told)
        return
    await agent.start(200, EVENT_STREAM)
    chunks, reader, done = reply.chunks(), SSEReader(), False
    with agent.present():
        async for data in chunks:
            events = reader.feed(data)
            done = done or any(event.data == vllm.DONE for event in events)
            if events:
                shown = (hide_credentials_in_error(event.raw, passage.target) for event in events)
                await agent.send(b"".join(shown))
    if not done:
        raise EngineFault("the engine's stream ended early")
    await agent.finish(reader.end())


def is_event_stream(reply: Reply) -> bool:
    return reply.headers.get("content-type", "").lower().startswith("text/event-stream")


async def read_out(chunks: AsyncIterator[bytes]) -> None:
    """Read what is left of a reply whose end has been seen."""
    try:
        async with asyncio.timeout(READ_OUT_SECONDS):
            async for _ in chunks:
                pass
    except (UpstreamError, TimeoutError):
        pass
