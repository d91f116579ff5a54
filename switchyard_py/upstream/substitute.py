"""A reply that is given in place of one an engine sent."""

from collections.abc import AsyncIterator, Mapping

from switchyard_py.upstream.errors import BodyTooLarge


class SubstituteReply:
    """A Reply with status 200 whose body is here already; there is no connection behind it."""

    status = 200
    reused = False

    def __init__(self, content_type: str, body: bytes) -> None:
        self.headers: Mapping[str, str] = {"content-type": content_type}
        self._body = body

    async def read(self, limit: int) -> bytes:
        if len(self._body) > limit:
            raise BodyTooLarge(limit)
        return self._body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    def close(self) -> None:
        pass
