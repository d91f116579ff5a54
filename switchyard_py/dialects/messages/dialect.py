"""The dialects of Anthropic's API: messages, and the count of their tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from switchyard_py.dialects.arguments import ArgumentsMemory
from switchyard_py.dialects.dialect import read_conversation
from switchyard_py.dialects.messages.counting import count_tokens_reply, count_tokens_request
from switchyard_py.dialects.messages.errors import error_body, error_event
from switchyard_py.dialects.messages.reply import reply
from switchyard_py.dialects.messages.request import to_chat
from switchyard_py.dialects.messages.stream import MessagesStream
from switchyard_py.engines.vllm import Endpoint
from switchyard_py.errors import SwitchyardError
from switchyard_py.rawjson import Slice


class Messages:
    """The dialect `messages`."""

    name = "messages"
    path = "/v1/messages"
    endpoint = Endpoint.CHAT
    verbatim = False
    has_user_id = True
    request_id_headers = (b"x-request-id", b"request-id")

    def read(self, body: bytes) -> dict[str, Slice]:
        """Cut a request into its fields.

        Raises:
            RequestRefused: the body is not a JSON object, or its `messages` are an empty array.
        """
        return read_conversation(body)

    def inquire(self, fields: Mapping[str, Slice], arguments: ArgumentsMemory) -> "MessagesInquiry":
        """The chat-completions request that says what the Messages request `fields` says.

        Raises:
            RequestRefused: something is not as the Messages API has it, or cannot be given to the engine.
        """
        return MessagesInquiry(to_chat(fields, arguments))

    def error_body(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as a response body in Anthropic's shape."""
        return error_body(error, request_id)

    def error_event(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as the last event of a stream that had begun."""
        return error_event(error, request_id)


@dataclass(frozen=True, slots=True)
class MessagesInquiry:
    """A Messages request as a chat request, and the way back of the answer."""

    fields: Mapping[str, Slice]

    def reply(self, answer: bytes, call_id: str) -> bytes:
        """The chat reply as a Messages reply.

        Raises:
            EngineFault: its message has not the form of one.
        """
        return reply(answer, _message_id(call_id))

    def stream(self, call_id: str) -> MessagesStream:
        """A new writer for the stream."""
        return MessagesStream(_message_id(call_id))


class CountTokens(Messages):
    """The dialect `count_tokens`: the size of a Messages request, as the engine's tokenizer sees it."""

    name = "count_tokens"
    path = "/v1/messages/count_tokens"
    endpoint = Endpoint.TOKENIZE

    def inquire(self, fields: Mapping[str, Slice], arguments: ArgumentsMemory) -> "TokenCount":
        """The request to the engine's tokenizer.

        Raises:
            RequestRefused: as for a Messages request.
        """
        return TokenCount(count_tokens_request(fields, arguments))


@dataclass(frozen=True, slots=True)
class TokenCount(MessagesInquiry):
    """A question to the engine's tokenizer."""

    def reply(self, answer: bytes, call_id: str) -> bytes:
        """The count as Anthropic tells it.

        Raises:
            EngineFault: the engine's reply has none.
        """
        return count_tokens_reply(answer)


def _message_id(call_id: str) -> str:
    return f"msg_{UUID(call_id).hex}"
