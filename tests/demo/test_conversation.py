"""The agent's reading of a stream, and of everything that is no complete reply."""

import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from switchyard_py.demo.conversation import Fragment, Reply, Unanswered, ask
from switchyard_py.demo.stage import serving


def chunk(delta: dict[str, Any], **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, **choice}]}


def call(**function: str) -> dict[str, Any]:
    named = {"id": "c1", "type": "function"} if "name" in function else {}
    return {"tool_calls": [{"index": 0, **named, "function": function}]}


def sse(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks)


async def answer(
    *pieces: bytes, status: int = 200, recorded: list[bool] | None = None
) -> tuple[Reply, list[Fragment], dict[str, Any]]:
    """What the agent has of a proxy that sends these pieces; `recorded` is what it finds on disk, look by look."""
    asked: dict[str, Any] = {}

    async def proxy(request: Request) -> Response:
        asked.update(await request.json(), session=request.headers["proxy_x_session_id"])

        async def body() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        return StreamingResponse(body(), status, {"x-request-id": "u1"})

    looks = iter(recorded or [False] * 9)
    shown: list[Fragment] = []
    app = Starlette(routes=[Route("/v1/chat/completions", proxy, methods=["POST"])])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with (
            serving(app, listener) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, verify=False) as client,
        ):
            messages = [{"role": "user", "content": "hi"}]
            reply = await ask(client, "s", messages, lambda _: next(looks), shown.append)
    return reply, shown, asked


async def test_a_tool_call_is_actionable_before_its_finish() -> None:
    reply, shown, asked = await answer(
        sse(chunk({"role": "assistant", "content": ""})),
        sse(chunk({"reasoning": "hm"})),
        sse(chunk(call(name="f"))),
        sse(chunk(call(arguments='{"a": '))),
        sse(chunk(call(arguments="1")), chunk(call(arguments="}"))),
        sse(chunk({}, finish_reason="tool_calls")) + b": comment\n\ndata: [DONE]\n\n",
        recorded=[False, True],
    )
    assert (asked["session"], asked["stream"], asked["messages"]) == ("s", True, [{"role": "user", "content": "hi"}])
    assert [(each.part, each.text, each.released) for each in shown] == [
        ("reasoning", "hm", False),
        ("tool call", "f(", False),
        ("tool call", '{"a": ', False),
        ("tool call", "1", True),
        ("tool call", "}", True),
    ]
    assert (reply.uuid, reply.finish_reason) == ("u1", "tool_calls")
    assert (reply.recorded_at_first_token, reply.recorded_at_tail) == (False, True)
    assert reply.message == {
        "role": "assistant",
        "content": "",
        "reasoning": "hm",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
    }


async def test_a_reply_that_comes_all_at_once_had_no_live_token() -> None:
    reply, shown, _ = await answer(sse(chunk({"content": "all"}), chunk({}, finish_reason="stop")), recorded=[True])
    assert reply.recorded_at_first_token is None
    assert shown == [Fragment("answer", "all", True)]
    assert "tool_calls" not in reply.message


@pytest.mark.parametrize("ids", [[], [1]])
async def test_capture_fields_that_reach_the_agent_are_noted(ids: list[int]) -> None:
    shown: dict[str, Any] = {"prompt_token_ids": ids}
    reply, _, _ = await answer(sse({**chunk({}, token_ids=ids, logprobs=None, finish_reason="stop"), **shown}))
    assert reply.captured_keys == {"prompt_token_ids", "token_ids"}


async def test_null_says_that_there_is_none() -> None:
    nothing: dict[str, Any] = {"prompt_token_ids": None}
    reply, _, _ = await answer(sse({**chunk({}, token_ids=None, logprobs=None, finish_reason="stop"), **nothing}))
    assert reply.captured_keys == set()


@pytest.mark.parametrize(
    ("pieces", "status", "problem"),
    [
        ([b'{"error": {"message": "no"}}'], 503, "the proxy answered 503: no"),
        ([b"what?"], 500, "the proxy answered 500: what?"),
        ([sse(chunk({"content": "a"}), {"error": {"message": "dead"}})], 200, "the stream ended with an error: dead"),
        ([sse(chunk({"content": "a"}))], 200, "the stream ended without a finish reason"),
    ],
)
async def test_what_is_no_complete_reply(pieces: list[bytes], status: int, problem: str) -> None:
    with pytest.raises(Unanswered, match=f"^{problem}"):
        await answer(*pieces, status=status)


async def test_nobody_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, verify=False) as client:
            with pytest.raises(Unanswered, match=r"^ConnectError"):
                await ask(client, "s", [], lambda _: False, lambda _: None)
