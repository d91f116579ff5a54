"""`switchyard check --probe`: one small captured call to an engine, and what came back of what was asked for.

From one side alone a field dropped from the request looks like a field dropped from the reply, so the findings say
what was asked and what came back, and blame one way only where the reply proves the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from switchyard_py.capture.call import Generation
from switchyard_py.config import Target
from switchyard_py.engines.vllm import EngineFault, StreamHarvest, Wants, harvest_reply, invalid_reasons, prepare
from switchyard_py.rawjson import decode, encode, split_object
from switchyard_py.refusals import engine_failed, engine_refused
from switchyard_py.routing.catalogue import Catalogue
from switchyard_py.routing.credentials import target_headers
from switchyard_py.upstream import AiohttpUpstream, Reply, SSEReader, Upstream, UpstreamError, UpstreamRequest

Mode = Literal["buffered", "streamed"]
MODES: tuple[Mode, ...] = ("buffered", "streamed")

# Enough for a slow engine, short enough for somebody who waits at a terminal.
PATIENCE_SECONDS = 60.0
MAX_REPLY_BYTES = 16 * 1024 * 1024
_QUESTION = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one call brought back: numbers of ids and log-probs, and the faults in words; complete without faults."""

    mode: Mode
    prompt_token_ids: int = 0
    generation_token_ids: int = 0
    generation_log_probs: int = 0
    faults: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        if self.complete:
            return (
                f"complete: {self.prompt_token_ids} prompt ids, {self.generation_token_ids} generated ids, "
                f"{self.generation_log_probs} log-probs, counts agree with usage"
            )
        return "not complete: " + "; ".join(self.faults)


async def probe(target: Target) -> list[Finding]:
    """Make the engine of `target` answer one call buffered and one streamed; a finding for each. Raises nothing."""
    upstream = AiohttpUpstream()
    try:
        return [await _probe(upstream, target, mode) for mode in MODES]
    finally:
        await upstream.close()


async def _probe(upstream: Upstream, target: Target, mode: Mode) -> Finding:
    try:
        model = target.model or await _any_model(upstream, target)
        reply = await upstream.send(_request(target, model, mode))
        try:
            if reply.status != 200:
                refused = engine_refused(reply.status, reply.headers, await reply.read(MAX_REPLY_BYTES), target)
                hint = "; does base_url end as the engine's API does, in /v1?" if reply.status == 404 else ""
                return Finding(mode, faults=(f"{refused} (HTTP {reply.status}){hint}",))
            generation = await _generation(reply, mode)
        finally:
            reply.close()
    except (UpstreamError, EngineFault) as error:
        return Finding(mode, faults=(str(engine_failed(error, target)),))
    choice = generation.choices[0]
    return Finding(
        mode,
        _length(decode(generation.prompt_ids)),
        _length(choice.token_ids),
        _length(choice.log_probs),
        tuple(_faults(invalid_reasons(generation), mode)),
    )


async def _any_model(upstream: Upstream, target: Target) -> str:
    catalogue = Catalogue(upstream)
    try:
        names = await catalogue.names(target)
    finally:
        await catalogue.close()
    if not names:
        raise EngineFault("the route names no model, and the engine lists none at /models")
    return names[0]


def _request(target: Target, model: str, mode: Mode) -> UpstreamRequest:
    question = encode({**_QUESTION, "stream": mode == "streamed"})
    prepared = prepare(split_object(question), question, model, target, captured=True)
    return UpstreamRequest(
        "POST",
        prepared.endpoint.url(target.base_url),
        [*target_headers(target), ("content-type", "application/json")],
        prepared.body,
        connect_timeout=target.connect_timeout,
        total_timeout=target.total_timeout or PATIENCE_SECONDS,
    )


async def _generation(reply: Reply, mode: Mode) -> Generation:
    streamed = reply.headers.get("content-type", "").startswith("text/event-stream")
    if streamed != (mode == "streamed"):
        kind = "a stream" if streamed else "a whole reply"
        raise EngineFault(f"the engine was asked for a {mode} reply and sent {kind}")
    if not streamed:
        return harvest_reply(await reply.read(MAX_REPLY_BYTES), Wants())[1]
    harvest, reader = StreamHarvest(Wants()), SSEReader()
    async for data in reply.chunks():
        for event in reader.feed(data):
            if event.data is not None and not harvest.done:
                harvest.feed(event.data)
    return harvest.end()


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


def _faults(reasons: list[str], mode: Mode) -> list[str]:
    """Say what is behind the reasons why a record of this reply would be invalid."""
    either_way = "the parameter is dropped on the way to the engine, or the answer to it on the way back"
    faults = []
    no_ids = [reason for reason in ("no_prompt_token_ids", "no_generation_token_ids") if reason in reasons]
    if len(no_ids) == 2:
        faults.append(
            "asked with return_token_ids: true, neither prompt_token_ids nor token_ids came back: "
            f"{either_way}, or the engine is older than vLLM 0.10.2"
        )
    elif no_ids:
        lost, kept = "prompt_token_ids", "token_ids"
        if no_ids == ["no_generation_token_ids"]:
            lost, kept = kept, lost
        faults.append(f"{lost} did not come back, but {kept} did: {lost} is dropped on the way back")
    if "no_generation_log_probs" in reasons:
        faults.append(f"asked with logprobs: true and top_logprobs, no logprobs came back: {either_way}")
    if "no_usage" in reasons:
        faults.append(
            f"asked with stream_options.include_usage: true, no usage came back: {either_way}"
            if mode == "streamed"
            else "no usage came back, which needs no asking: it is dropped on the way back"
        )
    explained = {*no_ids, "no_generation_log_probs", "no_usage"}
    return faults + [reason.replace("_", " ") for reason in reasons if reason not in explained]
