"""What may stand in the file, level by level.

Only keys that are given count: built-in defaults live in `settings`, and the defaults below are never read.
Attributes carry the names of the settings; spellings of the file that differ are validation aliases.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from switchyard_py.config.fields import (
    AccessLog,
    BaseUrl,
    Body,
    CallerKeys,
    Count,
    CountOrZero,
    Directory,
    Durability,
    Format,
    HeaderNames,
    Headers,
    LogLevel,
    Names,
    Port,
    RouteType,
    Seconds,
    SecondsOrZero,
    Secret,
    SessionSecrets,
    Size,
    SizeOrZero,
    Text,
    Variable,
    Variables,
    problem,
)

_NOT_OFFERED = {
    "token_injection": "token injection is not offered, every prompt is rendered by the engine: remove the key",
    "injection_transport": "token injection is not offered: remove the key",
    "tool_parser": "the engine parses replies (vLLM: --tool-call-parser): remove the key",
    "reasoning_parser": "the engine parses replies (vLLM: --reasoning-parser): remove the key",
    "endpoint": "is not offered: give the engine's address as base_url",
    "tuning": "is not offered: put request parameters into extra_body or force_body",
}


class Entry(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shorthand: ClassVar[str | None] = None
    """Key that a bare text stands for."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if isinstance(value, str) and cls.shorthand:
            return {cls.shorthand: value}
        if value is None:  # a key whose children are all commented out
            return {}
        if not isinstance(value, dict):
            raise problem("must be a mapping")
        settings = cls.settings()
        known = sorted(spelling for setting in settings.values() for spelling in setting)
        for key in value:
            if key not in known:
                text = _NOT_OFFERED.get(key) or f"unknown key: {_suggestion(key, known)}"
                raise PydanticCustomError("unknown_key", "{text}", {"text": text, "key": key})
        for setting in settings.values():
            given = [spelling for spelling in setting if spelling in value]
            if len(given) > 1:
                raise problem(f"{' and '.join(given)} are one setting: give one of them")
        return value

    @classmethod
    def settings(cls) -> dict[str, list[str]]:
        """The keys that each setting may stand under in the file, by attribute name."""
        aliases = {name: field.validation_alias for name, field in cls.model_fields.items()}
        return {
            name: [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]
            for name, alias in aliases.items()
        }

    def refuse_both(self, one: str, other: str) -> None:
        """Refuse a mapping that gives two settings of which it may give one."""
        if {one, other} <= self.model_fields_set:
            raise problem(f"{one} and {other} are one setting: give one of them")

    def given(self) -> dict[str, Any]:
        """The settings that this mapping gives, by attribute name."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


def _suggestion(key: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {nearest[0]}?" if nearest else f"known here are {', '.join(known)}"


class TargetDefaults(Entry):
    """Settings of a target, at whatever level. Null turns off what a lower level set, where it can be off."""

    model: Text = ""
    base_url: BaseUrl = ""
    api_key: Secret | None = None
    api_key_env: Variable = ""
    format: Format = Field(default="", validation_alias=AliasChoices("format", "backend_format"))
    engine: Literal["vllm"] | None = Field(default=None, validation_alias=AliasChoices("token_capture_engine"))
    extra_body: Body = {}
    force_body: Body = {}
    drop_body: Names = ()
    max_tokens_cap: Count | None = None
    extra_headers: Headers = {}
    connect_timeout: Seconds = 0
    first_byte_timeout: Seconds | None = None
    idle_timeout: Seconds | None = None
    total_timeout: Seconds | None = Field(
        default=None, validation_alias=AliasChoices("total_timeout", "timeout", "timeout_secs")
    )
    retries: CountOrZero = 0
    retry_budget: Seconds = 0
    on_context_overflow: Literal["error", "empty_length"] = "error"
    stream_whitespace: Literal["drop", "as_engine"] = "drop"
    early_headers_after: SecondsOrZero = 0

    @model_validator(mode="after")
    def _one_key(self) -> TargetDefaults:
        self.refuse_both("api_key", "api_key_env")
        return self


class TargetEntry(TargetDefaults):
    """A target; a bare text is its model."""

    shorthand = "model"

    id: Text = ""


class RouteEntry(TargetDefaults):
    """A route; a bare text is the model of its target."""

    shorthand = "target"

    type: RouteType = Field(default="", validation_alias=AliasChoices("type", "kind"))
    target: TargetEntry = TargetEntry()
    defaults: TargetDefaults = TargetDefaults()
    aliases: Names = ()
    default: bool = False
    display_name: Text = ""
    description: str | None = None


class CaptureEntry(Entry):
    """Where records go and what they survive."""

    log_dir: Directory = Field(default=Path(), validation_alias=AliasChoices("dir"))
    durability: Durability = "process"
    begin_timeout: Seconds = 0
    on_store_failure: Literal["refuse", "uncaptured"] = "refuse"
    replay_seconds: SecondsOrZero = 0
    replay_max_bytes: SizeOrZero = 0
    min_free_bytes: SizeOrZero = 0
    retention_seconds: Seconds | None = None
    retention_unsealed: bool = False


class SessionEntry(Entry):
    """How calls are tied to sessions."""

    required: bool = False
    native_ids: HeaderNames = ()


class AuthEntry(Entry):
    """Who may call, who may read, and what signs the keys of sessions."""

    caller_keys: CallerKeys = ()
    caller_keys_env: Variables = ()
    reader_keys: CallerKeys = ()
    reader_keys_env: Variables = ()
    session_secrets: SessionSecrets = ()
    session_secrets_env: Variables = ()

    @model_validator(mode="after")
    def _one_source(self) -> AuthEntry:
        for name in ("caller_keys", "reader_keys", "session_secrets"):
            self.refuse_both(name, f"{name}_env")
        return self


class ServerEntry(Entry):
    """Where and how the proxy listens."""

    host: Text = ""
    port: Port = 0
    workers: Count = 1
    log_level: LogLevel = "info"
    max_body_bytes: Size = 1
    drain_seconds: SecondsOrZero = 0
    grace_seconds: SecondsOrZero = 0
    access_log: AccessLog = None
    agent_stall_seconds: Seconds = 0


class BundleEntry(Entry):
    """The whole file."""

    routes: dict[Text, RouteEntry] = {}
    defaults: TargetDefaults = TargetDefaults()
    capture: CaptureEntry = CaptureEntry()
    sessions: SessionEntry = SessionEntry()
    auth: AuthEntry = AuthEntry()
    server: ServerEntry = ServerEntry()
