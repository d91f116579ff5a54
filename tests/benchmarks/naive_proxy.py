"""The yardstick: the forwarder anybody would write first. Starlette and httpx, JSON parsed and dumped, no capture."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


def build(engine: str) -> Starlette:
    client = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None))

    async def chat(request: Request) -> Response:
        body = await request.json()
        body["model"] = "actual"
        if not body.get("stream"):
            reply = await client.post(f"{engine}/chat/completions", json=body)
            return JSONResponse(reply.json(), reply.status_code)
        upstream = await client.send(client.build_request("POST", f"{engine}/chat/completions", json=body), stream=True)

        async def events() -> AsyncIterator[str]:
            async for line in upstream.aiter_lines():
                if line.startswith("data: {"):
                    yield f"data: {json.dumps(json.loads(line[6:]))}\n\n"
                elif line:
                    yield line + "\n\n"
            await upstream.aclose()

        return StreamingResponse(events(), media_type="text/event-stream")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await client.aclose()

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])], lifespan=lifespan)


if __name__ == "__main__":
    uvicorn.run(build(sys.argv[2]), port=int(sys.argv[1]), log_level="warning", access_log=False)
