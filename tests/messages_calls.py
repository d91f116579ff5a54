"""A Messages call as the proxy passes it on, without the proxy: the engine's request, and the reply for its bytes."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from built_records import encoded
from scripted_engine import DONE, Request, Turn, chat_body, chat_events

from switchyard_py.config import Target
from switchyard_py.dialects.messages import Messages
from switchyard_py.dialects.messages.reply import reply as messages_reply
from switchyard_py.dialects.messages.request import to_chat
from switchyard_py.dialects.messages.stream import MessagesStream
from switchyard_py.engines.vllm import Prepared, StreamHarvest, WhitespaceHold, harvest_reply, prepare
from switchyard_py.upstream import SSEReader

MESSAGE_ID = "msg_0196a3c27b107abc8def0123456789ab"
HELLO = [{"role": "user", "content": "hi"}]


def translated(request: object, arguments: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The fields of the chat request for a Messages request, parsed."""
    fields = to_chat(Messages().read(encoded(request)), arguments or {})
    return {key: json.loads(bytes(value)) for key, value in fields.items()}


def prepared(*, stream: bool, **fields: object) -> Prepared:
    """The engine's request for a captured call."""
    body = encoded({"model": "policy", "max_tokens": 100, "messages": HELLO, "stream": stream, **fields})
    settings = Target(model="served", base_url="http://127.0.0.1/v1")
    return prepare(to_chat(Messages().read(body), {}), body, settings.model, settings, captured=True)


def engine_stream(turn: Turn, call: Prepared | None = None) -> bytes:
    """What the engine sends for a streamed call that ends in `turn`."""
    return b"".join([*chat_events(_received(call or prepared(stream=True)), turn), DONE])


def engine_reply(turn: Turn, call: Prepared | None = None) -> bytes:
    """What the engine sends for a buffered call that ends in `turn`."""
    return encoded(chat_body(_received(call or prepared(stream=False)), turn))


def streamed(pieces: Iterable[bytes], call: Prepared | None = None) -> tuple[bytes, bytes]:
    """The live part and the tail an agent gets of an engine's stream that arrives in `pieces`."""
    wants = (call or prepared(stream=True)).wants
    reader, harvest, whitespace = SSEReader(), StreamHarvest(wants), WhitespaceHold(wants)
    stream = MessagesStream(MESSAGE_ID)
    live = [
        stream.live(shown)
        for piece in pieces
        for event in reader.feed(piece)
        if event.data is not None
        for chunk in harvest.feed(event.data)
        for shown in whitespace.feed(chunk)
    ]
    harvest.end()
    return b"".join(live), stream.tail()


def buffered(body: bytes, call: Prepared | None = None) -> bytes:
    """The reply an agent gets for an engine's buffered one."""
    answer, _ = harvest_reply(body, (call or prepared(stream=False)).wants)
    return messages_reply(answer, MESSAGE_ID)


def _received(call: Prepared) -> Request:
    return Request("POST", "/v1/chat/completions", [("x-request-id", "1")], call.body, 1, 0.0)
