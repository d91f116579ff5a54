"""What a trainer reads: sessions, and the records of one.

Files are read in threads and answers are written record by record, so neither a slow disk nor a large session keeps
anybody else waiting, and memory is one record.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from typing import Literal, TypeVar, cast
from urllib.parse import unquote_to_bytes

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from switchyard_py.endpoints.answers import Refused, answer
from switchyard_py.errors import Kind, RequestRefused
from switchyard_py.sessions import checked_id
from switchyard_py.store import (
    SCHEMA_VERSION,
    CompletionsPage,
    Endings,
    SessionDeleted,
    SessionInUse,
    SessionReader,
    SessionSummary,
    UnknownSession,
)

MAX_SETTLE_SECONDS = 600.0
SEAL_SECONDS = 30.0
MAX_PAGE = 100_000
SETTLE_POLL_SECONDS = 0.05
# Small records are sent together; a batch is one hop to a thread and one chunk on the wire.
BATCH_BYTES = 256 * 1024

T = TypeVar("T")


async def list_sessions(request: Request) -> Response:
    """GET /v1/sessions[?limit=&cursor=]: all sessions by their first call; `next_cursor` while there are more."""
    limit = _whole_number(request, "limit", MAX_PAGE)
    summaries = _reader(request).sessions(request.query_params.get("cursor") or None, limit and limit + 1)
    return _json_stream(_session_list(summaries, limit))


async def one_session(request: Request) -> Response:
    """/v1/sessions/{id}: one route, so that a wrong method is told of both right ones."""
    return await (delete_session if request.method == "DELETE" else show_session)(request)


async def show_session(request: Request) -> Response:
    """GET /v1/sessions/{id}: what the list says of it."""
    summary = await asyncio.to_thread(_reader(request).summary, _session_id(request))
    if summary is None:
        raise await _no_session(request)
    return answer(_summary(summary))


async def seal_session(request: Request) -> Response:
    """POST /v1/sessions/{id}/seal[?wait=]: let no more calls begin, wait for those that are open, say what it holds."""
    endings, session_id = Endings(_reader(request)), _checked_session_id(request)
    wait = _seconds(request, "wait", MAX_SETTLE_SECONDS, SEAL_SECONDS)
    try:
        seal = await _in_store(endings.close, session_id)
        if seal is None:
            await _settle(request, session_id, wait)
            # A call that was committed this moment is withdrawn if its agent had gone before the end of its answer.
            await asyncio.sleep(SETTLE_POLL_SECONDS)
            seal = await _in_store(endings.seal, session_id)
    except SessionInUse as error:
        text = f"{_calls(error.open_calls)} still open; no more can begin: seal the session again when they have ended"
        raise Refused(Kind.OPEN_CALLS, text) from None
    except SessionDeleted:
        raise _gone() from None
    said = {key: value for key, value in msgspec.structs.asdict(seal).items() if key != "calls"}
    return answer({"schema_version": SCHEMA_VERSION, "session_id": session_id, "sealed": True, **said})


async def delete_session(request: Request) -> Response:
    """DELETE /v1/sessions/{id}: remove its records and refuse calls that come late."""
    endings, session_id = Endings(_reader(request)), _session_id(request)
    try:
        await _in_store(endings.delete, session_id)
    except SessionInUse as error:
        raise Refused(Kind.OPEN_CALLS, f"{_calls(error.open_calls)} still open: delete the session later") from None
    except UnknownSession:
        raise _unknown_session() from None
    except SessionDeleted:
        raise _gone() from None
    return answer({"session_id": session_id, "deleted": True})


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
        raise await _no_session(request)
    return _json_stream(_envelope(session_id, page))


async def completion(request: Request) -> Response:
    """GET /v1/sessions/{id}/completions/{uuid}: one record."""
    reader, session_id = _reader(request), _session_id(request)
    record = await asyncio.to_thread(reader.record, session_id, request.path_params["uuid"])
    if record is None:
        if not await asyncio.to_thread(reader.exists, session_id):
            raise await _no_session(request)
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


def _checked_session_id(request: Request) -> str:
    """The id, fit for a session that may have no call yet."""
    try:
        return checked_id(_session_id(request))
    except RequestRefused as refusal:
        raise Refused(refusal.kind, str(refusal)) from None


async def _no_session(request: Request) -> Refused:
    deleted = await asyncio.to_thread(_reader(request).deleted, _session_id(request))
    return _gone() if deleted else _unknown_session()


def _unknown_session() -> Refused:
    return Refused(Kind.UNKNOWN_SESSION, "unknown session")


def _gone() -> Refused:
    return Refused(Kind.SESSION_GONE, "the session was deleted")


async def _in_store(function: Callable[[str], T], session_id: str) -> T:
    """Run what writes to the store in a thread."""
    try:
        return await asyncio.to_thread(function, session_id)
    except OSError as error:
        reason = error.strerror or "input/output error"
        raise Refused(Kind.CAPTURE_UNAVAILABLE, f"the store refuses: {reason}") from error


def _calls(count: int) -> str:
    return "1 call is" if count == 1 else f"{count} calls are"


async def _settle(request: Request, session_id: str, seconds: float) -> None:
    """Wait until no call of the session is open, at most so many seconds, and not beyond the end of this process.

    Nor for a trainer that is gone.
    """
    reader, services = _reader(request), request.state.services
    deadline = time.monotonic() + seconds
    while seconds and time.monotonic() < deadline and not services.calls.ended:
        if not await asyncio.to_thread(reader.open_calls, session_id):
            return
        if await request.is_disconnected():
            return
        await asyncio.sleep(SETTLE_POLL_SECONDS)


def _envelope(session_id: str, page: CompletionsPage) -> Iterator[bytes]:
    yield b'{"schema_version":%d,"session_id":%b,"completions":[' % (SCHEMA_VERSION, orjson.dumps(session_id))
    separator = b""
    for record in page:
        yield separator + record
        separator = b","
    yield b'],"accounting":%b,"sealed":%b}' % (orjson.dumps(page.accounting()), orjson.dumps(page.sealed))


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


def _seconds(request: Request, name: str, most: float, default: float = 0) -> float:
    text = request.query_params.get(name, str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= most:
        raise Refused(Kind.INVALID_PARAMETER, f"{name} is {text!r}; use seconds from 0 to {most:g}")
    return seconds
