"""What a trainer reads: sessions, and the records of one.

Files are read in threads and answers are written record by record, so neither a slow disk nor a large session keeps
anybody else waiting, and memory is one record.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Literal, TypeVar

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response

from switchyard_py.endpoints.answers import Refused, answer
from switchyard_py.endpoints.rollouts import main_chain_uuids
from switchyard_py.endpoints.session_requests import (
    MAX_SETTLE_SECONDS,
    SETTLE_POLL_SECONDS,
    json_stream,
    no_session,
    one_of,
    seconds_of,
    session_gone,
    session_id_of,
    session_reader,
    settle,
    unknown_session,
    whole_number,
)
from switchyard_py.errors import Kind, RequestRefused
from switchyard_py.sessions import checked_id
from switchyard_py.store import (
    SCHEMA_VERSION,
    CompletionsPage,
    Endings,
    SessionDeleted,
    SessionInUse,
    SessionSummary,
    UnknownSession,
)

SEAL_SECONDS = 30.0
MAX_PAGE = 100_000

T = TypeVar("T")


async def list_sessions(request: Request) -> Response:
    """GET /v1/sessions[?limit=&cursor=]: all sessions by their first call; `next_cursor` while there are more."""
    reader, limit = session_reader(request), whole_number(request, "limit", MAX_PAGE)
    cursor = request.query_params.get("cursor") or None
    # To be in order, all sessions are looked at before the first is told.
    summaries = await asyncio.to_thread(reader.sessions, cursor, limit and limit + 1)
    return json_stream(_session_list(summaries, limit))


async def one_session(request: Request) -> Response:
    """/v1/sessions/{id}: one route, so that a wrong method is told of both right ones."""
    return await (delete_session if request.method == "DELETE" else show_session)(request)


async def show_session(request: Request) -> Response:
    """GET /v1/sessions/{id}: what the list says of it."""
    summary = await asyncio.to_thread(session_reader(request).summary, session_id_of(request))
    if summary is None:
        raise await no_session(request)
    return answer(_summary(summary))


async def seal_session(request: Request) -> Response:
    """POST /v1/sessions/{id}/seal[?wait=]: let no more calls begin, wait for those that are open, say what it holds."""
    endings, session_id = Endings(session_reader(request)), _checked_session_id(request)
    wait = seconds_of(request, "wait", MAX_SETTLE_SECONDS, SEAL_SECONDS)
    try:
        seal = await _in_store(endings.close, session_id)
        if seal is None:
            await settle(request, session_id, wait)
            # A call that was committed this moment is withdrawn if its agent had gone before the end of its answer.
            await asyncio.sleep(SETTLE_POLL_SECONDS)
            seal = await _in_store(endings.seal, session_id)
    except SessionInUse as error:
        text = f"{_calls(error.open_calls)} still open; no more can begin: seal the session again when they have ended"
        raise Refused(Kind.OPEN_CALLS, text) from None
    except SessionDeleted:
        raise session_gone() from None
    said = {key: value for key, value in msgspec.structs.asdict(seal).items() if key != "calls"}
    return answer({"schema_version": SCHEMA_VERSION, "session_id": session_id, "sealed": True, **said})


async def delete_session(request: Request) -> Response:
    """DELETE /v1/sessions/{id}: remove its records and refuse calls that come late."""
    endings, session_id = Endings(session_reader(request)), session_id_of(request)
    try:
        await _in_store(endings.delete, session_id)
    except SessionInUse as error:
        raise Refused(Kind.OPEN_CALLS, f"{_calls(error.open_calls)} still open: delete the session later") from None
    except UnknownSession:
        raise unknown_session() from None
    except SessionDeleted:
        raise session_gone() from None
    return answer({"session_id": session_id, "deleted": True})


async def completions(request: Request) -> Response:
    """GET /v1/sessions/{id}/completions: the records in call order, with the account of all its calls."""
    reader, session_id = session_reader(request), session_id_of(request)
    include = one_of(request, "include", ("delivered", "all", "chain"))
    limit, after = whole_number(request, "limit", MAX_PAGE), request.query_params.get("after")
    await settle(request, session_id, seconds_of(request, "settled", MAX_SETTLE_SECONDS))
    among = await main_chain_uuids(request) if include == "chain" else None
    kind: Literal["delivered", "all"] = "all" if include == "all" else "delivered"
    try:
        page = await asyncio.to_thread(reader.completions, session_id, kind, after, limit, among)
    except ValueError as error:
        raise Refused(Kind.INVALID_PARAMETER, f"after: {error}") from None
    if page is None:
        raise await no_session(request)
    return json_stream(_envelope(session_id, page))


async def completion(request: Request) -> Response:
    """GET /v1/sessions/{id}/completions/{uuid}: one record."""
    reader, session_id = session_reader(request), session_id_of(request)
    record = await asyncio.to_thread(reader.record, session_id, request.path_params["uuid"])
    if record is None:
        if not await asyncio.to_thread(reader.exists, session_id):
            raise await no_session(request)
        raise Refused(Kind.UNKNOWN_RECORD, "the session has no record of that name")
    return Response(record, media_type="application/json")


def _checked_session_id(request: Request) -> str:
    """The id, fit for a session that may have no call yet."""
    try:
        return checked_id(session_id_of(request))
    except RequestRefused as refusal:
        raise Refused(refusal.kind, str(refusal)) from None


async def _in_store(function: Callable[[str], T], session_id: str) -> T:
    """Run what writes to the store in a thread."""
    try:
        return await asyncio.to_thread(function, session_id)
    except OSError as error:
        reason = error.strerror or "input/output error"
        raise Refused(Kind.CAPTURE_UNAVAILABLE, f"the store refuses: {reason}") from error


def _calls(count: int) -> str:
    return "1 call is" if count == 1 else f"{count} calls are"


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
