"""Take ids and log-probs out of vLLM's replies and leave what it would have said without them; sans-IO.

Facts (vLLM 0.32, read off a running server): `prompt_token_ids` stands at the top level of a buffered reply and of
each choice's role chunk; `token_ids` and `logprobs.content` stand in the choice; one chunk may hold several tokens.
In a text completion `prompt_token_ids` stand in the choice, and log-probs in `logprobs.token_logprobs`.
Tokens without visible text get a chunk with an empty delta only because ids or log-probs were asked for. With
`include_usage` the `system_fingerprint` stands on the usage chunk, without it on every finish chunk.
"""

import sys
from dataclasses import dataclass, field

import msgspec

from switchyard_py.capture.call import Choice, Generation
from switchyard_py.engines.vllm.message import MessageBuilder, drop_reasoning, hide_reasoning, is_null, kept_message
from switchyard_py.engines.vllm.prepare import Endpoint, Wants
from switchyard_py.engines.vllm.proof import TOKEN_IDS
from switchyard_py.rawjson import (
    NULL,
    InvalidJSON,
    Slice,
    check_utf8,
    decode,
    join_array,
    join_object,
    split_object,
    split_objects,
)

DONE = b"[DONE]"
_ENVELOPE = ("id", "created", "model", "system_fingerprint", "usage")


class EngineFault(Exception):
    """A reply that is no answer: `given` is the engine's own error body where it sent one, `{"error": {...}}`."""

    def __init__(self, message: str, given: bytes | None = None) -> None:
        super().__init__(message)
        self.given = given


class _LogProb(msgspec.Struct):
    logprob: float


class _LogProbs(msgspec.Struct):
    content: list[_LogProb] | None = None
    token_logprobs: list[float | None] | None = None


_LOG_PROBS = msgspec.json.Decoder(_LogProbs)


@dataclass(slots=True)
class Part:
    """One choice inside a chunk, as the agent may see it. `content` is its decoded text, None where there is none."""

    index: int
    fields: dict[str, Slice]
    delta: dict[str, Slice]
    content: str | None
    finished: bool

    @property
    def calls_tool(self) -> bool:
        return bytes(self.delta.get("tool_calls", NULL)) not in (NULL, b"[]") or not is_null(
            self.delta.get("function_call")
        )


@dataclass(slots=True)
class Chunk:
    """One event of a stream as vLLM would have sent it without capture."""

    fields: dict[str, Slice]
    parts: list[Part] = field(default_factory=list)

    def encode(self) -> bytes:
        """The JSON text of the chunk."""
        if self.parts:
            for part in self.parts:
                if "delta" in part.fields:
                    part.fields["delta"] = join_object(part.delta)
            self.fields["choices"] = join_array(join_object(part.fields) for part in self.parts)
        return join_object(self.fields)

    @property
    def finishes(self) -> bool:
        return any(part.finished for part in self.parts)


def harvest_reply(body: bytes, wants: Wants, endpoint: Endpoint = Endpoint.CHAT) -> tuple[bytes, Generation]:
    """Split a buffered reply of an endpoint into what the agent gets and what the engine generated.

    Raises:
        EngineFault: the body is not a JSON object with at least one choice, all of them with a finish reason.
    """
    try:
        fields = split_object(check_utf8(body))
        choices = _choices(fields)
        generation = Generation()
        _take_envelope(generation, fields)
        _take_prompt(generation, fields, wants)
        for choice in choices:
            if endpoint is Endpoint.TEXT:
                message = _text_message(choice)
                _take_prompt(generation, choice, wants)
            else:
                message = _inner(choice, "message")
            taken = Choice(message=kept_message(message), flaws=[] if message else ["no_message"])
            _take_tokens(taken, choice, wants)
            generation.choices.append(taken)
            if not wants.reasoning and message:
                hide_reasoning(message)
                choice["message"] = join_object(message, body)
    except InvalidJSON as error:
        raise EngineFault(f"the engine's reply cannot be read: {error}") from None
    _check_finished(generation, "reply")
    fields["choices"] = join_array(join_object(choice, body) for choice in choices)
    return join_object(fields, body), generation


