"""The intent of a call as the path of a call makes it. Its form on disk belongs to the store."""

from __future__ import annotations

import hashlib

from switchyard_py.store.intent import CallIntent

__all__ = ["CallIntent", "body_digest"]


def body_digest(body: bytes) -> str:
    """The hex SHA-256 of a request body, as in `CallIntent.digest`."""
    return hashlib.sha256(body).hexdigest()
