"""What a trainer reads: sessions, and the records of one.

Files are read in threads and answers are written record by record, so neither a slow disk nor a large session keeps
anybody else waiting, and memory is one record.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import Literal, cast
from urllib.parse import unquote_to_bytes

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from switchyard_py.endpoints.answers import Refused, answer
from switchyard_py.errors import Kind
from switchyard_py.store import SCHEMA_VERSION, CompletionsPage, SessionReader, SessionSummary

MAX_SETTLE_SECONDS = 600.0
MAX_PAGE = 100_000
SETTLE_POLL_SECONDS = 0.05
# Small records are sent together; a batch is one hop to a thread and one chunk on the wire.
BATCH_BYTES = 256 * 1024


async def list_sessions(request: Request) -> Response:
    """GET /v1/sessions[?limit=&cursor=]: all sessions by their first call; `next_cursor` while there are more."""
    limit = _whole_number(request, "limit", MAX_PAGE)
    summaries = _reader(request).sessions(request.query_params.get("cursor") or None, limit and limit + 1)
    return _json_stream(_session_list(summaries, limit))


async def show_session(request: Request) -> Response:
    """GET /v1/sessions/{id}: what the list says of it."""
    summary = await asyncio.to_thread(_reader(request).summary, _session_id(request))
    if summary is None:
        raise _unknown_session()
    return answer(_summary(summary))


async def completions(request: Request) -> Response:
    """GET /v1/sessions/{id}/completions: the records in call order, with the account of all its calls."""
    reader, session_id = _reader(request), _session_id(request)
    include = request.query_params.get("include", "delivered")
    if include == "chain":
        raise Refused(Kind.NOT_BUILT_YET, "include=chain is not built yet; use delivered or all")
    if include not in ("delivered", "all"):
        raise Refused(Kind.INVALID_PARAMETER, f"include is {include!r}; use delivered, all or chain")
    limit, after = _whole_number(request, "limit", MAX_PAGE), request.query_params.get("after")
    await _settle(request, session_id, _seconds(request, "settled", MAX_SETTLE_SECONDS))
    kind = cast(Literal["delivered", "all"], include)
    try:
        page = await asyncio.to_thread(reader.completions, session_id, kind, after, limit)
    except ValueError as error:
        raise Refused(Kind.INVALID_PARAMETER, f"after: {error}") from None
    if page is None:
        raise _unknown_session()
    return _json_stream(_envelope(session_id, page))


async def completion(request: Request) -> Response:
    """GET /v1/sessions/{id}/completions/{uuid}: one record."""
    reader, session_id = _reader(request), _session_id(request)
    record = await asyncio.to_thread(reader.record, session_id, request.path_params["uuid"])
    if record is None:
        if not await asyncio.to_thread(reader.exists, session_id):
            raise _unknown_session()
        raise Refused(Kind.UNKNOWN_RECORD, "the session has no record of that name")
    return Response(record, media_type="application/json")


def _reader(request: Request) -> SessionReader:
    reader: SessionReader | None = request.state.services.reader
    if reader is None:
        raise Refused(
            Kind.CAPTURE_OFF, "nothing is captured: no route declares token_capture_engine, or --no-capture is set"
        )
    return reader


def _session_id(request: Request) -> str:
    """The id out of the raw path: percent-decoded once, so that `a%2Fb` is the session `a/b`."""
    try:
        return unquote_to_bytes(request.path_params["session_id"]).decode()
    except UnicodeDecodeError:
        raise _unknown_session() from None


def _unknown_session() -> Refused:
    return Refused(Kind.UNKNOWN_SESSION, "unknown session")


async def _settle(request: Request, session_id: str, seconds: float) -> None:
    """Wait until no call of the session is open, at most so many seconds, and not beyond the end of this process."""
    reader, services = _reader(request), request.state.services
    deadline = time.monotonic() + seconds
    while seconds and time.monotonic() < deadline and not services.calls.ended:
        if not await asyncio.to_thread(reader.open_calls, session_id):
            return
        await asyncio.sleep(SETTLE_POLL_SECONDS)


def _envelope(session_id: str, page: CompletionsPage) -> Iterator[bytes]:
    yield b'{"schema_version":%d,"session_id":%b,"completions":[' % (SCHEMA_VERSION, orjson.dumps(session_id))
    separator = b""
    for record in page:
        yield separator + record
        separator = b","
    yield b'],"accounting":%b}' % orjson.dumps(page.accounting())


def _session_list(summaries: Iterator[SessionSummary], limit: int | None) -> Iterator[bytes]:
    yield b'{"schema_version":%d,"sessions":[' % SCHEMA_VERSION
    separator, cursor = b"", None
    for number, summary in enumerate(summaries):
        if number == limit:
            yield b'],"next_cursor":%b}' % orjson.dumps(cursor)
            return
        yield separator + orjson.dumps(_summary(summary))
        separator, cursor = b",", summary.cursor
    yield b'],"next_cursor":null}'


def _summary(summary: SessionSummary) -> dict[str, object]:
    return {key: value for key, value in asdict(summary).items() if key != "cursor"}


def _json_stream(parts: Iterator[bytes]) -> StreamingResponse:
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


def _whole_number(request: Request, name: str, most: int) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise Refused(Kind.INVALID_PARAMETER, f"{name} is {text!r}; use a whole number from 1 to {most}")
    return int(text)


def _seconds(request: Request, name: str, most: float) -> float:
    text = request.query_params.get(name, "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= most:
        raise Refused(Kind.INVALID_PARAMETER, f"{name} is {text!r}; use seconds from 0 to {most:g}")
    return seconds
