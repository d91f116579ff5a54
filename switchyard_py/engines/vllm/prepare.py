"""From what the agent asked to what vLLM is asked: capture on, the target's settings applied, the rest untouched.

vLLM 0.10.2 and later return token ids with `return_token_ids` and the sampled token's log-prob with `logprobs: true,
top_logprobs: 0`; with `include_reasoning: false` it would return neither, so that is overridden and honoured in the
reply.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from switchyard_py.capture.call import Asked
from switchyard_py.rawjson import (
    NULL,
    TRUE,
    InvalidJSON,
    Slice,
    decode,
    encode,
    join_array,
    join_object,
    split_array,
    split_object,
)

SESSION_FIELD = "proxy_x_session_id"
_CREDENTIALS = "aws_"
# How the reply is to travel and under which name, not what is to be generated.
_TRANSPORT = frozenset({SESSION_FIELD, "stream", "stream_options", "request_id"})

# Sampling parameters of vLLM's chat request that a record repeats; never an unknown key, which could hold a secret.
SAMPLING_KEYS = (
    "temperature", "top_p", "top_k", "min_p", "seed", "n", "max_tokens", "max_completion_tokens", "min_tokens", "stop",
    "stop_token_ids", "ignore_eos", "include_stop_str_in_output", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "length_penalty", "use_beam_search", "logit_bias", "allowed_token_ids", "bad_words",
    "top_logprobs", "reasoning_effort", "chat_template_kwargs", "parallel_tool_calls", "truncate_prompt_tokens",
    "response_format", "structured_outputs",
)  # fmt: skip

# Set by these, a grammar masks the logits before vLLM takes the log-probs.
_GRAMMARS = (
    "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structural_tag",
)  # fmt: skip
_ECHOED_ARRAYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "token_ids")
_API = "/v1"
_YES = frozenset({"1", "true", "t", "yes", "y", "on"})
_NO = frozenset({"0", "false", "f", "no", "n", "off"})


class Endpoint(Enum):
    """Where vLLM is called, and so the form of its request and reply."""

    CHAT = "/v1/chat/completions"
    TEXT = "/v1/completions"
    TOKENIZE = "/tokenize"
    DETOKENIZE = "/detokenize"

    def url(self, base_url: str) -> str:
        """The address below a base URL, which ends in `/v1` where the engine has its API there."""
        if self.value.startswith(_API):
            return base_url + self.value.removeprefix(_API)
        return base_url.removesuffix(_API) + self.value

    @property
    def generates(self) -> bool:
        """Whether a call makes the engine sample tokens."""
        return self in (Endpoint.CHAT, Endpoint.TEXT)


class TargetSettings(Protocol):
    """The part of a target that shapes the request."""

    @property
    def extra_body(self) -> Mapping[str, Any]: ...
    @property
    def force_body(self) -> Mapping[str, Any]: ...
    @property
    def drop_body(self) -> tuple[str, ...]: ...
    @property
    def max_tokens_cap(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Wants:
    """What the agent itself asked to see of a reply; the rest of what capture adds is taken out again."""

    log_probs: bool = False
    prompt_ids: bool = False
    token_ids: bool = False
    usage: bool = False
    reasoning: bool = True


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready for the engine."""

    endpoint: Endpoint
    body: bytes
    streamed: bool
    wants: Wants
    asked: Asked


def wants_stream(fields: Mapping[str, Slice]) -> bool:
    """Whether vLLM will answer these chat-completions fields with a stream."""
    return _says(fields.get("stream"), _YES)


def generative(fields: Mapping[str, Slice]) -> dict[str, Slice]:
    """The fields that tell what is to be generated: equal in an agent's repeated attempts at one call, which may differ
    in the others."""
    return {key: value for key, value in fields.items() if key not in _TRANSPORT and not key.startswith(_CREDENTIALS)}


