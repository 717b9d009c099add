"""Requests to a server of environments over HTTP: time limits, repeats, sizes, and JSON that may be anything.

All threads of a process share one pool of connections, and each session belongs to one thread at a time.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.config.environment_data import RemoteEnvironment
from whet.distribution import how_to_install
from whet.envs.protocol import EnvError
from whet.envs.remote.deadline import deadline, transport
from whet.envs.remote.errors import BadAnswer, Full, TooSlow, Unreachable

TOKEN = "WHET_ENV_TOKEN"
"""The variable that holds the token of the servers. Settings never do, as runs save them."""
MAX_BYTES = 32 * 2**20
"""Of one answer."""
IDLE_S = 2.0
"""Seconds after which an unused connection is closed: before the servers close it (uvicorn: after 5 s)."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
"""Seconds before a request goes again, doubled each time; at most."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a server is waited for: see `RemoteEnvironment`."""

    timeout_s: float = 60.0
    connect_s: float = 5.0
    wait_s: float = 30.0
    reconnects: int = 5

    @classmethod
    def of(cls, remote: RemoteEnvironment) -> Limits:
        return cls(remote.timeout_s, remote.connect_s, remote.wait_s, remote.reconnects)


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer to one request."""

    status: int
    data: Any
    """Of its JSON."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server at an address. It pickles: the connections belong to the process."""

    url: str
    limits: Limits = field(default_factory=Limits)

    def ask(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        is_get: bool = False,
        repeats: bool = False,
        waits: bool = False,
        timeout_s: float | None = None,
    ) -> Reply:
        """The answer to a request, whatever its status.

        Args:
            path: after the address, with its slash.
            body: sent as JSON. None: no body.
            repeats: the server knows a request that comes again, so that it may go again where a connection was cut.
            waits: a full server (503) is asked again until `wait_s` is over.
            timeout_s: seconds for each answer, from the first byte sent to the last one read. None: as the limits say.
        Raises: Unreachable, TooSlow, Full, BadAnswer.
        """
        method = "GET" if is_get else "POST"
        until, num_cut, pause_s = time.monotonic() + self.limits.wait_s, 0, FIRST_PAUSE_S
        while True:
            try:
                status, pause_asked_s, data = self._sent(method, path, body, params, timeout_s)
            except Unreachable:
                num_cut += 1
                if not repeats or num_cut > self.limits.reconnects:
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            if status != 503 or not waits:
                return Reply(status, self._parsed(data, path, status))
            if time.monotonic() + pause_asked_s > until:
                raise Full(
                    f"{self.url} is full, and was waited for {self.limits.wait_s:g} s (wait_s): lower pool.capacity, "
                    "or let the server hold more sessions"
                )
            time.sleep(pause_asked_s)

    def _sent(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        params: Mapping[str, Any] | None,
        timeout_s: float | None,
    ) -> tuple[int, float, bytes]:
        """Status, the pause that the server asks for in seconds, and the body of one answer."""
        httpx = _httpx()
        limit_s = timeout_s or self.limits.timeout_s
        timeout = httpx.Timeout(limit_s, connect=min(self.limits.connect_s, limit_s))
        content = None if body is None else json.dumps(body).encode()
        try:
            with (
                deadline(limit_s) as until,
                _client().stream(
                    method, f"{self.url}{path}", content=content, params=params, headers=_headers(body), timeout=timeout
                ) as response,
            ):
                data = self._read(response, until, limit_s)
                return response.status_code, _pause(response.headers.get("Retry-After")), data
        except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as error:
            raise self._late(limit_s) from error
        except httpx.TransportError as error:
            said = str(error) or type(error).__name__
            raise Unreachable(f"no connection with {self.url}: {said[:200]}; is its server up?") from error
        except (httpx.InvalidURL, httpx.DecodingError) as error:
            raise BadAnswer(f"{self.url}{path} cannot be asked: {error}") from error

    def _read(self, response: Any, until: float, limit_s: float) -> bytes:
        data = bytearray()
        for part in response.iter_raw():
            data += part
            if len(data) > MAX_BYTES:
                raise BadAnswer(f"{self.url} answers more than {MAX_BYTES:,} bytes")
            if time.monotonic() > until:  # behind a proxy, a server that sends a byte now and then is never late
                raise self._late(limit_s)
        return bytes(data)

    def _late(self, limit_s: float) -> TooSlow:
        return TooSlow(f"{self.url} did not answer within {limit_s:g} s (timeout_s)")

    def _parsed(self, data: bytes, path: str, status: int) -> Any:
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            shown = data[:60].decode("utf-8", "replace")
            raise BadAnswer(f"{self.url}{path} answers {status} and no JSON: {shown!r}") from error


def token() -> str | None:
    """The servers' token, from the variable `TOKEN`.

    Raises: EnvError where it holds what a header cannot.
    """
    text = os.environ.get(TOKEN, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isprintable()):
        raise EnvError(f"{TOKEN} holds characters that no header can: set it to the server's token")
    return text


def _headers(body: Mapping[str, Any] | None) -> dict[str, str]:
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if (held := token()) is not None:
        headers["Authorization"] = f"Bearer {held}"
    return headers


def _pause(asked: str | None) -> float:
    """Seconds of a `Retry-After` header, within reason."""
    try:
        seconds = float(asked or 1.0)
    except ValueError:  # a date
        seconds = 1.0
    return min(max(seconds, FIRST_PAUSE_S), LONGEST_PAUSE_S) if seconds == seconds else 1.0


_clients: dict[int, Any] = {}
"""The pool of connections, by process: a forked one must not use its parent's."""
_lock = threading.Lock()


def _client() -> Any:
    pid = os.getpid()
    with _lock:
        if pid not in _clients:
            httpx = _httpx()
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=IDLE_S)
            _clients.clear()
            _clients[pid] = httpx.Client(limits=limits, follow_redirects=False, transport=transport(limits))
        return _clients[pid]


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise EnvError(f"remote environments need httpx: {how_to_install('remote')}") from error
    return httpx
