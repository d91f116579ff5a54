"""OpenAI chat completions: the dialect the engine speaks too, so nothing is translated.

Wire facts: OpenAI's chat streaming reference; SDKs raise on a chunk with a top-level `error` and take anything after
`[DONE]` or a bare close for the end, so an error event is the last thing sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from switchyard_py.dialects.arguments import ArgumentsMemory
from switchyard_py.dialects.dialect import read_conversation
from switchyard_py.dialects.tail import TailHold
from switchyard_py.engines.vllm import Chunk, Endpoint
from switchyard_py.errors import EngineRefused, SwitchyardError
from switchyard_py.rawjson import Slice, encode

_DONE = b"data: [DONE]\n\n"


class Chat:
    """The dialect `chat`."""

    name = "chat"
    path = "/v1/chat/completions"
    endpoint = Endpoint.CHAT
    verbatim = True
    has_user_id = False
    request_id_headers = (b"x-request-id",)

    def read(self, body: bytes) -> dict[str, Slice]:
        """Cut a request into its fields.

        Raises:
            RequestRefused: the body is not a JSON object, or its `messages` are an empty array.
        """
        return read_conversation(body)

    def inquire(self, fields: Mapping[str, Slice], arguments: ArgumentsMemory) -> "Verbatim":
        """The request as it is."""
        return Verbatim(fields)

    def error_body(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as a response body; an engine's own body in the right shape is passed on as it is."""
        return error_body(error)

    def error_event(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as the last event of a stream that had begun."""
        return _event(error_body(error))


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A request and an answer in the engine's own format."""

    fields: Mapping[str, Slice]

    def reply(self, answer: bytes, call_id: str) -> bytes:
        """The answer as it is."""
        return answer

    def stream(self, call_id: str) -> "ChatStream":
        """A new writer that keeps back the tail."""
        return ChatStream()


class ChatStream:
    """Writes one stream: live what the agent may see at once, and the tail when the record is committed."""

    def __init__(self) -> None:
        self._hold = TailHold()

    def live(self, chunk: Chunk) -> bytes:
        """The events to send now, b"" for none."""
        return b"".join(_event(passed.encode()) for passed in self._hold.feed(chunk))

    def tail(self) -> bytes:
        """Everything that was kept back, and the end of the stream."""
        return b"".join(_event(kept.encode()) for kept in self._hold.tail()) + _DONE

    def error_event(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as the last event, in place of the tail."""
        return _event(error_body(error))


def error_body(error: SwitchyardError) -> bytes:
    """The error as OpenAI's clients know errors; an engine's own body in that shape is passed on as it is."""
    if isinstance(error, EngineRefused) and error.given is not None:
        return error.given
    return encode(error.body())


def _event(text: bytes) -> bytes:
    """The event that has a JSON text for its data."""
    # An engine may have written it over several lines; between the tokens of JSON their ends mean nothing.
    return b"data: " + text.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"
