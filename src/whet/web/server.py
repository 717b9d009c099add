"""One port and one event loop, which run until a signal stops them."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from whet.errors import RunError
from whet.web.http import protocol


class Server(uvicorn.Server):
    """uvicorn's server, but a signal that stopped it is not raised again: it is no failure."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {name: signal.signal(name, self.handle_exit) for name in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for name, handler in previous.items():
                signal.signal(name, handler)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket.

    Args:
        port: 0: a free one.
    Raises: RunError where the port cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named: asyncio sends small answers at once (TCP_NODELAY) only where it sees that it is TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # so that who reads the address may connect, and waits for the loop
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot listen on {host}, port {port}: {reason}; choose another --port or --host") from error
    return listener


def address_of(host: str, listener: socket.socket) -> str:
    """The address that clients use."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


def run_until_signal(app: ASGIApp, listener: socket.socket, *, grace_s: int, **settings: Any) -> None:
    """Serves until SIGINT or SIGTERM. Requests in progress are finished first.

    Args:
        grace_s: seconds that they may take.
        settings: more of uvicorn's.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=grace_s,
        lifespan="on",
        http=protocol(),
        **settings,
    )
    Server(config).run(sockets=[listener])
