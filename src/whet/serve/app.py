"""The web application, which has models, chat completions and health, and the server that runs it.

The server has one port and one event loop. It runs until a signal stops it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from whet.serve.answers import Answering
from whet.serve.completions import Completing, CompletionRequest
from whet.serve.generate import GenerateRequest, Generating
from whet.serve.limits import Gate
from whet.serve.models import ServedPolicies
from whet.serve.pipeline import ChatRunner
from whet.serve.scheduler import Scheduler
from whet.serve.schemas import ApiError, ChatRequest, of_validation
from whet.types import in_brief
from whet.web.server import address_of, listen, run_until_signal

logger = logging.getLogger(__name__)
MAX_BODY_BYTES = 2_000_000
"""Default limit on a request's body: half a million tokens of prose."""
KEEP_ALIVE_S = 75
"""Seconds that an idle connection stays open. Clients that reuse connections (httpx: 5 s) close first. With uvicorn's
5 s, a request now and then went into a connection that was just being closed."""
NO_CACHE = {"Cache-Control": "no-cache"}
GRACE_S = 30
"""Seconds that replies may take to end once the server stops."""


def app_of(served: ServedPolicies, *, max_body_bytes: int = MAX_BODY_BYTES, api_key: str | None = None) -> FastAPI:
    """Serves the policies of a run. Its engine runs from the application's start to its end.

    Args:
        max_body_bytes: of a request's body; a longer one is refused with 413.
        api_key: clients send it as `Authorization: Bearer KEY`. None: no key is needed.
    """
    scheduler = Scheduler(served.policies, served.engine)
    runner = ChatRunner(served, scheduler)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await scheduler.start()
        yield
        await asyncio.to_thread(scheduler.close)
        runner.close()

    app = FastAPI(title="whet", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Gate, max_body_bytes=max_body_bytes, api_key=api_key)
    _add_errors(app)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "waiting": scheduler.num_waiting, "running": scheduler.num_running}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(served, name) for name in served.names]}

    @app.get("/v1/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        if name not in served.names:
            raise ApiError(404, f"there is no model {in_brief(name)}", param="model", code="model_not_found")
        return _model(served, name)

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(chat_request: ChatRequest, request: Request) -> Response:
        answering = Answering(runner, chat_request, await runner.begin(chat_request))
        if chat_request.stream:
            return StreamingResponse(answering.events(), media_type="text/event-stream", headers=NO_CACHE)
        return await _complete(request, answering)

    @app.post("/v1/completions", response_model=None)
    async def completions(text_request: CompletionRequest, request: Request) -> Response:
        model = text_request.model
        if model not in served.policies:
            message = f"there is no model {in_brief(model)}; choose of: {', '.join(served.policies)}"
            raise ApiError(404, message, param="model", code="model_not_found")
        limit = text_request.max_tokens or served.limits[model].max_new_tokens
        completing = Completing(runner, text_request, await runner.read_text(model, text_request.prompt, limit))
        if text_request.stream:
            return StreamingResponse(completing.events(), media_type="text/event-stream", headers=NO_CACHE)
        return await _complete(request, completing)

    @app.post("/inference/v1/generate", response_model=None)
    async def generate(generate_request: GenerateRequest, request: Request) -> Response:
        return await _complete(request, Generating(served, scheduler, generate_request))

    return app


async def _complete(request: Request, answering: Answering | Completing | Generating) -> Response:
    """The completion, which is cancelled if the client leaves."""
    completion, disconnect = asyncio.create_task(answering.whole()), asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({completion, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        return JSONResponse(await completion) if completion.done() else Response(status_code=499)  # nobody reads it
    finally:
        for task in (completion, disconnect):
            task.cancel()
        await asyncio.gather(completion, disconnect, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _model(served: ServedPolicies, name: str) -> dict[str, Any]:
    positions = served.positions(name) if name in served.policies else None
    known = {} if positions is None else {"max_model_len": positions}
    return {"id": name, "object": "model", "created": served.created, "owned_by": "whet"} | known


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def ours(_: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        return of_validation(error).response()

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        message = f"{error.detail}: {request.method} {request.url.path}"
        return ApiError(error.status_code, message, code="unknown_url" if error.status_code == 404 else None).response()

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        logger.error("a request failed", exc_info=error)
        return ApiError(500, str(error)[:500] or type(error).__name__).response()


def serve(
    served: ServedPolicies,
    host: str,
    port: int,
    started: Callable[[str], None],
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    api_key: str | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM. Replies in progress are finished first.

    Args:
        port: 0: a free one.
        started: called with the address, before the first request.
        max_body_bytes: see `app_of`, as `api_key`.
    Raises: ConfigError where an engine refuses a model; RunError where the port cannot be bound.
    """
    app = app_of(served, max_body_bytes=max_body_bytes, api_key=api_key)
    listener = listen(host, port)
    started(address_of(host, listener))
    run_until_signal(app, listener, grace_s=GRACE_S, timeout_keep_alive=KEEP_ALIVE_S)
