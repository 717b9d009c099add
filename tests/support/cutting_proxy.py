"""A proxy on loopback between a client and a server that does to connections what networks do."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from typing import Literal

Way = Literal["fine", "cut", "half_open", "slow", "garbage"]
_RESET = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Passes bytes on, and spoils some requests.

    Args:
        port: of the server behind it.
        share: of the requests that are spoilt.
        way: how. cut: the connection is reset, half of the time before the request is passed on, half of the time
            after its answer has come. half_open: the request is swallowed, and the connection stays. slow: the answer
            comes after `slow_s`. garbage: the answer's bytes are overwritten.
    """

    def __init__(self, port: int, *, share: float = 0.0, way: Way = "cut", slow_s: float = 1.0, seed: int = 0) -> None:
        self.share, self.way, self.slow_s = share, way, slow_s
        self.counts: Counter[str] = Counter()
        """Requests, and those that were spoilt."""
        self._to, self._rng, self._lock = port, random.Random(seed), threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.close()
        self.cut_all()

    def cut_all(self) -> None:
        """Resets every connection."""
        with self._lock:
            held, self._open = self._open, set()
        for end in held:
            _reset(end)

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(end,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One connection: HTTP/1.1 without pipelining, so that what comes from the client is one request."""
        server = None
        with contextlib.suppress(OSError):
            server = socket.create_connection(("127.0.0.1", self._to))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            while request := _message(client):
                way = self._way_of_request()
                if way == "half_open":
                    continue
                if way == "cut_before":
                    break
                server.sendall(request)
                answer = _message(server)
                if not answer or way == "cut_after":
                    break
                if way == "slow":
                    time.sleep(self.slow_s)
                client.sendall(_spoilt(answer) if way == "garbage" else answer)
        with self._lock:
            self._open -= {client, server}  # type: ignore[arg-type]
        for end in filter(None, (client, server)):
            _reset(end)

    def _way_of_request(self) -> str:
        with self._lock:
            self.counts["requests"] += 1
            if self._rng.random() >= self.share:
                return "fine"
            self.counts["spoilt"] += 1
            return f"cut_{self._rng.choice(['before', 'after'])}" if self.way == "cut" else self.way


def _message(end: socket.socket) -> bytes:
    """One HTTP message with its body. Empty: the connection has ended."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = end.recv(65536)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        part = end.recv(65536)
        if not part:
            return b""
        body += part
    return head + b"\r\n\r\n" + body


def _spoilt(answer: bytes) -> bytes:
    head, mark, body = answer.partition(b"\r\n\r\n")
    return head + mark + bytes((byte * 7 + 3) % 256 for byte in body)


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        end.close()
