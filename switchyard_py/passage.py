"""One call on its way through the proxy: what is known of it, and what is made of that.

The intent that is on disk before anything is sent, the request to the engine, and the record.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from switchyard_py.agent import Agent
from switchyard_py.capture.call import Course, Generation
from switchyard_py.capture.intent import CallIntent, request_digest
from switchyard_py.capture.ledger import OpenCall
from switchyard_py.capture.record import build_record, timestamp
from switchyard_py.capture.retries import MissedCall, RequestKey
from switchyard_py.config import Target
from switchyard_py.dialects.dialect import Dialect, Inquiry
from switchyard_py.engines import vllm
from switchyard_py.engines.vllm import Endpoint, EngineFault, Prepared
from switchyard_py.rawjson import InvalidJSON
from switchyard_py.routing.credentials import target_headers
from switchyard_py.routing.table import Destination
from switchyard_py.sessions import Identity
from switchyard_py.upstream import SubstituteReply, UpstreamRequest

MAX_KEPT_HEADER = 1024
PASSED_HEADERS = ("traceparent", "tracestate")


@dataclass(slots=True, repr=False)
class Passage:
    """Who asked and what for, where it goes, and what has been seen of the answer. Has no repr: headers hold keys."""

    agent: Agent
    headers: dict[str, str]
    identity: Identity
    destination: Destination
    dialect: Dialect
    inquiry: Inquiry
    prepared: Prepared
    course: Course
    digest: str
    size: int
    """Bytes of the call seen so far, of its request and of its reply."""
    repeats: MissedCall | None = None
    seen: Callable[[], Generation] = field(default=Generation)
    overflowed: bool = False
    """Whether the agent is given an empty completion, because its prompt does not fit."""
    answer: Callable[[], bytes] | None = None
    """Makes the whole answer in the form of a buffered chat reply, once it is known to be whole. None until then, and
    for text completions, which are not replayed."""

    @classmethod
    def prepare(
        cls,
        agent: Agent,
        headers: dict[str, str],
        identity: Identity,
        destination: Destination,
        dialect: Dialect,
        inquiry: Inquiry,
        body: bytes,
        captured: bool,
    ) -> "Passage":
        """Get a request, whose text is `body`, ready for its engine."""
        target, fields = destination.route.target, inquiry.fields
        prepared = vllm.prepare(fields, body, destination.model, target, captured=captured, endpoint=dialect.endpoint)
        course = Course(
            dialect=dialect.name,
            route=destination.route.name,
            target=target.id,
            engine=target.engine or "",
            started_at=time.time(),
            streamed=prepared.streamed,
            agent=identity.agent,
            client_request_id=_cut(headers.get("x-request-id")),
            user_agent=_cut(headers.get("user-agent")),
        )
        digest = request_digest(vllm.generative(fields)) if captured else ""
        size = len(prepared.body)
        return cls(agent, headers, identity, destination, dialect, inquiry, prepared, course, digest, size)

    @property
    def target(self) -> Target:
        return self.destination.route.target

    @property
    def has_tools(self) -> bool:
        """Whether the model is offered tools."""
        return bytes(self.prepared.asked.tools or b"[]") not in (b"[]", b"null")

    @property
    def request_key(self) -> RequestKey:
        """What a retry of the call has in common with it. The call must have a session."""
        assert self.identity.session_id is not None
        return self.identity.session_id, self.digest

    def intent(self) -> CallIntent:
        """What the ledger keeps before the call is sent. The call must have a session."""
        session_id, digest = self.request_key
        return CallIntent(
            session_id=session_id,
            parent_session_id=self.identity.parent_session_id,
            route=self.course.route,
            target=self.course.target,
            dialect=self.course.dialect,
            request_id=self.course.client_request_id,
            digest=digest,
            started_at=timestamp(self.course.started_at),
        )

    def request(self, request_id: str) -> UpstreamRequest:
        """The request to the engine; of the agent's headers only the trace goes along."""
        target = self.target
        headers = [("content-type", "application/json"), *target_headers(target), ("x-request-id", request_id)]
        if self.identity.session_id is not None:
            headers.append(("x-session-id", self.identity.session_id))
        # An engine would refuse the whole call for a header of some 10 KB.
        traces = [(name, self.headers.get(name, "")) for name in PASSED_HEADERS]
        headers += [(name, value) for name, value in traces if 0 < len(value) <= MAX_KEPT_HEADER]
        return UpstreamRequest(
            "POST",
            self.prepared.endpoint.url(target.base_url),
            headers,
            self.prepared.body,
            target.connect_timeout,
            target.first_byte_timeout,
            target.idle_timeout,
            target.total_timeout,
            self.agent.observation.waiting,
        )

    def is_overflow(self, status: int, body: bytes) -> bool:
        """Whether the engine's reply is one that this target's agents get an empty completion for."""
        if self.target.on_context_overflow == "error" or self.prepared.endpoint is not Endpoint.CHAT:
            return False
        return vllm.is_context_overflow(status, body)

    def empty_reply(self, request_id: str) -> SubstituteReply:
        """An empty completion, in the form that was asked for; no record with it is valid."""
        self.overflowed = True
        streamed, usage = self.prepared.streamed, self.prepared.wants.usage
        body = vllm.empty_completion(request_id, self.destination.model, streamed=streamed, usage=usage)
        return SubstituteReply("text/event-stream" if streamed else "application/json", body)

    def record(self, call: OpenCall, generation: Generation) -> bytes:
        """The record of a call that was answered, with every reason why it is not proved complete.

        Raises:
            EngineFault: no record can be made of the reply.
        """
        try:
            proof = ["context_overflow"] if self.overflowed else vllm.invalid_reasons(generation)
            reasons = [*self.prepared.asked.flaws, *proof]
            self.agent.observation.invalid_reasons, self.agent.observation.usage = reasons, generation.usage
            return self._record(call, generation, reasons)
        except InvalidJSON as error:
            raise EngineFault(f"the engine's reply cannot be recorded: {error}") from None

    def partial_record(self, call: OpenCall) -> bytes | None:
        """What has been seen of the answer to a call that failed, None if no record can be made of it."""
        generation = self.seen()
        try:
            return self._record(call, generation, ["failed"]) if generation.choices else None
        except InvalidJSON:
            return None

    def _record(self, call: OpenCall, generation: Generation, reasons: list[str]) -> bytes:
        now = time.time()
        self.course.finished_at = now
        return build_record(
            uuid=call.uuid,
            session_id=call.intent.session_id,
            parent_session_id=call.intent.parent_session_id,
            captured_at=now,
            asked=self.prepared.asked,
            generation=generation,
            course=self.course,
            invalid_reasons=reasons,
        )


def _cut(text: str | None) -> str | None:
    """What a record keeps of a header an agent may fill with anything."""
    return text and text[:MAX_KEPT_HEADER]
