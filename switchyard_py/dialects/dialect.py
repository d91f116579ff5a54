"""What the path of a call needs of a dialect, and what all dialects read alike."""

from collections.abc import Mapping
from typing import Protocol

from switchyard_py.dialects.arguments import ArgumentsMemory
from switchyard_py.engines.vllm import Chunk, Endpoint, is_context_overflow
from switchyard_py.errors import EngineRefused, Kind, RequestRefused, SwitchyardError
from switchyard_py.rawjson import InvalidJSON, Slice, check_text, decode, split_object


class AnswerStream(Protocol):
    """Writes one streamed answer: live what the agent may see at once, and the tail when the record is committed."""

    def live(self, chunk: Chunk) -> bytes:
        """The events to send now, b"" for none.

        Raises:
            EngineFault: the chunk cannot be told in the dialect.
        """

    def tail(self) -> bytes:
        """Everything that was kept back, and the end of the stream."""

    def error_event(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as the end of the stream, in place of the tail."""


class Inquiry(Protocol):
    """One request as the engine is asked it, and the way back of its answer."""

    @property
    def fields(self) -> Mapping[str, Slice]:
        """The request at the engine's endpoint; `model` and the session field are still the agent's."""

    def reply(self, answer: bytes, call_id: str) -> bytes:
        """The engine's buffered reply as the agent gets it. `call_id` is a UUID; ids that are ours are made of it.

        Raises:
            EngineFault: it cannot be told in the dialect.
        """

    def stream(self, call_id: str) -> AnswerStream:
        """A new writer for the engine's streamed reply."""


class Dialect(Protocol):
    """A wire format that agents speak."""

    @property
    def name(self) -> str:
        """As records and metrics have it."""

    @property
    def path(self) -> str:
        """Where agents call."""

    @property
    def endpoint(self) -> Endpoint:
        """Where the engine is called. A call that generates nothing is never captured."""

    @property
    def verbatim(self) -> bool:
        """Whether the engine speaks it too, so that a call nobody captures is passed on byte for byte."""

    @property
    def has_user_id(self) -> bool:
        """Whether a harness may put its session id into `metadata.user_id`."""

    @property
    def request_id_headers(self) -> tuple[bytes, ...]:
        """The headers in which agents look for the id of their call."""

    def read(self, body: bytes) -> dict[str, Slice]:
        """Cut a request into its fields.

        Raises:
            RequestRefused: it is no JSON object, or one that asks nothing.
        """

    def inquire(self, fields: Mapping[str, Slice], arguments: ArgumentsMemory) -> Inquiry:
        """What the engine is asked.

        Raises:
            RequestRefused: the engine cannot be asked this.
        """

    def error_body(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as a response body."""

    def error_event(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as the last event of a stream of which nothing but comments had been sent."""


def read_fields(body: bytes) -> dict[str, Slice]:
    """Cut a request into its fields.

    Raises:
        RequestRefused: the body is not a JSON object.
    """
    try:
        return split_object(check_text(body))
    except InvalidJSON as error:
        raise RequestRefused(Kind.INVALID_BODY, f"The request body must be a JSON object: {error}.") from None


def read_conversation(body: bytes, key: str = "messages") -> dict[str, Slice]:
    """The same for a request whose conversation stands under `key`.

    Raises:
        RequestRefused: also where it is an empty array.
    """
    fields = read_fields(body)
    if bytes(fields.get(key, b"null"))[1:].strip() == b"]":
        raise RequestRefused(Kind.EMPTY_MESSAGES, f"{key} must be a non-empty array.", param=key)
    return fields


def asked_model(fields: Mapping[str, Slice]) -> str | None:
    """The model id the agent asked for, None where it gave no usable one."""
    model = decode(fields.get("model"))
    return model if isinstance(model, str) and model else None


def prompt_is_too_long(error: SwitchyardError) -> bool:
    """Whether the engine refused a prompt that does not fit: agents compact their history when they are told so."""
    said = (error.given or str(error).encode()) if isinstance(error, EngineRefused) else b""
    return is_context_overflow(error.status, said)
