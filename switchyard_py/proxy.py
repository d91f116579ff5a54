"""The path of a call, top to bottom.

    admit -> read -> identify the session -> find the route -> prepare -> begin -> send -> harvest -> record -> commit
    -> tail

Nothing is sent before the call's intent is on disk, and the agent sees nothing it can act on before its record is.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from switchyard_py.access import Access
from switchyard_py.agent import EVENT_STREAM, JSON, Agent, AgentGone
from switchyard_py.attempts import Attempts
from switchyard_py.capture.call import Generation
from switchyard_py.capture.ledger import Ledger, OpenCall, SessionClosed, StoreUnavailable
from switchyard_py.capture.losses import Losses
from switchyard_py.config import CaptureSettings, ServerSettings, SessionSettings
from switchyard_py.dialects.dialect import Dialect, Inquiry, asked_model
from switchyard_py.engines import vllm
from switchyard_py.engines.vllm import Endpoint, StreamHarvest, WhitespaceHold
from switchyard_py.errors import Kind, RequestRefused, ShuttingDown, SwitchyardError
from switchyard_py.exchange import MAX_REPLY_BYTES, engine_reply, is_event_stream, pass_on, read_out
from switchyard_py.lifecycle import RunningCalls
from switchyard_py.observation import AGENT_GONE, Observation
from switchyard_py.passage import Passage
from switchyard_py.rawjson import Slice
from switchyard_py.replays import Replays
from switchyard_py.routing.table import Destination, RouteTable
from switchyard_py.sessions import Identity, header_values, identify
from switchyard_py.side_calls import SideCalls
from switchyard_py.tool_arguments import GeneratedArguments
from switchyard_py.upstream import Reply, SSEReader, header_bytes
from switchyard_py.worker import WorkThread

log = logging.getLogger(__name__)

# Smaller bodies are cheaper to take apart at once than to hand to the worker thread.
LARGE_BYTES = 32 * 1024

T = TypeVar("T")


class Proxy:
    """Serves model calls in any dialect. One per process."""

    def __init__(
        self,
        table: RouteTable,
        attempts: Attempts,
        ledger: Ledger | None,
        workbench: WorkThread,
        access: Access,
        capture: CaptureSettings,
        sessions: SessionSettings,
        server: ServerSettings,
        listeners: Sequence[Callable[[Observation], None]],
        calls: RunningCalls,
        arguments: GeneratedArguments,
    ) -> None:
        """`listeners` are told of each call when it is over."""
        self._table = table
        self._attempts = attempts
        self._ledger = ledger
        self._workbench = workbench
        self._access = access
        self._sessions = sessions
        self._server = server
        self._listeners = listeners
        self._calls = calls
        self._arguments = arguments
        self._side_calls = SideCalls()
        self._replays = Replays(capture, self._work)
        self._losses = Losses(ledger) if ledger and capture.on_store_failure == "uncaptured" else None

    async def serve(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call, an ASGI request."""
        agent = Agent(scope, receive, send, Observation(dialect.name, self._listeners), dialect.request_id_headers)
        try:
            with self._calls.running(agent):
                await self._serve(agent, dialect)
        except AgentGone:
            agent.observation.outcome = AGENT_GONE
        except SwitchyardError as error:
            await self._tell(agent, dialect, error)
        except Exception:
            log.exception("call %s failed by a mistake in this program", agent.request_id)
            await self._tell(agent, dialect, SwitchyardError(Kind.INTERNAL, "The proxy failed; its log says why."))
        finally:
            agent.close()

    async def _serve(self, agent: Agent, dialect: Dialect) -> None:
        headers = header_values(agent.scope["headers"])
        admission = self._access.admit_caller(headers)
        with agent.present():
            body = await agent.read_body(self._server.max_body_bytes, self._server.agent_stall_seconds)
        fields = await self._work(len(body), dialect.read, body)
        identity = identify(
            headers,
            fields,
            agent.scope.get("switchyard.session"),
            self._sessions.native_ids,
            key_session=admission.session_id,
            reads_user_id=dialect.has_user_id,
        )
        admission.check(identity.session_id)
        agent.observation.session_id = identity.session_id
        with agent.present():
            destination = await self._table.find(asked_model(fields))
        ledger = self._ledger_for(agent, destination, identity) if dialect.endpoint.generates else None
        inquiry = await self._inquire(dialect, fields, identity, len(body))
        request = agent, headers, identity, destination, dialect, inquiry, body
        passage = await self._work(len(body), Passage.prepare, *request, ledger is not None)
        agent.observation.course = passage.course
        if ledger is None:
            await self._forward(passage)
            return
        async with self._replays.attempt(passage) as answered:
            if answered:
                return
            call = await self._begin(ledger, passage)
            if call is None:
                await self._forward(await self._work(len(body), Passage.prepare, *request, False))
                return
            agent.request_id, agent.observation.call = call.uuid, call
            if passage.has_tools:
                self._side_calls.saw_tools(call.intent.session_id)
            await self._capture(passage, call)

    async def _inquire(self, dialect: Dialect, fields: dict[str, Slice], identity: Identity, size: int) -> Inquiry:
        """What the engine is asked; arguments of earlier tool calls come from the session's records if need be."""
        arguments = self._arguments.of(identity.session_id)
        inquiry = await self._work(size, dialect.inquire, fields, arguments)
        if not arguments.missed:
            return inquiry
        await self._workbench.run(arguments.load)
        return await self._work(size, dialect.inquire, fields, arguments)

    def _ledger_for(self, agent: Agent, destination: Destination, identity: Identity) -> Ledger | None:
        """Where the call is accounted for, None when it is only passed on."""
        if destination.route.target.engine is None or self._ledger is None:
            return None
        if identity.session_id is None:
            if self._sessions.required:
                text = "The call names no session, and this proxy requires one: send the header proxy_x_session_id."
                raise RequestRefused(Kind.SESSION_REQUIRED, text)
            agent.observation.unidentified = True
            return None
        return self._ledger

    async def _begin(self, ledger: Ledger, passage: Passage) -> OpenCall | None:
        """The call, once its intent is on disk; None when the store refuses it and it is lost, but not refused."""
        intent = passage.intent()
        try:
            return await ledger.begin(intent)
        except SessionClosed as closed:
            kind = Kind.SESSION_DELETED if closed.deleted else Kind.SESSION_SEALED
            raise RequestRefused(kind, f"The call was not sent, because {closed}.") from closed
        except StoreUnavailable as error:
            lost = self._losses and self._losses.add(intent)
            if lost:
                passage.agent.request_id, passage.agent.observation.lost = lost, True
                return None
            self._replays.not_begun(passage)
            raise SwitchyardError(Kind.CAPTURE_UNAVAILABLE, f"The call was not sent, because {error}.") from error

    async def _capture(self, passage: Passage, call: OpenCall) -> None:
        """Answer a call that has begun. Whatever happens, it ends in one state of the ledger."""
        try:
            async with engine_reply(self._attempts, passage) as reply:
                await self._answer(passage, call, reply)
        except AgentGone as gone:
            await self._fail(passage, call, gone.reason)
            raise
        except ShuttingDown:
            await self._fail(passage, call, "shutdown")
            raise
        except SwitchyardError as error:
            await self._fail(passage, call, f"{error.code}: {error}")
            raise
        except asyncio.CancelledError:
            if not call.ended:
                call.abandon_to_failed("shutdown", passage.partial_record(call))
            raise
        except Exception as error:
            await self._fail(passage, call, f"{Kind.INTERNAL.value.code}: {type(error).__name__}")
            raise

    async def _answer(self, passage: Passage, call: OpenCall | None, reply: Reply) -> None:
        """Hand the engine's answer to the agent in its dialect, and record it where there is a `call`."""
        if is_event_stream(reply):
            await self._answer_stream(passage, call, reply)
        else:
            await self._answer_buffered(passage, call, reply)

    async def _answer_buffered(self, passage: Passage, call: OpenCall | None, reply: Reply) -> None:
        with passage.agent.present():
            body = await reply.read(MAX_REPLY_BYTES)
        passage.size += len(body)
        prepared = passage.prepared
        answer, generation = await self._work(passage.size, vllm.harvest_reply, body, prepared.wants, prepared.endpoint)
        told = await self._work(passage.size, passage.inquiry.reply, answer, passage.agent.request_id)
        if prepared.endpoint is Endpoint.CHAT:
            passage.answer = lambda: answer
        await self._commit(passage, call, generation)
        await passage.agent.answer(200, JSON, told)

    async def _answer_stream(self, passage: Passage, call: OpenCall | None, reply: Reply) -> None:
        agent, wants, endpoint = passage.agent, passage.prepared.wants, passage.prepared.endpoint
        drops_whitespace = passage.target.stream_whitespace == "drop"
        harvest = StreamHarvest(wants, endpoint, drops_whitespace=drops_whitespace)
        whitespace = WhitespaceHold(wants, on=drops_whitespace and endpoint is Endpoint.CHAT)
        agent.stream = stream = passage.inquiry.stream(agent.request_id)
        reader = SSEReader()

        def take(data: bytes, live: list[bytes]) -> None:
            for event in reader.feed(data):
                if event.data is None:
                    live.append(event.raw)
                    continue
                passage.course.first_token_at = passage.course.first_token_at or time.time()
                for chunk in harvest.feed(event.data):
                    live.extend(map(stream.live, whitespace.feed(chunk)))

        passage.seen = lambda: harvest.generation
        await agent.start(200, EVENT_STREAM)
        chunks = reply.chunks()
        with agent.present():
            async for data in chunks:
                passage.size += len(data)
                live: list[bytes] = []
                try:
                    await self._work(reader.waiting + len(data), take, data, live)
                finally:
                    # What the engine said before a fault reaches the agent before the fault does.
                    if any(live):
                        await agent.send(b"".join(live))
                if harvest.done:
                    break
        generation = harvest.end()
        if whitespace.dropped:
            passage.course.changed_in_reply = ("reply.whitespace",)
        if endpoint is Endpoint.CHAT:
            passage.answer = lambda: vllm.buffered_answer(generation, wants)
        # An agent that has stopped reading is not known to be there.
        await agent.drained()
        await self._commit(passage, call, generation)
        await agent.finish(stream.tail())
        await read_out(chunks)

    async def _commit(self, passage: Passage, call: OpenCall | None, generation: Generation) -> None:
        """Make the record of a captured call durable. On return the agent may get the tail.

        Raises:
            AgentGone: the agent went before its tail; the record says so.
            SwitchyardError: neither the record nor its loss could be written.
        """
        if call is None:
            return
        session_id = call.intent.session_id
        passage.course.kind = self._side_calls.guess(session_id, passage.headers, has_tools=passage.has_tools)
        record = await self._work(passage.size, passage.record, call, generation)
        if not passage.agent.gone:
            started = time.perf_counter()
            try:
                await call.commit(record)
                passage.agent.observation.committed(record, time.perf_counter() - started)
            except StoreUnavailable as error:
                await self._replays.undelivered(passage, call)
                text = f"The answer is withheld, because it could not be recorded: {error}."
                raise SwitchyardError(Kind.CAPTURE_UNAVAILABLE, text) from error
        if passage.agent.gone:
            await call.undelivered(record)
            await self._replays.undelivered(passage, call)
            raise AgentGone
        if not passage.dialect.verbatim:
            self._arguments.keep(session_id, call.uuid, generation)

    async def _forward(self, passage: Passage) -> None:
        """Answer a call that is not captured."""
        async with engine_reply(self._attempts, passage) as reply:
            if passage.dialect.verbatim or not passage.dialect.endpoint.generates:
                await pass_on(passage, reply)
            else:
                await self._answer(passage, None, reply)

    async def _fail(self, passage: Passage, call: OpenCall, reason: str) -> None:
        if not call.ended:
            log.info("call %s of session %s failed: %s", call.uuid, call.intent.session_id, reason)
            self._replays.failed(call)
            seen = None
            try:
                # A large event may still be in the worker thread, which takes the record after it.
                seen = await self._work(passage.size, passage.partial_record, call)
            finally:
                await call.fail(reason, seen)

    async def _work(self, size: int, function: Callable[..., T], *args: Any) -> T:
        """Run `function`, in the worker thread when the bytes it handles would keep the event loop busy for long."""
        if size <= LARGE_BYTES:
            return function(*args)
        return await self._workbench.run(function, *args)

    async def _tell(self, agent: Agent, dialect: Dialect, error: SwitchyardError) -> None:
        """Answer with an error, or end a stream that had begun with one."""
        agent.observation.refused(error)
        if agent.gone or agent.finished:
            return
        if agent.begun:
            await agent.finish((agent.stream or dialect).error_event(error, agent.request_id))
        else:
            headers = [(name.encode(), header_bytes(value)) for name, value in error.headers.items()]
            await agent.answer(error.status, [*JSON, *headers], dialect.error_body(error, agent.request_id))