class StreamHarvest:
    """The same for a stream: feed it the data of each event, then tell it that the stream ended."""

    def __init__(self, wants: Wants, endpoint: Endpoint = Endpoint.CHAT, *, drops_whitespace: bool = True) -> None:
        self.done = False
        self._text = endpoint is Endpoint.TEXT
        self._drops_whitespace = drops_whitespace
        self._wants = wants
        self._generation = Generation()
        self._messages: dict[int, MessageBuilder] = {}
        self._ending: list[Chunk] | None = None

    @property
    def generation(self) -> Generation:
        """What has been generated so far."""
        for index, message in self._messages.items():
            self._choice(index).message = message.message()
        return self._generation

    def feed(self, data: bytes) -> list[Chunk]:
        """Take one event's data; give the chunks the agent may see now.

        From the first finish chunk on they are kept until `[DONE]`, because the usage chunk may bring a fingerprint.
        What follows `[DONE]` is none of the reply.

        Raises:
            EngineFault: an error event, or data that is not a chunk.
        """
        if self.done:
            return []
        if data.strip() == DONE:
            self.done = True
            chunks, self._ending = self._ending or [], None
            return chunks
        try:
            fields = split_object(check_utf8(data))
            chunk = self._take(fields, _choices(fields))
        except InvalidJSON as error:
            raise EngineFault(f"an event of the engine's stream cannot be read: {error}") from None
        if chunk is None:
            return []
        if self._ending is None and not chunk.finishes:
            return [chunk]
        self._ending = [*(self._ending or []), chunk]
        return []

    def end(self) -> Generation:
        """The stream ended: what was generated in all.

        Raises:
            EngineFault: it ended before its time: without `[DONE]`, without a choice, or with an unfinished one.
        """
        if not self.done:
            raise EngineFault("the engine's stream ended early")
        generation = self.generation
        _check_finished(generation, "stream")
        return generation

    def _take(self, fields: dict[str, Slice], choices: list[dict[str, Slice]]) -> Chunk | None:
        _take_envelope(self._generation, fields)
        _take_prompt(self._generation, fields, self._wants)
        if not choices:
            return self._take_usage(fields)
        if not self._wants.usage:
            # With continuous_usage_stats, which vLLM ignores without include_usage, every chunk has one.
            fields.pop("usage", None)
        parts = [self._take_part(choice) for choice in choices]
        asked_for = self._text or self._wants.token_ids or self._wants.log_probs
        shown = [part for part in parts if part.delta or part.finished or asked_for]
        return Chunk(fields, shown) if shown else None

    def _take_usage(self, fields: dict[str, Slice]) -> Chunk | None:
        if self._wants.usage or is_null(fields.get("usage")):
            return Chunk(fields)
        fingerprint = fields.get("system_fingerprint")
        for chunk in self._ending or []:
            if fingerprint is not None and chunk.finishes:
                chunk.fields["system_fingerprint"] = fingerprint
        return None

    def _take_part(self, fields: dict[str, Slice]) -> Part:
        index = decode(fields.get("index", b"0"))
        if not isinstance(index, int) or not 0 <= index <= len(self._messages) + 1024:
            raise InvalidJSON("a choice has no usable index")
        if self._text:
            delta = _text_message(fields)
            _take_prompt(self._generation, fields, self._wants)
        else:
            delta = _inner(fields, "delta")
        if index not in self._messages:
            self._messages[index] = MessageBuilder(drops_whitespace=self._drops_whitespace)
        message = self._messages[index]
        content = message.take(delta)
        if not self._wants.reasoning:
            drop_reasoning(delta)
        choice = self._choice(index)
        if message.malformed:
            choice.flaws.append("message_malformed")
        _take_tokens(choice, fields, self._wants)
        return Part(index, fields, delta, content, finished=not is_null(fields.get("finish_reason")))

    def _choice(self, index: int) -> Choice:
        choices = self._generation.choices
        while len(choices) <= index:
            choices.append(Choice())
        return choices[index]


def _choices(fields: dict[str, Slice]) -> list[dict[str, Slice]]:
    """The choices of a reply or chunk; an error in their place is raised as a fault."""
    if not is_null(fields.get("error")):
        given = join_object({"error": fields["error"]})
        message = message_of(given)
        if message is not None:
            raise EngineFault(message or "the engine reported an error", given)
        # In another shape agents would not take it for an error, or not find what it says.
        text = decode(fields["error"])
        raise EngineFault(
            f"the engine reported an error: {text}" if isinstance(text, str) else "the engine reported an error"
        )
    return [] if is_null(fields.get("choices")) else split_objects(fields["choices"])


