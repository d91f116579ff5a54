"""`/v1/messages/count_tokens`, answered by vLLM's `/tokenize`: nothing is generated, nothing is captured."""

from collections.abc import Mapping

from switchyard_py.dialects.arguments import ArgumentsMemory
from switchyard_py.dialects.messages.request import to_chat
from switchyard_py.engines.vllm import EngineFault
from switchyard_py.rawjson import InvalidJSON, Slice, decode, encode

# What vLLM 0.32 makes a prompt of there.
_PROMPT_FIELDS = ("model", "messages", "tools", "chat_template", "chat_template_kwargs", "mm_processor_kwargs")


def count_tokens_request(fields: Mapping[str, Slice], memory: ArgumentsMemory) -> dict[str, Slice]:
    """The fields of the engine's request, `model` among them.

    Raises:
        RequestRefused: as `to_chat`.
    """
    chat = to_chat(fields, memory)
    asked = {key: chat[key] for key in _PROMPT_FIELDS if key in chat}
    if "reasoning_effort" in chat:
        asked["chat_template_kwargs"] = _template_arguments(chat)
    return asked


def count_tokens_reply(body: bytes) -> bytes:
    """The reply for the engine's.

    Raises:
        EngineFault: the engine's reply has no count.
    """
    try:
        reply = decode(body)
    except InvalidJSON:
        reply = None
    count = reply.get("count") if isinstance(reply, dict) else None
    if not isinstance(count, int):
        raise EngineFault("the engine's reply has no count of tokens")
    return encode({"input_tokens": count})


def _template_arguments(chat: Mapping[str, Slice]) -> bytes:
    """What vLLM 0.32 makes of `reasoning_effort` in a chat request; `/tokenize` does not know that field."""
    effort, given = decode(chat["reasoning_effort"]), decode(chat.get("chat_template_kwargs", b"{}"))
    derived = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    return encode({**derived, **given} if isinstance(given, dict) else given)
