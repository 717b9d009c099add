"""The web application of environments: three wires over the same sessions, behind one gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from whet.envs.server.agentgym import AgentGym
from whet.envs.server.api import Api
from whet.envs.server.openenv import OpenEnv
from whet.envs.server.requests import refused
from whet.envs.server.served import Served
from whet.envs.server.sessions import Sessions
from whet.envs.wire import PREFIX, WireError
from whet.errors import text_of
from whet.web import gate
from whet.web.server import address_of, listen, run_until_signal

MAX_BODY_BYTES = 2_000_000
"""Default limit on a request's body, and on a message of a WebSocket."""
GRACE_S = 10
"""Seconds that calls may take to end once the server stops."""
CODES: Mapping[int, str] = {401: "unauthorized", 408: "too_slow", 413: "too_large"}
"""What errors of the gate are called, by status."""


class Gate(gate.Gate):
    """Refuses in the shape of errors of `/v1`."""

    open_paths = (f"{PREFIX}/health",)

    def refusal(self, status: int, reason: str) -> Response:
        return refused(WireError(CODES[status], reason))


def app_of(
    served: Mapping[str, Served],
    sessions: Sessions,
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    token: str | None = None,
) -> Starlette:
    """Serves environments. Sessions are closed when the application ends.

    Args:
        max_body_bytes: of a request's body; a longer one is refused with 413.
        token: clients send it as `Authorization: Bearer TOKEN`. None: no token is needed.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sweeper = asyncio.create_task(sessions.sweep())
        yield
        sweeper.cancel()
        with suppress(asyncio.CancelledError):
            await sweeper
        await sessions.close_all()

    return Starlette(
        routes=[
            *Api(served, sessions).routes(),
            *AgentGym(served, sessions).routes(),
            *OpenEnv(served, sessions).routes(),
        ],
        middleware=[Middleware(Gate, max_body_bytes=max_body_bytes, api_key=token)],
        exception_handlers={WireError: _ours, HTTPException: _unknown, Exception: _broken},
        lifespan=lifespan,
    )


async def _ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, WireError)
    return refused(error)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code not in (404, 405):
        return refused(WireError("bad_request", str(error.detail)))
    message = f"there is no {request.method} {request.url.path} here (docs/env-server.md has what there is)"
    return refused(WireError("unknown_url", message))


async def _broken(_: Request, error: Exception) -> Response:
    """The error is raised again behind this answer, and uvicorn logs it."""
    return refused(WireError("server_error", f"the server failed: {type(error).__name__}: {text_of(error)}"))


def serve(
    served: Mapping[str, Served],
    sessions: Sessions,
    host: str,
    port: int,
    started: Callable[[str], None],
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    token: str | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM.

    Args:
        port: 0: a free one.
        started: called with the address, before the first request.
        max_body_bytes: see `app_of`, as `token`.
    Raises: RunError where the port cannot be bound.
    """
    listener = listen(host, port)
    started(address_of(host, listener))
    app = app_of(served, sessions, max_body_bytes=max_body_bytes, token=token)
    run_until_signal(
        app, listener, grace_s=GRACE_S, ws="websockets-sansio", ws_max_size=max_body_bytes, ws_per_message_deflate=False
    )
