"""The simulator as an ASGI application: vLLM's routes, its key check and its error shapes."""

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from switchyard_py.simulator.engine import Engine
from switchyard_py.simulator.envelope import VERSION, now, random_id
from switchyard_py.simulator.errors import EngineError
from switchyard_py.simulator.requests import AbortBody, DetokenizeBody, TokenizeBody, check_vocabulary, read_body
from switchyard_py.simulator.settings import SimulatorSettings
from switchyard_py.simulator.streaming import JsonReply
from switchyard_py.simulator.template import render_prompt
from switchyard_py.simulator.tokenizer import decode, encode, token_name


def create_simulator(settings: SimulatorSettings | None = None) -> Starlette:
    """An application with an engine of its own: two of them share nothing."""
    engine = Engine(settings or SimulatorSettings())
    side = _SideRoutes(engine)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", engine.chat, methods=["POST"]),
            Route("/v1/completions", engine.complete, methods=["POST"]),
            Route("/v1/models", side.models, methods=["GET"]),
            Route("/tokenize", side.tokenize, methods=["POST"]),
            Route("/detokenize", side.detokenize, methods=["POST"]),
            Route("/health", side.health, methods=["GET"]),
            Route("/version", side.version, methods=["GET"]),
            Route("/abort_requests", side.abort_requests, methods=["POST"]),
            Route("/pause", side.pause, methods=["POST"]),
            Route("/resume", side.resume, methods=["POST"]),
            Route("/is_paused", side.is_paused, methods=["GET"]),
            Route("/simulator/requests", side.requests, methods=["GET"]),
        ],
        middleware=[Middleware(_ApiKey, api_key=engine.settings.api_key)],
        exception_handlers={EngineError: _on_engine_error, HTTPException: _on_http_error},
    )


class _SideRoutes:
    """Everything that does not generate."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._settings = engine.settings

    async def models(self, request: Request) -> Response:
        created = now()
        permission = {
            "id": f"modelperm-{random_id()}",
            "object": "model_permission",
            "created": created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        card = {
            "id": self._settings.model,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": self._settings.model,
            "parent": None,
            "max_model_len": self._settings.max_model_len,
            "permission": [permission],
        }
        return JsonReply({"object": "list", "data": [card]})

    async def tokenize(self, request: Request) -> Response:
        body = await read_body(request, TokenizeBody)
        text = body.prompt
        if text is None:
            thinking = (body.chat_template_kwargs or {}).get("enable_thinking", self._settings.thinking)
            text = render_prompt(
                body.messages or [],
                body.tools,
                enable_thinking=bool(thinking),
                keep_thinking=self._settings.keep_thinking,
                add_generation_prompt=body.add_generation_prompt,
            )
        tokens = encode(text)
        names = [token_name(token) for token in tokens] if body.return_token_strs else None
        size = {"count": len(tokens), "max_model_len": self._settings.max_model_len}
        return JsonReply({**size, "tokens": tokens, "token_strs": names})

    async def detokenize(self, request: Request) -> Response:
        body = await read_body(request, DetokenizeBody)
        check_vocabulary(body.tokens)
        return JsonReply({"prompt": decode(body.tokens)})

    async def health(self, request: Request) -> Response:
        return Response()

    async def version(self, request: Request) -> Response:
        return JsonReply({"version": VERSION})

    async def abort_requests(self, request: Request) -> Response:
        body = await read_body(request, AbortBody)
        self._engine.generator.abort(body.request_ids)
        return Response()

    async def pause(self, request: Request) -> Response:
        self._engine.generator.pause(abort=request.query_params.get("mode", "abort") == "abort")
        return JsonReply({"status": "paused"})

    async def resume(self, request: Request) -> Response:
        self._engine.generator.resume()
        return JsonReply({"status": "resumed"})

    async def is_paused(self, request: Request) -> Response:
        return JsonReply({"is_paused": self._engine.generator.is_paused})

    async def requests(self, request: Request) -> Response:
        return JsonReply(self._engine.journal.report())


class _ApiKey:
    """Asks for the bearer token under /v1, and only there, as the engine does."""

    def __init__(self, app: ASGIApp, api_key: str | None) -> None:
        self._app = app
        self._expected = None if api_key is None else f"Bearer {api_key}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = scope["type"] == "http" and scope["path"].startswith("/v1") and self._expected is not None
        if guarded and Headers(scope=scope).get("authorization") != self._expected:
            await JsonReply({"error": "Unauthorized"}, 401)(scope, receive, send)
            return
        await self._app(scope, receive, send)


async def _on_engine_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    return JsonReply(error.body, error.status)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reply = JsonReply({"detail": error.detail}, error.status_code)
    reply.headers.update(error.headers or {})
    return reply
