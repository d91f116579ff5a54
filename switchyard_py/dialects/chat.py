"""OpenAI chat completions: the dialect the engine speaks too, so nothing is translated.

Wire facts: OpenAI's chat streaming reference; SDKs raise on a chunk with a top-level `error` and take anything after
`[DONE]` or a bare close for the end, so an error event is the last thing sent.
"""

from collections.abc import Mapping

from switchyard_py.dialects.tail import TailHold
from switchyard_py.engines.vllm import Chunk
from switchyard_py.errors import EngineRefused, Kind, RequestRefused, SwitchyardError
from switchyard_py.rawjson import InvalidJSON, Slice, check_text, decode, encode, split_object

NAME = "chat"
PATH = "/v1/chat/completions"
ENGINE_PATH = "/chat/completions"

_DONE = b"data: [DONE]\n\n"


def read(body: bytes) -> dict[str, Slice]:
    """Cut a request into its chat-completions fields.

    Raises:
        RequestRefused: the body is not a JSON object, or its `messages` are an empty array.
    """
    try:
        fields = split_object(check_text(body))
    except InvalidJSON as error:
        raise RequestRefused(Kind.INVALID_BODY, f"The request body must be a JSON object: {error}.") from None
    if bytes(fields.get("messages", b"null"))[1:].strip() == b"]":
        raise RequestRefused(Kind.EMPTY_MESSAGES, "messages must be a non-empty array.", param="messages")
    return fields


def error_body(error: SwitchyardError) -> bytes:
    """The error as a response body; an engine's own body in the right shape is passed on as it is."""
    if isinstance(error, EngineRefused) and error.given is not None:
        return error.given
    return encode(error.body())


def error_event(error: SwitchyardError) -> bytes:
    """The error as the last event of a stream that had begun."""
    return _event(error_body(error))


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


def _event(text: bytes) -> bytes:
    """The event that has a JSON text for its data."""
    # An engine may have written it over several lines; between the tokens of JSON their ends mean nothing.
    return b"data: " + text.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"


def asked_model(fields: Mapping[str, Slice]) -> str | None:
    """The model id the agent asked for, None where it gave no usable one."""
    model = decode(fields.get("model"))
    return model if isinstance(model, str) and model else None
