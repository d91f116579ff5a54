"""What a trainer is given of a session beyond its records: the lineage of its calls, and rollouts to train on.

A session is read as a whole for that, in a thread of its own, one session at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from switchyard_py.endpoints.answers import Refused
from switchyard_py.endpoints.session_requests import (
    MAX_SETTLE_SECONDS,
    json_stream,
    no_session,
    one_of,
    seconds_of,
    session_id_of,
    session_reader,
    settle,
)
from switchyard_py.errors import Kind
from switchyard_py.rawjson import encode
from switchyard_py.rollouts import (
    Delivery,
    Mode,
    NothingToTrain,
    Refusal,
    Session,
    SessionIncomplete,
    SourceError,
    build_lineage,
    deliver,
    read_session,
)
from switchyard_py.rollouts.selection import Which, named_main
from switchyard_py.store import SCHEMA_VERSION
from switchyard_py.worker import WorkThread

T = TypeVar("T")


async def show_lineage(request: Request) -> Response:
    """GET /v1/sessions/{id}/lineage: its calls and chains with a verdict on each, without ids and messages."""
    await settle(request, session_id_of(request), seconds_of(request, "settled", MAX_SETTLE_SECONDS))
    return Response(await _of_session(request, _lineage), media_type="application/json")


async def show_rollout(request: Request) -> Response:
    """GET /v1/sessions/{id}/rollout[?format=gym|rows&mode=strict|lineage&chains=main|all]: what can be trained on."""
    render = {"gym": _gym, "rows": _rows}[one_of(request, "format", ("gym", "rows"))]
    mode = cast(Mode, one_of(request, "mode", ("strict", "lineage")))
    which = cast(Which, one_of(request, "chains", ("main", "all")))
    session_id = session_id_of(request)
    await settle(request, session_id, seconds_of(request, "settled", MAX_SETTLE_SECONDS))
    parts = await _of_session(request, lambda session: list(render(deliver(session, mode, which))))
    head = b'{"schema_version":%d,"session_id":%b,"mode":%b,' % (
        SCHEMA_VERSION,
        orjson.dumps(session_id),
        orjson.dumps(mode),
    )
    return json_stream(iter([head, *parts, b"}"]))


async def main_chain_uuids(request: Request) -> frozenset[str]:
    """The records of a session's main chain. Raises Refused when there is none."""
    return await _of_session(request, _main_chain)


async def _of_session(request: Request, function: Callable[[Session], T]) -> T:
    """Run what reads all of a session where it keeps nobody waiting. Raises Refused."""
    reader, session_id = session_reader(request), session_id_of(request)
    if not await asyncio.to_thread(reader.exists, session_id):
        raise await no_session(request)
    rebuilding: WorkThread = request.state.services.rebuilding
    try:
        return await rebuilding.run(lambda: function(read_session(reader, session_id)))
    except (Refusal, NothingToTrain, SessionIncomplete) as refusal:
        raise Refused(Kind.ROLLOUT_REFUSED, str(refusal), refusal=refusal.to_json()) from None
    except SourceError as error:
        if not await asyncio.to_thread(reader.exists, session_id):
            raise await no_session(request) from None
        raise Refused(Kind.CAPTURE_UNAVAILABLE, str(error)) from error


def _main_chain(session: Session) -> frozenset[str]:
    lineage = build_lineage(session)
    path = lineage.chains[named_main(lineage)].calls
    return frozenset(str(lineage.forest.calls[index].uuid) for index in path)


def _lineage(session: Session) -> bytes:
    return orjson.dumps({"schema_version": SCHEMA_VERSION, **build_lineage(session).to_json()})


def _gym(delivery: Delivery) -> Iterator[bytes]:
    yield b'"rollouts":['
    for place, rollout in enumerate(delivery.gym_rollouts()):
        number = delivery.chains[place]
        yield (b"," if place else b"") + encode(
            {
                "chain": number,
                "main": number == delivery.lineage.main.chain,
                "responses_create_params": {"input": rollout.input, "tools": rollout.tools},
                "response": {"output": rollout.output, "metadata": rollout.metadata},
            }
        )
    yield b"]"


def _rows(delivery: Delivery) -> Iterator[bytes]:
    try:
        from switchyard_py.rollouts.rows import rows_of_chains
    except ModuleNotFoundError as error:
        text = f"format=rows needs {error.name}, which is not installed here: pip install 'switchyard-py[training]'"
        raise Refused(Kind.EXTRA_MISSING, text) from None
    yield b'"rows":['
    for place, row in enumerate(rows_of_chains(delivery.lineage, delivery.chains)):
        yield (b"," if place else b"") + row.to_json()
    yield b"]"
