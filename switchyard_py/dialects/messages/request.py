"""From a Messages request to the chat-completions request the engine gets."""

from collections.abc import Mapping

from switchyard_py.dialects.arguments import ArgumentsMemory
from switchyard_py.dialects.messages.history import chat_messages
from switchyard_py.dialects.messages.tools import chat_tools, tool_choice
from switchyard_py.dialects.translation import as_object, as_text, refusal
from switchyard_py.engines.vllm import wants_stream
from switchyard_py.engines.vllm.message import is_null
from switchyard_py.rawjson import Slice, decode, join_object

# Without meaning for an engine. Any other field that is not translated reaches it as it is: agents can set sampling
# parameters of vLLM that Anthropic has not, and vLLM ignores what it does not know.
_NOT_FOR_THE_ENGINE = frozenset({
    "betas", "cache_control", "container", "context_management", "diagnostics", "inference_geo", "mcp_servers",
    "metadata", "service_tier", "speed", "stream_options", "user_profile_id", "workspace_id",
})  # fmt: skip
_TRANSLATED = frozenset({
    "messages", "output_config", "output_format", "stop_sequences", "system", "thinking", "tool_choice", "tools",
})  # fmt: skip

THREAD = "thread"
"""The field of a request that leaves the conversation so far to a server that has kept it."""

# With both, vLLM tells the size of the prompt in its first chunk, where `message_start` wants it.
_STREAM_OPTIONS = b'{"include_usage":true,"continuous_usage_stats":true}'
_NO_THINKING = b'"none"'


def to_chat(fields: Mapping[str, Slice], memory: ArgumentsMemory) -> dict[str, Slice]:
    """The fields of the chat-completions request that says what the Messages request `fields` says.

    `model` and the session's field are among them. Fields that are null are left out.

    Raises:
        RequestRefused: something is not as the Messages API has it, or cannot be given to the engine.
    """
    given = {key: value for key, value in fields.items() if not is_null(value)}
    if THREAD in given:
        raise refusal(THREAD, "cannot be given: no conversation is kept here. Send all messages with each request.")
    chat = {key: value for key, value in given.items() if key not in _TRANSLATED and key not in _NOT_FOR_THE_ENGINE}
    chat["messages"] = chat_messages(given.get("system"), given.get("messages"), memory)
    if "stop_sequences" in given:
        chat["stop"] = given["stop_sequences"]
    tools = chat_tools(given.get("tools"), given.get("messages"))
    if tools is not None:
        chat["tools"] = tools
    if "tool_choice" in given:
        chat.update(tool_choice(given["tool_choice"], has_tools=tools is not None))
    chat.update(_effort_and_format(given))
    if wants_stream(chat):
        chat["stream_options"] = _STREAM_OPTIONS
    return chat


def _effort_and_format(given: Mapping[str, Slice]) -> dict[str, Slice]:
    """How hard to think and what form to answer in.

    vLLM reads `reasoning_effort: "none"` as not to think at all, where the model's template can be told so. That
    thinking is enabled or adaptive, and its budget, is left to the template: a budget would make vLLM insert tokens
    which were not sampled.
    """
    written: dict[str, Slice] = {}
    config = as_object(given.get("output_config", b"{}"), "output_config")
    if "effort" in config:
        written["reasoning_effort"] = config["effort"]
    thinking = as_object(given.get("thinking", b"{}"), "thinking")
    if decode(thinking.get("type")) == "disabled":
        written["reasoning_effort"] = _NO_THINKING
    form = config.get("format", given.get("output_format"))
    if form is not None:
        written["response_format"] = _response_format(as_object(form, "output_config.format"))
    return written


def _response_format(form: dict[str, Slice]) -> bytes:
    kind = as_text(form.get("type"), "output_config.format.type")
    if "schema" not in form:
        return join_object({"type": kind})
    # vLLM wants a name.
    return join_object({"type": kind, "json_schema": join_object({"name": kind, "schema": form["schema"]})})
