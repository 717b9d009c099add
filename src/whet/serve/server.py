"""The server process: one port, one loop, until a signal stops it."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from whet.errors import RunError
from whet.serve.app import MAX_BODY_BYTES, app_of
from whet.serve.models import Cast

GRACE_S = 30
"""Seconds that replies may take to end once the server stops."""


class _Server(uvicorn.Server):
    """uvicorn's server, but a signal that stopped it is not raised again: it is no failure."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {name: signal.signal(name, self.handle_exit) for name in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)


def serve(
    cast: Cast, host: str, port: int, started: Callable[[str], None], *, max_body_bytes: int = MAX_BODY_BYTES,
    api_key: str | None = None,
) -> None:  # fmt: skip
    """Serve until SIGINT or SIGTERM. Replies in progress are finished first.

    Args:
        port: 0: a free one.
        started: called with the address, before the first request.
        max_body_bytes: see `app_of`, as `api_key`.
    Raises: RunError where the port cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot listen on {host}, port {port}: {reason}; choose another --port or --host") from error
    shown = f"[{host}]" if ":" in host else host
    started(f"http://{shown}:{listener.getsockname()[1]}")
    settings = uvicorn.Config(
        app_of(cast, max_body_bytes=max_body_bytes, api_key=api_key), log_level="warning", access_log=False,
        timeout_graceful_shutdown=GRACE_S, lifespan="on",
    )  # fmt: skip
    _Server(settings).run(sockets=[listener])
