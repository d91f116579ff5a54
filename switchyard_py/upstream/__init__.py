"""The HTTP client seam towards engines, and the reader of their event streams."""

from switchyard_py.upstream.client import AiohttpUpstream, header_bytes
from switchyard_py.upstream.errors import (
    BodyTooLarge,
    BrokenReply,
    EventTooLarge,
    NotConnected,
    SentNoReply,
    UpstreamError,
    UpstreamTimeout,
)
from switchyard_py.upstream.seam import Reply, Upstream, UpstreamRequest
from switchyard_py.upstream.sse import SSEEvent, SSEReader
from switchyard_py.upstream.substitute import SubstituteReply

__all__ = [
    "AiohttpUpstream",
    "BodyTooLarge",
    "BrokenReply",
    "EventTooLarge",
    "NotConnected",
    "Reply",
    "SSEEvent",
    "SSEReader",
    "SentNoReply",
    "SubstituteReply",
    "Upstream",
    "UpstreamError",
    "UpstreamRequest",
    "UpstreamTimeout",
    "header_bytes",
]