def prepare(
    fields: Mapping[str, Slice],
    source: bytes,
    model: str,
    target: TargetSettings,
    *,
    captured: bool,
    endpoint: Endpoint = Endpoint.CHAT,
) -> Prepared:
    """Build the engine's request from the `fields` of its own endpoint, which were cut from `source`.

    `model` is the served model name. With `captured`, ids and log-probs are asked for whatever the agent asked.
    """
    request = _Request(dict(fields))
    request.put("model", encode(model))
    request.drop(SESSION_FIELD)
    for key in [key for key in fields if key.startswith(_CREDENTIALS)]:
        request.drop(key)
    _drop_echoed_arrays(request)
    streamed = wants_stream(fields)
    # Asked for ids, vLLM 0.32 forgets to echo the prompt; such a reply cannot be trained on anyway.
    echoes = endpoint is Endpoint.TEXT and _says(fields.get("echo"), _YES)
    wants = _wants(fields, endpoint, echoes)
    derived = _capture_parameters(fields, wants, streamed, endpoint) if captured and not echoes else {}
    for key, value in derived.items():
        request.put(key, value)
    for key, given in target.extra_body.items():
        if key in derived or key not in fields:
            request.put(key, encode(given))
    for key, given in target.force_body.items():
        request.put(key, encode(given))
    if not streamed and "stream_options" not in fields:
        # vLLM refuses it on a buffered call, and a target's settings cannot tell the calls apart.
        request.drop("stream_options")
    for key in target.drop_body:
        request.drop(key)
    if target.max_tokens_cap is not None and endpoint.generates:
        _cap_tokens(request, target.max_tokens_cap)
    asked = _asked(request)
    if endpoint is Endpoint.TEXT:
        _ask_text(asked, request.fields)
    if echoes:
        asked.flaws += ("echo",)
    return Prepared(endpoint, join_object(request.fields, source), streamed, wants, asked)


class _Request:
    """The fields on their way to the engine, and which of them are no longer the agent's."""

    def __init__(self, fields: dict[str, Slice]) -> None:
        self.fields = fields
        self.changed: dict[str, None] = {}
        self._given = frozenset(fields)

    def put(self, key: str, value: Slice) -> None:
        before = self.fields.get(key)
        self.fields[key] = value
        if before is None or bytes(before) != bytes(value):
            self.changed[key] = None

    def drop(self, key: str) -> None:
        if self.fields.pop(key, None) is None:
            return
        if key in self._given:
            self.changed[key] = None
        else:
            self.changed.pop(key, None)


def _capture_parameters(
    fields: Mapping[str, Slice], wants: Wants, streamed: bool, endpoint: Endpoint
) -> dict[str, Slice]:
    count = "logprobs" if endpoint is Endpoint.TEXT else "top_logprobs"
    top = fields.get(count, NULL)
    parameters: dict[str, Slice] = {
        "logprobs": TRUE,
        count: b"0" if bytes(top) == NULL else top,
        "return_token_ids": TRUE,
    }
    if not wants.reasoning:
        parameters["include_reasoning"] = TRUE
    if streamed and not wants.usage:
        options = fields.get("stream_options", NULL)
        if bytes(options) == NULL:
            options = b"{}"
        if bytes(options).startswith(b"{"):
            parameters["stream_options"] = join_object({**split_object(options), "include_usage": TRUE}, bytes(options))
    return parameters


def _wants(fields: Mapping[str, Slice], endpoint: Endpoint, echoes: bool) -> Wants:
    options = decode(fields.get("stream_options"))
    text = endpoint is Endpoint.TEXT
    reasoning = text or not _says(fields.get("include_reasoning"), _NO)
    ids = _says(fields.get("return_token_ids"), _YES)
    # For a text completion it is a number, and even 0 asks for log-probs.
    log_probs = bytes(fields.get("logprobs", NULL)) != NULL if text else _says(fields.get("logprobs"), _YES)
    return Wants(
        # vLLM 0.32 withholds ids and log-probs together with the reasoning they would give away, not the prompt's ids.
        log_probs=reasoning and log_probs,
        # A stream that echoes has the prompt's ids unasked.
        prompt_ids=ids or echoes,
        token_ids=reasoning and ids,
        usage=isinstance(options, dict) and _says(encode(options.get("include_usage")), _YES),
        reasoning=reasoning,
    )


