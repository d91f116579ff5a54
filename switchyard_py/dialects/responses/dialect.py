"""The dialect of OpenAI's Responses API."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from switchyard_py.dialects.arguments import ArgumentsMemory
from switchyard_py.dialects.dialect import read_conversation
from switchyard_py.dialects.responses.errors import error_body
from switchyard_py.dialects.responses.ids import common_part
from switchyard_py.dialects.responses.output import OutputWriter
from switchyard_py.dialects.responses.reply import ResponseWriter
from switchyard_py.dialects.responses.request import to_chat, wants_encrypted
from switchyard_py.dialects.responses.stream import ResponsesStream
from switchyard_py.dialects.responses.tools import Namespaced
from switchyard_py.engines.vllm import Endpoint
from switchyard_py.errors import SwitchyardError
from switchyard_py.rawjson import Slice


class Responses:
    """The dialect `responses`."""

    name = "responses"
    path = "/v1/responses"
    endpoint = Endpoint.CHAT
    verbatim = False
    has_user_id = False
    request_id_headers = (b"x-request-id",)

    def read(self, body: bytes) -> dict[str, Slice]:
        """Cut a request into its fields.

        Raises:
            RequestRefused: the body is not a JSON object, or its `input` is an empty array.
        """
        return read_conversation(body, "input")

    def inquire(self, fields: Mapping[str, Slice], arguments: ArgumentsMemory) -> "ResponsesInquiry":
        """The chat-completions request that says what the Responses request `fields` says.

        Raises:
            RequestRefused: something is not as the Responses API has it, or cannot be given to the engine.
        """
        chat, namespaced = to_chat(fields, arguments)
        return ResponsesInquiry(chat, fields, namespaced, wants_encrypted(fields), int(time.time()))

    def error_body(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as a response body in OpenAI's shape."""
        return error_body(error)

    def error_event(self, error: SwitchyardError, request_id: str) -> bytes:
        """The error as the last events of a stream that had no others."""
        return ResponsesInquiry({}, {}, {}, False, int(time.time())).stream(request_id).error_event(error, request_id)


@dataclass(frozen=True, slots=True)
class ResponsesInquiry:
    """A Responses request as a chat request, and the way back of the answer.

    `asked` are the fields of the Responses request, `namespaced` the functions of namespaces by their engine's name;
    `created_at` is in seconds since 1970.
    """

    fields: Mapping[str, Slice]
    asked: Mapping[str, Slice]
    namespaced: Mapping[str, Namespaced]
    encrypts: bool
    created_at: int

    def reply(self, answer: bytes, call_id: str) -> bytes:
        """The chat reply as a response.

        Raises:
            EngineFault: its message has not the form of one.
        """
        return self._writer(call_id).reply(answer)

    def stream(self, call_id: str) -> ResponsesStream:
        """A new writer for the stream."""
        return ResponsesStream(self._writer(call_id))

    def _writer(self, call_id: str) -> ResponseWriter:
        output = OutputWriter(common_part(call_id), self.namespaced, self.encrypts)
        return ResponseWriter(self.asked, self.created_at, output)
