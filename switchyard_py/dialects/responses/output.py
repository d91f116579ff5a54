"""The items of a response's output, and the parts of their content."""

from collections.abc import Mapping
from dataclasses import dataclass

from switchyard_py.dialects.answer import REFUSAL, THINKING, Key
from switchyard_py.dialects.responses.ids import item_id
from switchyard_py.dialects.responses.reasoning import encrypted
from switchyard_py.dialects.responses.tools import Namespaced
from switchyard_py.dialects.translation import EMPTY_TEXT
from switchyard_py.rawjson import Slice, decode, encode, join_array, join_object

IN_PROGRESS = "in_progress"
COMPLETED = "completed"
INCOMPLETE = "incomplete"
"""The states of an item, and of a response beside `failed`."""


@dataclass(frozen=True, slots=True)
class OutputWriter:
    """Writes the items of one response; `common` is the part its ids have in common."""

    common: str
    namespaced: Mapping[str, Namespaced]
    encrypts: bool

    def item_id(self, index: int, key: Key) -> bytes:
        """The id of an item as JSON."""
        return encode(item_id(self.common, index, key))

    def item(self, index: int, key: Key, call: Mapping[str, Slice], text: Slice | None, status: str) -> bytes:
        """The item at `index` of the output; its text is a JSON string, None while it has only begun."""
        head = {"id": self.item_id(index, key), "status": encode(status)}
        if not isinstance(key, str):
            return join_object({"type": b'"function_call"', **head, **self._called(call, text or EMPTY_TEXT)})
        content = join_array([] if text is None else [part(key, text)])
        if key != THINKING:
            return join_object({"type": b'"message"', **head, "role": b'"assistant"', "content": content})
        reasoning = {"type": b'"reasoning"', **head, "summary": b"[]", "content": content}
        if self.encrypts and text is not None:
            reasoning["encrypted_content"] = encrypted(text)
        return join_object(reasoning)

    def _called(self, call: Mapping[str, Slice], arguments: Slice) -> dict[str, Slice]:
        name = call.get("name", EMPTY_TEXT)
        fields: dict[str, Slice] = {"call_id": call.get("id", EMPTY_TEXT)}
        known = self.namespaced.get(decode(name))
        if known is None:
            return {**fields, "name": name, "arguments": arguments}
        return {**fields, "name": known.name, "namespace": known.namespace, "arguments": arguments}


def part(key: str, text: Slice) -> bytes:
    """The content of a message or of reasoning."""
    if key == THINKING:
        return join_object({"type": b'"reasoning_text"', "text": text})
    if key == REFUSAL:
        return join_object({"type": b'"refusal"', "refusal": text})
    return join_object({"type": b'"output_text"', "annotations": b"[]", "logprobs": b"[]", "text": text})
