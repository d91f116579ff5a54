"""What a bundle comes to once defaults are merged and references expanded: frozen values the rest of the program reads.

Secrets (API keys, values of extra headers, user info in URLs) never show in a repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

HIDDEN = "***"
SESSION_KEY_MARKER = "sycap-session:"
"""How an API key that names a session begins."""


@dataclass(frozen=True)
class Target:
    """One engine endpoint and the model it serves. Times are in seconds; None means no limit."""

    model: str
    """Served model name; "" on a passthrough route without one: the model the agent asked for is sent."""
    base_url: str = field(repr=False)
    """URL that `/chat/completions` is appended to, without a trailing slash."""
    id: str = ""
    """Name of the target in records and metrics; `<model>@<host[:port]>` unless the bundle names it."""
    api_key: str | None = field(default=None, repr=False)
    format: Literal["openai"] = "openai"
    engine: Literal["vllm"] | None = None
    """Engine whose tokens are captured; None: calls pass through unrecorded."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Keys sent when the agent did not send them."""
    force_body: dict[str, Any] = field(default_factory=dict)
    """Keys sent whatever the agent sent."""
    drop_body: tuple[str, ...] = ()
    """Keys of the agent that are not sent."""
    max_tokens_cap: int | None = None
    extra_headers: dict[str, str] = field(default_factory=dict, repr=False)
    connect_timeout: float = 10
    first_byte_timeout: float | None = None
    idle_timeout: float | None = None
    total_timeout: float | None = None
    retries: int = 0
    """How often a request is sent again that the engine did not get, or refused before it generated anything."""
    retry_budget: float = 60
    """Seconds after the first attempt in which others may begin."""
    on_context_overflow: Literal["error", "empty_length"] = "error"
    """What an agent is answered whose prompt does not fit: the engine's 400, or an empty completion."""
    stream_whitespace: Literal["drop", "as_engine"] = "drop"
    early_headers_after: float = 15

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", f"{self.model or '*'}@{_without_user_info(self.base_url)}")

    @property
    def shown_url(self) -> str:
        """The base URL with user info hidden, fit for logs and error messages."""
        parts = urlsplit(self.base_url)
        user_info = f"{HIDDEN}@" if "@" in parts.netloc else ""
        return f"{parts.scheme}://{user_info}{_without_user_info(self.base_url)}{parts.path}"


def _without_user_info(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


@dataclass(frozen=True)
class Route:
    """A model id agents ask for, and the target that answers it."""

    name: str
    type: Literal["model", "passthrough"]
    target: Target
    aliases: tuple[str, ...] = ()
    default: bool = False
    display_name: str = ""
    description: str | None = None


@dataclass(frozen=True)
class CaptureSettings:
    """Where records go and what they survive."""

    log_dir: Path | None = None
    """Directory of the records; None: the command line's default."""
    durability: Literal["process", "power"] = "process"
    begin_timeout: float = 10
    """Seconds a call waits for a slow store before it is refused."""
    on_store_failure: Literal["refuse", "uncaptured"] = "refuse"
    """What becomes of a call that the store cannot begin."""
    replay_seconds: float = 600
    """How long an answer whose agent had gone is kept in memory for a retry; 0: not at all."""
    replay_max_bytes: int = 256 * 1024 * 1024
    """How much memory such answers may take in all; the oldest are given up first."""
    min_free_bytes: int | None = None
    """Free space below which the proxy is not ready; None: 1 GiB, or 2 % of the file system where that is less."""
    retention_seconds: float | None = None
    """Seconds after its newest file a session is deleted; None: never."""
    retention_unsealed: bool = False
    """Delete sessions that were not sealed as well."""


@dataclass(frozen=True)
class SessionSettings:
    """How calls are tied to sessions."""

    required: bool = False
    """A call without a session is refused."""
    native_ids: tuple[str, ...] | None = None
    """Lower-case names of the headers that carry a harness's own session id, first match wins; None: built-in list."""


@dataclass(frozen=True)
class AuthSettings:
    """Who may call, who may read, and what signs the keys of sessions. Empty: nobody is asked, nothing is signed."""

    caller_keys: tuple[str, ...] = field(default=(), repr=False)
    reader_keys: tuple[str, ...] = field(default=(), repr=False)
    session_secrets: tuple[str, ...] = field(default=(), repr=False)
    """The first signs, all verify."""


@dataclass(frozen=True)
class ServerSettings:
    """Where and how the proxy listens."""

    host: str = "0.0.0.0"  # noqa: S104  agents in containers must reach it; the CLI warns
    port: int = 4000
    workers: int = 1
    log_level: Literal["critical", "error", "warning", "info", "debug", "trace"] = "info"
    max_body_bytes: int = 128 * 1024 * 1024
    drain_seconds: float = 5
    """After the signal to stop: how long it keeps listening, so that load balancers can see it go."""
    grace_seconds: float = 30
    """After the signal to stop: how long calls may run on."""
    access_log: str | None = None
    """Where a line for each call goes: a file name, or `-` for standard error; None: nowhere."""
    agent_stall_seconds: float = 300
    """How long an agent or trainer may take nothing of what waits for it, or send nothing of a body it has begun."""


@dataclass(frozen=True)
class Bundle:
    """A validated routing-profiles file."""

    path: Path
    routes: tuple[Route, ...]
    """In the order of the file."""
    default_route: Route
    """The route marked `default: true`, else the first; only a marked one answers ids that no route answers."""
    capture: CaptureSettings = CaptureSettings()
    sessions: SessionSettings = SessionSettings()
    auth: AuthSettings = AuthSettings()
    server: ServerSettings = ServerSettings()

    @property
    def captured_routes(self) -> tuple[Route, ...]:
        """Routes whose target declares an engine."""
        return tuple(route for route in self.routes if route.target.engine)


@dataclass(frozen=True)
class ServeSettings:
    """Everything one run of the server needs; picklable, so that it reaches worker processes."""

    bundle: Bundle
    log_dir: Path | None
    """Directory of the records, existing; None: nothing is captured."""
    host: str
    port: int
    workers: int
    log_level: str
    access_log: str | None = None
    metrics_dir: Path | None = None
    """Where several workers keep their counts; None: there is one, which keeps them to itself."""
