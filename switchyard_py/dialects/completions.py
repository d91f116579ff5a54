"""OpenAI text completions: a prompt in, its continuation out; the engine speaks it too.

The tail of a stream starts at its finish chunk: there are no tool calls.
"""

from switchyard_py.dialects.chat import Chat
from switchyard_py.dialects.dialect import read_fields
from switchyard_py.engines.vllm import Endpoint
from switchyard_py.rawjson import Slice


class Completions(Chat):
    """The dialect `completions`; errors look as in `chat`."""

    name = "completions"
    path = "/v1/completions"
    endpoint = Endpoint.TEXT

    def read(self, body: bytes) -> dict[str, Slice]:
        """Cut a request into its fields.

        Raises:
            RequestRefused: the body is not a JSON object.
        """
        return read_fields(body)
