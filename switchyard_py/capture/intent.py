"""The intent of a call as the path of a call makes it. Its form on disk belongs to the store."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from switchyard_py.rawjson import Slice
from switchyard_py.store.intent import CallIntent

__all__ = ["CallIntent", "request_digest"]


def request_digest(fields: Mapping[str, Slice]) -> str:
    """A hex SHA-256 over the fields of a request, as in `CallIntent.digest`.

    It is the same for requests that have the same fields in any order, each with a value of the same bytes: an agent
    that tries again sends what it sent before, and a value spelled otherwise is taken for another request.
    """
    digest = hashlib.sha256()
    for key in sorted(fields):
        name, value = key.encode(errors="surrogatepass"), memoryview(fields[key])
        # With their lengths, so that no two sets of fields run together into the same text.
        digest.update(b"%d,%d:" % (len(name), len(value)) + name)
        digest.update(value)
    return digest.hexdigest()
