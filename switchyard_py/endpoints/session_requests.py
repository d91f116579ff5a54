"""What requests that read one session have in common: the id, the parameters, and an answer that nobody waits for.

Files are read in threads and answers are written piece by piece, so neither a slow disk nor a large session keeps
anybody else waiting.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import StreamingResponse

from switchyard_py.endpoints.answers import Refused
from switchyard_py.errors import Kind
from switchyard_py.store import SessionReader

MAX_SETTLE_SECONDS = 600.0
SETTLE_POLL_SECONDS = 0.05
MAX_SETTLE_POLL_SECONDS = 0.5
# Small records are sent together; a batch is one hop to a thread and one chunk on the wire.
BATCH_BYTES = 256 * 1024


def session_reader(request: Request) -> SessionReader:
    """The reader of this process. Raises Refused when it captures nothing."""
    reader: SessionReader | None = request.state.services.reader
    if reader is None:
        raise Refused(
            Kind.CAPTURE_OFF, "nothing is captured: no route declares token_capture_engine, or --no-capture is set"
        )
    return reader


def session_id_of(request: Request) -> str:
    """The id out of the raw path: percent-decoded once, so that `a%2Fb` is the session `a/b`."""
    try:
        return unquote_to_bytes(request.path_params["session_id"]).decode()
    except UnicodeDecodeError:
        raise unknown_session() from None


async def no_session(request: Request) -> Refused:
    """What to say of a session that cannot be read: it was deleted, or nobody knows it."""
    deleted = await asyncio.to_thread(session_reader(request).deleted, session_id_of(request))
    return session_gone() if deleted else unknown_session()


def unknown_session() -> Refused:
    return Refused(Kind.UNKNOWN_SESSION, "unknown session")


def session_gone() -> Refused:
    return Refused(Kind.SESSION_GONE, "the session was deleted")


async def settle(request: Request, session_id: str, seconds: float) -> None:
    """Wait until no call of the session is open, at most so many seconds, and not beyond the end of this process.

    Nor for a trainer that is gone.
    """
    reader, services = session_reader(request), request.state.services
    deadline, pause = time.monotonic() + seconds, SETTLE_POLL_SECONDS
    while seconds and time.monotonic() < deadline and not services.calls.ended:
        if not await asyncio.to_thread(reader.open_calls, session_id):
            return
        if await request.is_disconnected():
            return
        await asyncio.sleep(pause)
        # Each look lists the session: whoever waits for long looks less often.
        pause = min(pause * 1.2, MAX_SETTLE_POLL_SECONDS)


def json_stream(parts: Iterator[bytes]) -> StreamingResponse:
    """A JSON response of parts, each made in a thread when it is the next to be sent."""
    return StreamingResponse(_batches(parts), media_type="application/json")


async def _batches(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    while batch := await asyncio.to_thread(_next_batch, parts):
        yield batch


def _next_batch(parts: Iterator[bytes]) -> bytes:
    batch: list[bytes] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += len(part)
        if size >= BATCH_BYTES:
            break
    return b"".join(batch)


def whole_number(request: Request, name: str, most: int) -> int | None:
    """A query parameter from 1 to `most`, None where it is not given."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise Refused(Kind.INVALID_PARAMETER, f"{name} is {text!r}; use a whole number from 1 to {most}")
    return int(text)


def one_of(request: Request, name: str, choices: tuple[str, ...]) -> str:
    """A query parameter that is one of the choices, the first of them where it is not given."""
    text = request.query_params.get(name, choices[0])
    if text not in choices:
        raise Refused(Kind.INVALID_PARAMETER, f"{name} is {text!r}; use {', '.join(choices[:-1])} or {choices[-1]}")
    return text


def seconds_of(request: Request, name: str, most: float, default: float = 0) -> float:
    """A query parameter from 0 to `most`."""
    text = request.query_params.get(name, str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= most:
        raise Refused(Kind.INVALID_PARAMETER, f"{name} is {text!r}; use seconds from 0 to {most:g}")
    return seconds
