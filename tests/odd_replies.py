"""Chat replies of an engine that every translating dialect has to cope with alike."""

NO_MESSAGES = [
    b"5",
    b'{"tool_calls":5}',
    b'{"tool_calls":[{"function":[]}]}',
    b'{"tool_calls":[{"function":{"name":"f","arguments":{}}}]}',
    b'{"content":[{"type":"text","text":"x"}]}',
]
"""What is no assistant's message, or one that says something in a form that is no text."""

SPELLED = b'{"model":"m\\u00e9","choices":[{"message":{"content":"\\u00e9\\ud800\\/"},"finish_reason":"stop"}]}'
"""A whole reply with escapes that JSON does not need."""


def reply_of(message: bytes) -> bytes:
    """A whole reply with this message."""
    return b'{"choices":[{"message":%b,"finish_reason":"stop"}]}' % message
