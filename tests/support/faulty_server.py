"""An OpenAI-compatible server on loopback that goes wrong in chosen ways."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAYS = (
    *(
        "ok",
        "429",
        "500",
        "503",
        "401",
        "404",
        "400",
        "drop",
        "half",
        "stall",
        "not_json",
        "other_json",
        "empty_choices",
    ),
    *("null_content", "other_model", "filtered", "slow", "no_usage", "wrong_types", "reset"),
    *("text_usage", "odd_usage", "echo_key"),
)
"""What may happen to a request."""


class FaultyServer(ThreadingHTTPServer):
    """Answers requests in the ways given, one after the other; the last one stays."""

    daemon_threads = True

    def __init__(self, ways: Sequence[str], text: str = "fine", stall_s: float = 5.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ways, self.text, self.stall_s = list(ways), text, stall_s
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def next_way(self) -> str:
        with self.lock:
            return self.ways.pop(0) if len(self.ways) > 1 else self.ways[0]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are no news."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultyServer

    def log_message(self, *args: Any) -> None: ...

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        way, server = self.server.next_way(), self.server
        if way.isdigit():
            self._send(json.dumps({"error": {"message": f"way {way}"}}).encode(), int(way))
        elif way == "echo_key":  # so that a sentence of 300 characters ends within it, and whole before that
            key = self.headers["Authorization"]
            said = f"no such key: {key}. ".ljust(288, ".") + key
            self._send(json.dumps({"error": {"message": said}}).encode(), 401)
        elif way in ("drop", "reset"):
            self.connection.close()
        elif way == "stall":
            time.sleep(server.stall_s)
        else:
            self._whole(way, body)

    def _whole(self, way: str, body: dict[str, Any]) -> None:
        message = {"role": "assistant", "content": None if way == "null_content" else self.server.text}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "content_filter" if way == "filtered" else "stop"}
        choice |= {"message": message} if "messages" in body else {"text": self.server.text}
        found: dict[str, Any] = {
            "id": "x", "object": "chat.completion", "created": 0,
            "model": "somebody-else" if way == "other_model" else body["model"],
            "choices": [] if way == "empty_choices" else [choice],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }  # fmt: skip
        if way == "no_usage":
            del found["usage"]
        if way == "text_usage":
            found["usage"] = {"prompt_tokens": "7", "completion_tokens": "3"}
        if way == "odd_usage":
            found["usage"] = {"prompt_tokens": "x", "completion_tokens": [3]}
        if way == "wrong_types":
            found["choices"] = "many"
        data = json.dumps({"hello": 1} if way == "other_json" else found).encode()
        if way == "not_json":
            data = b"<html>" + data
        if way == "half":
            self._send(data, 200, length=len(data), cut=len(data) // 2)
            return
        if way == "slow":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            for at in range(0, len(data), 64):
                self.wfile.write(data[at : at + 64])
                self.wfile.flush()
                time.sleep(0.01)
            return
        self._send(data, 200)

    def _send(self, data: bytes, status: int, *, length: int | None = None, cut: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data[:cut])
        if cut is not None:
            self.connection.close()


@contextmanager
def faulty(*ways: str, **more: Any) -> Iterator[FaultyServer]:
    """The server while it runs."""
    server = FaultyServer(ways, **more)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
