"""A time limit on whole requests. httpx limits each read, and a server that drips its headers outlives that.

httpx and httpcore load late, so the classes here stand in for theirs without being derived from them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies

if TYPE_CHECKING:
    import httpcore
    import httpx

_until: ContextVar[float | None] = ContextVar("until", default=None)
"""When the request of this thread is late, by `time.monotonic`. None: its reads have a limit each, and no more."""


@contextmanager
def deadline(seconds: float) -> Iterator[float]:
    """Within it, a request of this thread that goes through `transport` is late after so many seconds in all.

    Returns: when that is, by `time.monotonic`.
    """
    until = time.monotonic() + seconds
    token = _until.set(until)
    try:
        yield until
    finally:
        _until.reset(token)


def transport(limits: httpx.Limits) -> Any:
    """A transport whose requests keep to their `deadline`. None where the environment names a proxy: httpx reaches
    servers through it, with a limit on each read."""
    return None if {"http", "https", "all"} & getproxies().keys() else _Transport(limits)


class _Transport:
    """An `httpx.BaseTransport` over connections that know the deadline."""

    def __init__(self, limits: httpx.Limits) -> None:
        import httpcore
        import httpx

        backend: Any = _Backend(httpcore.SyncBackend())
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=backend,
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        import httpcore
        import httpx

        class Body(httpx.SyncByteStream):
            def __iter__(self) -> Iterator[bytes]:
                with _in_httpx_terms():
                    yield from parts

            def close(self) -> None:
                parts.close()

        url = request.url
        content: Any = request.stream
        core_request = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=content,
            extensions=request.extensions,
        )
        with _in_httpx_terms():
            answer = self._pool.handle_request(core_request)
        parts: Any = answer.stream
        return httpx.Response(answer.status, headers=answer.headers, stream=Body())

    def close(self) -> None:
        self._pool.close()


class _Backend:
    """An `httpcore.NetworkBackend` that makes such connections."""

    def __init__(self, sockets: httpcore.SyncBackend) -> None:
        self._sockets = sockets

    def connect_tcp(self, *args: Any, **options: Any) -> _Stream:
        return _Stream(self._sockets.connect_tcp(*args, **options))

    def sleep(self, seconds: float) -> None:
        self._sockets.sleep(seconds)


class _Stream:
    """An `httpcore.NetworkStream` whose reads and writes end by the deadline."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, "ReadTimeout"))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout, "WriteTimeout"))

    def start_tls(self, *args: Any, **options: Any) -> _Stream:
        return _Stream(self._stream.start_tls(*args, **options))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()


def _left(timeout: float | None, late: str) -> float | None:
    """Seconds that a read or write may take.

    Raises: httpcore's error of the name `late` where the deadline is over.
    """
    if (until := _until.get()) is None:
        return timeout
    if (left := until - time.monotonic()) <= 0:
        import httpcore

        raise getattr(httpcore, late)("the whole request is late")
    return left if timeout is None else min(timeout, left)


@contextmanager
def _in_httpx_terms() -> Iterator[None]:
    """httpcore's errors as those of httpx, which have the same names."""
    import httpcore
    import httpx

    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise getattr(httpx, type(error).__name__, httpx.TransportError)(str(error)) from error