def message_of(body: bytes) -> str | None:
    """The text of an error body in the OpenAI shape, `{"error": {"message": ...}}`; None where it has another shape."""
    try:
        value = decode(body)
    except InvalidJSON:
        return None
    error = value.get("error") if isinstance(value, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else None


def _take_envelope(generation: Generation, fields: dict[str, Slice]) -> None:
    for key in _ENVELOPE:
        if not is_null(fields.get(key)):
            setattr(generation, key, fields[key])


def _inner(choice: dict[str, Slice], key: str) -> dict[str, Slice]:
    return {} if is_null(choice.get(key)) else split_object(choice[key])


def _text_message(choice: dict[str, Slice]) -> dict[str, Slice]:
    """The text of a text completion as a message."""
    return {} if is_null(choice.get("text")) else {"content": choice["text"]}


def _take_prompt(generation: Generation, fields: dict[str, Slice], wants: Wants) -> None:
    """Keep the first prompt's ids found in a reply, chunk or choice and hide them where they were not asked for."""
    ids = fields.get("prompt_token_ids", NULL)
    if not is_null(ids):
        generation.prompt_ids = generation.prompt_ids or ids
        generation.prompts_differ |= bytes(ids) != bytes(generation.prompt_ids)
    _hide(fields, "prompt_token_ids", wanted=wants.prompt_ids)


def _take_tokens(choice: Choice, fields: dict[str, Slice], wants: Wants) -> None:
    """Add the ids, log-probs and reasons found in one choice (or one chunk of it) and hide what was not asked for."""
    ids, log_probs = fields.get("token_ids", NULL), fields.get("logprobs", NULL)
    if bytes(ids) != NULL:
        try:
            found = TOKEN_IDS.decode(ids)
        except msgspec.DecodeError:
            choice.flaws.append("generation_token_ids_malformed")
            choice.token_ids = choice.token_ids or ids
        else:
            if isinstance(choice.token_ids, list):
                choice.token_ids += found
            else:
                choice.token_ids = choice.token_ids or found
    if bytes(log_probs) != NULL:
        values = _log_probs(log_probs)
        if values is None or None in values:
            choice.flaws.append("generation_log_probs_malformed")
        if choice.log_probs is None:
            choice.log_probs = values
        else:
            choice.log_probs += values or []
        if wants.log_probs:
            choice.log_probs_shown.append(log_probs)
    if not is_null(fields.get("finish_reason")):
        choice.finish_reason, choice.stop_reason = fields["finish_reason"], fields.get("stop_reason")
    if not is_null(fields.get("weight_versions")):
        choice.weight_versions = fields["weight_versions"]
    _hide(fields, "token_ids", wanted=wants.token_ids)
    _hide(fields, "logprobs", wanted=wants.log_probs)


def _log_probs(value: Slice) -> list[float | None] | None:
    """The numbers of `logprobs`; None for an entry that is not a finite number, None for anything but a list."""
    try:
        strict = _LOG_PROBS.decode(value)
    except msgspec.DecodeError:
        loose = decode(value)
        found = loose if isinstance(loose, dict) else {}
        if isinstance(entries := found.get("content"), list):
            return [_number(entry.get("logprob") if isinstance(entry, dict) else None) for entry in entries]
        plain = found.get("token_logprobs")
        return [_number(entry) for entry in plain] if isinstance(plain, list) else None
    return strict.token_logprobs if strict.content is None else [entry.logprob for entry in strict.content]


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        # JSON has integers beyond a double, which `math.isfinite` fails on.
        return value if abs(value) <= sys.float_info.max else None
    return None


def _hide(fields: dict[str, Slice], key: str, *, wanted: bool) -> None:
    if not wanted and key in fields:
        fields[key] = NULL


def _check_finished(generation: Generation, what: str) -> None:
    if not generation.choices:
        raise EngineFault(f"the engine's {what} has no choices")
    if any(is_null(choice.finish_reason) for choice in generation.choices):
        raise EngineFault(f"the engine's {what} has no finish reason")
