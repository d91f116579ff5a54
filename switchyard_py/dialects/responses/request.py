"""From a Responses request to the chat-completions request the engine gets."""

from collections.abc import Mapping

from switchyard_py.dialects.arguments import ArgumentsMemory
from switchyard_py.dialects.responses.history import chat_messages
from switchyard_py.dialects.responses.tools import Namespaced, offer
from switchyard_py.dialects.translation import as_array, as_object, as_text, refusal
from switchyard_py.engines.vllm import wants_stream
from switchyard_py.engines.vllm.message import is_null
from switchyard_py.rawjson import TRUE, Slice, decode, join_object

# Without meaning for an engine. Any other field that is not translated reaches it as it is: agents can set sampling
# parameters of vLLM that OpenAI has not, and vLLM ignores what it does not know.
_NOT_FOR_THE_ENGINE = frozenset({
    "background", "client_metadata", "context_management", "include", "max_tool_calls", "metadata", "moderation",
    "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "service_tier", "store",
    "stream_options", "top_logprobs", "truncation",
})  # fmt: skip
_TRANSLATED = frozenset({"input", "instructions", "max_output_tokens", "reasoning", "text", "tool_choice", "tools"})
_STORED = {
    "previous_response_id": "cannot be followed: this proxy stores no responses. Send the whole conversation as input.",
    "conversation": "cannot be followed: this proxy stores no conversations. Send the whole conversation as input.",
    "prompt": "cannot be filled in: this proxy stores no prompts. Send the prompt itself as instructions or input.",
}

_STREAM_OPTIONS = b'{"include_usage":true}'
_ENCRYPTED = "reasoning.encrypted_content"
_LOG_PROBS = "message.output_text.logprobs"


def to_chat(fields: Mapping[str, Slice], memory: ArgumentsMemory) -> tuple[dict[str, Slice], Mapping[str, Namespaced]]:
    """The fields of the chat-completions request that says what the Responses request `fields` says.

    `model` and the session's field are among them. Fields that are null are left out. With them come the functions of
    namespaces by the names the engine knows.

    Raises:
        RequestRefused: something is not as the Responses API has it, or cannot be given to the engine.
    """
    given = {key: value for key, value in fields.items() if not is_null(value)}
    for key, problem in _STORED.items():
        if key in given:
            raise refusal(key, problem)
    if bytes(given.get("background", b"")) == TRUE:
        raise refusal("background", "cannot be true: this proxy stores no responses. Wait for the answer or stream it.")
    chat = {key: value for key, value in given.items() if key not in _TRANSLATED and key not in _NOT_FOR_THE_ENGINE}
    chat["messages"] = chat_messages(given.get("instructions"), given.get("input"), memory)
    if "max_output_tokens" in given:
        chat["max_tokens"] = given["max_output_tokens"]
    offered = offer(given.get("tools"), given.get("tool_choice"))
    chat.update(offered.fields)
    reasoning = as_object(given.get("reasoning", b"{}"), "reasoning")
    if "effort" in reasoning:
        chat["reasoning_effort"] = reasoning["effort"]
    form = as_object(as_object(given.get("text", b"{}"), "text").get("format", b"{}"), "text.format")
    if form and decode(form.get("type")) != "text":
        chat["response_format"] = _response_format(form)
    if wants_stream(chat):
        chat["stream_options"] = _STREAM_OPTIONS
    return chat, offered.namespaced


def wants_encrypted(fields: Mapping[str, Slice]) -> bool:
    """Whether reasoning is to come with `encrypted_content`.

    Raises:
        RequestRefused: something is to be included that the answer cannot hold.
    """
    if is_null(fields.get("include")):
        return False
    included = [decode(item) for item in as_array(fields["include"], "include")]
    if _LOG_PROBS in included:
        raise refusal("include", f"cannot have {_LOG_PROBS}: read log-probs from the session, or ask as chat.")
    return _ENCRYPTED in included


def _response_format(form: dict[str, Slice]) -> bytes:
    kind = as_text(form.get("type"), "text.format.type")
    if decode(kind) != "json_schema":
        return join_object({"type": kind})
    schema: dict[str, Slice] = {key: form[key] for key in ("name", "description", "schema", "strict") if key in form}
    return join_object({"type": kind, "json_schema": join_object(schema)})
