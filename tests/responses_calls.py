"""A Responses call as the proxy passes it on, without the proxy: the engine's request, and the reply for its bytes."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from built_records import encoded
from scripted_engine import DONE, Request, Turn, chat_body, chat_events

from switchyard_py.config import Target
from switchyard_py.dialects.responses import Responses
from switchyard_py.dialects.responses.dialect import ResponsesInquiry
from switchyard_py.engines.vllm import StreamHarvest, Wants, WhitespaceHold, harvest_reply, prepare
from switchyard_py.rawjson import Slice
from switchyard_py.upstream import SSEReader

CALL_ID = "0196a3c2-7b10-7abc-8def-0123456789ab"
CALL_HEX = "0196a3c27b107abc8def0123456789ab"
HELLO = [{"role": "user", "content": "hi"}]


def inquired(request: object, arguments: Mapping[str, str] | None = None, created_at: int = 0) -> ResponsesInquiry:
    """A request on its way to the engine."""
    inquiry = Responses().inquire(Responses().read(encoded(request)), arguments or {})
    return ResponsesInquiry(inquiry.fields, inquiry.asked, inquiry.namespaced, inquiry.encrypts, created_at)


def parsed(fields: Mapping[str, Slice]) -> dict[str, Any]:
    return {key: json.loads(bytes(value)) for key, value in fields.items()}


def translated(request: object, arguments: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The fields of the chat request for a Responses request, parsed."""
    return parsed(inquired(request, arguments).fields)


class Call:
    """One captured call, which asks for `fields`."""

    def __init__(self, *, stream: bool = False, **fields: object) -> None:
        body = encoded({"model": "policy", "input": "hi", "stream": stream, **fields})
        self.inquiry = inquired(json.loads(body))
        settings = Target(model="served", base_url="http://127.0.0.1/v1")
        self.prepared = prepare(self.inquiry.fields, body, settings.model, settings, captured=True)

    @property
    def wants(self) -> Wants:
        return self.prepared.wants

    def engine_stream(self, turn: Turn) -> bytes:
        """What the engine sends for the call if it is streamed and ends in `turn`."""
        return b"".join([*chat_events(self._received(), turn), DONE])

    def engine_reply(self, turn: Turn) -> bytes:
        """The same if it is buffered."""
        return encoded(chat_body(self._received(), turn))

    def streamed(self, pieces: Iterable[bytes]) -> tuple[bytes, bytes]:
        """The live part and the tail an agent gets of an engine's stream that arrives in `pieces`."""
        reader, harvest, whitespace = SSEReader(), StreamHarvest(self.wants), WhitespaceHold(self.wants)
        stream = self.inquiry.stream(CALL_ID)
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

    def buffered(self, body: bytes) -> bytes:
        """The reply an agent gets for an engine's buffered one."""
        answer, _ = harvest_reply(body, self.wants)
        return self.inquiry.reply(answer, CALL_ID)

    def _received(self) -> Request:
        return Request("POST", "/v1/chat/completions", [("x-request-id", "1")], self.prepared.body, 1, 0.0)