def _says(value: Slice | None, words: frozenset[str]) -> bool:
    """Whether vLLM reads `value` as one of the spellings of a boolean (pydantic's lax mode)."""
    if value is None:
        return False
    text = bytes(value).strip(b'"').lower().decode("ascii", "replace")
    return (text[:-2] if text in ("1.0", "0.0") else text) in words


def _drop_echoed_arrays(request: _Request) -> None:
    """Agents send back what they found on an assistant message; token arrays in there would reach the chat template."""
    messages = request.fields.get("messages", NULL)
    if not _names_echo(bytes(messages)):
        return
    try:
        entries = split_array(messages)
    except InvalidJSON:
        return
    kept = [_without_echoes(entry, request) for entry in entries]
    if any(new is not old for new, old in zip(kept, entries, strict=True)):
        request.fields["messages"] = join_array(kept)


def _without_echoes(entry: Slice, request: _Request) -> Slice:
    text = bytes(entry)
    if not _names_echo(text) or not text.startswith(b"{"):
        return entry
    fields = split_object(text)
    echoes = [name for name in _ECHOED_ARRAYS if name in fields]
    if not echoes or bytes(fields.get("role", NULL)) != b'"assistant"':
        return entry
    for name in echoes:
        del fields[name]
        request.changed[f"messages.{name}"] = None
    return join_object(fields, text)


def _names_echo(text: bytes) -> bool:
    # All of their names end in one of these; requests are large, and each look costs.
    return b'token_ids"' in text or b'log_probs"' in text


def _cap_tokens(request: _Request, cap: int) -> None:
    limits = [key for key in ("max_tokens", "max_completion_tokens") if decode(request.fields.get(key)) is not None]
    for key in limits or ["max_tokens"]:
        asked = decode(request.fields.get(key))
        if not isinstance(asked, int) or asked > cap:
            request.put(key, encode(cap))


def _asked(request: _Request) -> Asked:
    fields = request.fields
    sampling = {key: fields[key] for key in SAMPLING_KEYS if key in fields}
    limits = [decode(fields.get(key)) for key in ("max_tokens", "max_completion_tokens")]
    # vLLM lets max_completion_tokens win where both are given.
    limit = limits[1] if isinstance(limits[1], int) else limits[0]
    return Asked(
        messages=fields.get("messages"),
        tools=fields.get("tools"),
        tool_choice=fields.get("tool_choice"),
        sampling=sampling,
        changed=tuple(request.changed),
        constrained=_constrained(fields),
        token_limit=limit if isinstance(limit, int) else None,
    )


def _ask_text(asked: Asked, fields: Mapping[str, Slice]) -> None:
    """Put a text completion into chat form: its prompt is one user message, empty where the prompt came as ids."""
    prompt = decode(fields.get("prompt"))
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        (prompt,) = prompt
    asked.messages = encode([{"role": "user", "content": prompt if isinstance(prompt, str) else ""}])
    if isinstance(prompt, list) and len(prompt) > 1 and not all(isinstance(item, int) for item in prompt):
        asked.flaws += ("several_prompts",)


def _constrained(fields: Mapping[str, Slice]) -> bool:
    if any(bytes(fields.get(key, NULL)) != NULL for key in _GRAMMARS):
        return True
    choice = bytes(fields.get("tool_choice", NULL))
    if choice == b'"required"' or choice.startswith(b"{"):
        return True
    response_format = decode(fields.get("response_format"))
    if isinstance(response_format, dict) and response_format.get("type") != "text":
        return True
    tools = fields.get("tools")
    if tools is None or b'"strict"' not in bytes(tools):
        return False
    return any(_strict(tool) for tool in decode(tools) if isinstance(tool, dict))


def _strict(tool: dict[str, Any]) -> bool:
    function = tool.get("function")
    return tool.get("strict") is True or (isinstance(function, dict) and function.get("strict") is True)
