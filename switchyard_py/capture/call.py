"""What is known of one call: what was asked for, what the engine generated, and how the call went.

Plain data, filled by the engine and dialect rooms and read by the record builder. Slices are raw JSON text.
"""

from dataclasses import dataclass, field

from switchyard_py.rawjson import Slice


@dataclass(slots=True)
class Asked:
    """A request as it reached the engine, in chat-completions form, as far as a record keeps it.

    `flaws` are the reasons why no reply to it can be trained on.
    """

    messages: Slice | None = None
    tools: Slice | None = None
    tool_choice: Slice | None = None
    sampling: dict[str, Slice] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    constrained: bool = False
    token_limit: int | None = None
    flaws: tuple[str, ...] = ()


@dataclass(slots=True)
class Choice:
    """One choice of a reply.

    `token_ids` is a list of integers, or the engine's own JSON text where that is something else; `flaws` then says
    what. `log_probs` has None where an entry was not a number. `log_probs_shown` is what the engine's chunks have of
    them, kept only for an agent that asked to see it.
    """

    message: dict[str, Slice] = field(default_factory=dict)
    token_ids: list[int] | Slice | None = None
    log_probs: list[float | None] | None = None
    log_probs_shown: list[Slice] = field(default_factory=list)
    finish_reason: Slice | None = None
    stop_reason: Slice | None = None
    weight_versions: Slice | None = None
    flaws: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Generation:
    """A reply of the engine as far as a record keeps it. `prompt_ids` is the engine's own JSON text.

    `prompts_differ`: it reported others as well.
    """

    id: Slice | None = None
    created: Slice | None = None
    model: Slice | None = None
    system_fingerprint: Slice | None = None
    usage: Slice | None = None
    prompt_ids: Slice | None = None
    prompts_differ: bool = False
    choices: list[Choice] = field(default_factory=list)


@dataclass(slots=True)
class Course:
    """How the call went, seen from the proxy. Times are UTC seconds since the epoch."""

    dialect: str
    route: str
    target: str
    engine: str
    started_at: float
    streamed: bool = False
    first_token_at: float | None = None
    finished_at: float | None = None
    agent: dict[str, str] = field(default_factory=dict)
    kind: str = "main"
    client_request_id: str | None = None
    user_agent: str | None = None
    changed_in_reply: tuple[str, ...] = ()
    retry_of: str | None = None
