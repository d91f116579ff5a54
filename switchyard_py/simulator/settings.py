"""What a simulator is told at start: model, timing, replies and faults."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)


class SimulatorSettingsError(ValueError):
    """A setting, script or fault that cannot be used; the text says where and what to write instead."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class When(_Strict):
    """Conditions on a call; all that are given must hold."""

    call: PositiveInt | None = None
    """Number of the generating call since start, from 1."""
    request_id: str | None = None
    """The `X-Request-Id` header or `request_id` body field."""
    contains: str | None = None
    """Text somewhere in the prompt, after the last assistant turn."""
    tool: str | None = None
    """Name of a tool that may be called."""

    def holds(self, call: int, request_id: str | None, tail: str, tools: Collection[object] = ()) -> bool:
        """Whether the conditions hold for this call, whose prompt ends with `tail` and which may call `tools`."""
        return (
            (self.call is None or self.call == call)
            and (self.request_id is None or self.request_id == request_id)
            and (self.contains is None or self.contains in tail)
            and (self.tool is None or self.tool in tools)
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is no condition at all."""
        return self == When()


class ScriptedCall(_Strict):
    """A tool call of a scripted reply; a string of arguments is written as it is, valid JSON or not."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)


class ScriptedReply(_Strict):
    """A reply for the calls that satisfy `when`; without `when`, for one call, in file order."""

    when: When = When()
    thinking: str | None = None
    """Written only where the request has thinking on."""
    content: str | None = None
    tool_calls: tuple[ScriptedCall, ...] = ()
    raw: str | None = None
    """The exact text the model emits, special tokens spelled out; excludes the other three."""

    @model_validator(mode="after")
    def _says_something(self) -> "ScriptedReply":
        parts = self.thinking is not None or self.content is not None or bool(self.tool_calls)
        if parts == (self.raw is not None):
            raise ValueError("give either raw, or any of thinking, content and tool_calls")
        return self


class Fault(_Strict):
    """Something that goes wrong in the calls that satisfy `call` and `request_id`; without either, in every call."""

    call: PositiveInt | None = None
    request_id: str | None = None
    status: Annotated[int, Field(ge=400, le=599)] | None = None
    """Refuse the call with this status, in the engine's error shape."""
    delay: NonNegativeFloat = 0.0
    """Seconds before anything is answered."""
    cut_after: Annotated[int, Field(ge=0)] | None = None
    """Close the connection after this many chunks; a reply that does not stream breaks off in the middle."""
    die_after: Annotated[int, Field(ge=0)] | None = None
    """After this many chunks, the error event and [DONE] of a dead engine; a reply that does not stream is a 500."""
    strip: Annotated[tuple[str, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)] = ()
    """Keys removed from the reply wherever they occur, as a proxy in between would."""

    @model_validator(mode="after")
    def _does_something(self) -> "Fault":
        if self == Fault.model_construct(call=self.call, request_id=self.request_id):
            raise ValueError("give one of status, delay, cut_after, die_after, strip")
        return self

    def applies(self, call: int, request_id: str | None) -> bool:
        """Whether the fault strikes this call."""
        return When(call=self.call, request_id=self.request_id).holds(call, request_id, "")


class Script(_Strict):
    """A script file: replies and faults."""

    replies: tuple[ScriptedReply, ...] = ()
    faults: tuple[Fault, ...] = ()


class SimulatorSettings(_Strict):
    """Everything about a simulator except its address. Times in seconds."""

    model: str = "simulated"
    max_model_len: PositiveInt = 131_072
    """Context length in tokens; a token is one byte of UTF-8 here."""
    api_key: str | None = None
    """Bearer token that everything under /v1 then asks for."""
    thinking: bool = True
    """Whether a request that does not set `enable_thinking` gets thinking, as with Qwen3."""
    keep_thinking: bool = False
    """Keep the thinking of earlier turns in the prompt instead of stripping it as Qwen3's template does."""
    ttft: NonNegativeFloat = 0.0
    tokens_per_second: PositiveFloat | None = None
    slots: PositiveInt | None = None
    """Calls that generate at the same time; the others wait in line."""
    keep_alive_interval: PositiveFloat | None = None
    """Silence in a stream after which a comment line is sent."""
    prompt_tokens_details: bool = False
    """Report `prompt_tokens_details` in the usage, as `--enable-prompt-tokens-details` does."""
    per_request_metrics: bool = False
    """Report `metrics`, as `--enable-per-request-metrics` does."""
    replies: tuple[ScriptedReply, ...] = ()
    faults: tuple[Fault, ...] = ()


def load_script(path: Path) -> Script:
    """Read a YAML or JSON script file. Raises SimulatorSettingsError naming the file and the place in it."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SimulatorSettingsError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SimulatorSettingsError(f"{path}: not YAML or JSON: {error}".replace("\n", " ")) from error
    try:
        return Script.model_validate_json(json.dumps(document if document is not None else {}))
    except (ValidationError, TypeError) as error:
        raise SimulatorSettingsError(f"{path}: {_describe(error)}") from error


def parse_fault(text: str) -> Fault:
    """A fault from `key=value,key=value`, for example `call=3,status=503`; keys as in a script's `faults`."""
    fields: dict[str, Any] = {}
    for pair in text.split(","):
        key, separator, value = pair.partition("=")
        if not separator:
            raise SimulatorSettingsError(f"{text!r}: write key=value pairs, for example call=3,status=503")
        if key not in Fault.model_fields:
            raise SimulatorSettingsError(f"{text!r}: unknown key {key!r}, write one of {', '.join(Fault.model_fields)}")
        if key == "strip":
            fields.setdefault("strip", []).append(value)
        else:
            fields[key] = value
    try:
        return Fault.model_validate(fields)
    except ValidationError as error:
        raise SimulatorSettingsError(f"{text!r}: {_describe(error)}") from error


def compose_settings(script: Path | None, faults: Sequence[str], **options: Any) -> SimulatorSettings:
    """Settings from a script file, faults as text and single values. Raises SimulatorSettingsError."""
    loaded = load_script(script) if script else Script()
    struck = (*loaded.faults, *(parse_fault(text) for text in faults))
    try:
        return SimulatorSettings(replies=loaded.replies, faults=struck, **options)
    except ValidationError as error:
        raise SimulatorSettingsError(_describe(error)) from error


def _describe(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return f"only JSON values can be used: {error}"
    first = error.errors(include_url=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    problem = "unknown key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
    return f"{place}: {problem}" if place else problem
