"""The path of a generating call: read, check, prompt, reply, faults, answer."""

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from switchyard_py.simulator.chat import ChatReply
from switchyard_py.simulator.completions import CompletionReply
from switchyard_py.simulator.envelope import random_id
from switchyard_py.simulator.errors import BadRequest, ModelNotFound
from switchyard_py.simulator.faults import CallFaults
from switchyard_py.simulator.generation import Generator, Job
from switchyard_py.simulator.journal import Entry, Journal
from switchyard_py.simulator.prompts import chat_prompt, completion_prompts
from switchyard_py.simulator.replies import Question, Replies
from switchyard_py.simulator.requests import ChatBody, CompletionBody, SamplingBody, read_body
from switchyard_py.simulator.settings import SimulatorSettings
from switchyard_py.simulator.streaming import EventStream, until_disconnect
from switchyard_py.simulator.tokenizer import decode

_Body = TypeVar("_Body", bound=SamplingBody)


class Engine:
    """One simulated engine: its settings, its calls and what runs them."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self.settings = settings
        self.journal = Journal()
        self.generator = Generator(settings, self.journal)
        self._replies = Replies(settings.replies)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = await self._read(request, ChatBody)
        body.check(self.settings.max_model_len)
        prompt = chat_prompt(body, self.settings)
        thinking = body.thinks(self.settings.thinking)
        name = _request_name(request, body)
        entry = self._start(request, body, f"chatcmpl-{name or random_id()}", len(prompt.ids))
        plans = self._replies.choose(entry.call, name, [Question.of_chat(body, thinking=thinking)])
        job = Job(body, prompt.ids, plans[0], top=(body.top_logprobs or 0) if body.logprobs else 0)
        reply = ChatReply(body, prompt, entry, self.settings, thinking=thinking)
        return await self._answer(request, body, entry, CallFaults(self.settings.faults, entry, name), reply, [job])

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions."""
        body = await self._read(request, CompletionBody)
        body.check(self.settings.max_model_len)
        prompts = completion_prompts(body, self.settings.max_model_len)
        name = _request_name(request, body)
        entry = self._start(request, body, f"cmpl-{name or random_id()}", sum(len(prompt.ids) for prompt in prompts))
        texts = [prompt.text or decode(prompt.ids) for prompt in prompts]
        plans = self._replies.choose(entry.call, name, [Question(body, tail=text, said=text) for text in texts])
        jobs = [
            Job(
                body,
                prompt.ids,
                plans[index],
                top=body.logprobs or 0,
                skip_control_tokens=True,
                first_choice=index * body.choice_count,
            )
            for index, prompt in enumerate(prompts)
        ]
        reply = CompletionReply(body, prompts, entry, self.settings)
        return await self._answer(request, body, entry, CallFaults(self.settings.faults, entry, name), reply, jobs)

    async def _read(self, request: Request, kind: type[_Body]) -> _Body:
        body = await read_body(request, kind)
        if body.model is not None and body.model != self.settings.model:
            raise ModelNotFound(body.model, self.settings.model)
        rank = request.headers.get("x-data-parallel-rank", "0")
        if rank != "0":
            raise BadRequest(f"data_parallel_rank {rank} is out of range [0, 1).")
        return body

    def _start(self, request: Request, body: SamplingBody, request_id: str, prompt_tokens: int) -> Entry:
        streamed = bool(body.stream)
        return self.journal.start(request_id, request.url.path, streamed=streamed, prompt_tokens=prompt_tokens)

    async def _answer(
        self,
        request: Request,
        body: SamplingBody,
        entry: Entry,
        faults: CallFaults,
        reply: ChatReply | CompletionReply,
        jobs: Sequence[Job],
    ) -> Response:
        give_up = partial(entry.end, "aborted")
        try:
            await until_disconnect(request.receive, faults.before(streamed=bool(body.stream)))
            steps = self.generator.run(jobs, entry)
            if body.stream:
                chunks = faults.on_chunks(reply.chunks(steps))
                return EventStream(chunks, self.settings.keep_alive_interval, give_up)
            return faults.on_reply(await until_disconnect(request.receive, reply.collect(steps)))
        except ClientDisconnect:
            give_up()
            # Nobody is left to read this.
            return Response(status_code=499)


def _request_name(request: Request, body: SamplingBody) -> str | None:
    """What the client calls the request; the header goes before the body."""
    name = request.headers.get("x-request-id") or body.request_id
    # A lone surrogate cannot be written in a reply.
    return name.encode("utf-8", "replace").decode() if name else None
