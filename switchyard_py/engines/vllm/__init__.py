"""vLLM: switch capture on, take its fruits out of the reply, prove that they are complete."""

from switchyard_py.engines.vllm.answer import answer_chunks, buffered_answer
from switchyard_py.engines.vllm.harvest import DONE, Chunk, EngineFault, Part, StreamHarvest, harvest_reply, message_of
from switchyard_py.engines.vllm.overflow import empty_completion, is_context_overflow
from switchyard_py.engines.vllm.prepare import (
    SESSION_FIELD,
    Endpoint,
    Prepared,
    Wants,
    generative,
    prepare,
    wants_stream,
)
from switchyard_py.engines.vllm.proof import invalid_reasons
from switchyard_py.engines.vllm.whitespace import WhitespaceHold

__all__ = [
    "DONE",
    "SESSION_FIELD",
    "Chunk",
    "Endpoint",
    "EngineFault",
    "Part",
    "Prepared",
    "StreamHarvest",
    "Wants",
    "WhitespaceHold",
    "answer_chunks",
    "buffered_answer",
    "empty_completion",
    "generative",
    "harvest_reply",
    "invalid_reasons",
    "is_context_overflow",
    "message_of",
    "prepare",
    "wants_stream",
]
