"""An HTTP server on loopback whose answers a test writes: for servers of others, their quirks and their mistakes."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = Callable[[str, dict[str, Any]], Any]
"""From the path and the body (or the query), what is sent: JSON with 200, a tuple of status and JSON, or bytes."""


class JsonServer(ThreadingHTTPServer):
    """Answers by a function, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, answer: Answer, *, headers: dict[str, str] | None = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer, self.headers = answer, headers or {}
        self.asked: list[tuple[str, Any]] = []
        self.sent: list[dict[str, str]] = []
        """The headers of the requests."""
        self._connections: list[socket.socket] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are no news."""

    def __exit__(self, *args: Any) -> None:
        """As a server that is killed: its connections end too."""
        self.shutdown()
        self.server_close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: JsonServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None: ...

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self._send(urlsplit(self.path).path, query)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._send(self.path, json.loads(data) if data else None)

    def _send(self, path: str, body: Any) -> None:
        self.server.asked.append((path, body))
        self.server.sent.append({name.lower(): value for name, value in self.headers.items()})
        answer = self.server.answer(path, body if body is not None else {})
        status, said = answer if isinstance(answer, tuple) else (200, answer)
        data = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
