"""Anthropic Messages: translated to chat completions for the engine, and its replies back."""

from switchyard_py.dialects.chat import asked_model, read
from switchyard_py.dialects.messages.counting import (
    COUNT_PATH,
    ENGINE_COUNT_PATH,
    count_tokens_reply,
    count_tokens_request,
)
from switchyard_py.dialects.messages.errors import error_body, error_event
from switchyard_py.dialects.messages.reply import reply
from switchyard_py.dialects.messages.request import to_chat
from switchyard_py.dialects.messages.stream import MessagesStream

NAME = "messages"
PATH = "/v1/messages"

__all__ = [
    "COUNT_PATH",
    "ENGINE_COUNT_PATH",
    "NAME",
    "PATH",
    "MessagesStream",
    "asked_model",
    "count_tokens_reply",
    "count_tokens_request",
    "error_body",
    "error_event",
    "read",
    "reply",
    "to_chat",
]
