"""Hostile bytes on the server's sockets: frames and fragments, bodies that break off, and clients that vanish."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from support.env_server import Wild, env_server, until, wild
from whet.envs.server.app import Gate

STATE = b'{"type": "state"}'
HTTP = b"POST /v1/create HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


@pytest.fixture(scope="module")
def server():
    with env_server("maze", more={"wild": wild()}, max_body_bytes=50_000) as running:
        yield running


def frame(opcode: int, data: bytes = b"", *, fin: bool = True, masked: bool = True, rsv: int = 0) -> bytes:
    size = len(data)
    length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size)
    head = bytes([fin << 7 | rsv << 4 | opcode, length[0] | masked << 7]) + length[1:]
    key = os.urandom(4)
    return head + (key + bytes(byte ^ key[place % 4] for place, byte in enumerate(data)) if masked else data)


def connected(address: str, more: str = "") -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=5)
    key = base64.b64encode(os.urandom(16)).decode()
    connection.sendall(
        f"GET /openenv/maze/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{more}\r\n".encode()
    )
    said = b""
    while b"\r\n\r\n" not in said:
        said += connection.recv(1)
    assert said.startswith(b"HTTP/1.1 101"), said
    return connection


def answered(address: str, sent: bytes) -> bytes:
    """What comes within a message, or until the server closes."""
    said = b""
    with connected(address) as connection, contextlib.suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(sent)
        while b"}}" not in said and (part := connection.recv(65536)):
            said += part
    return said


@pytest.mark.parametrize(
    "sent",
    [
        frame(1, STATE[:1], fin=False) + b"".join(frame(0, bytes([c]), fin=False) for c in STATE[1:]) + frame(0),
        frame(1, STATE[:5], fin=False) + frame(9, b"ping") + frame(0, STATE[5:]),
        frame(1, fin=False) + frame(0, fin=False) * 5_000 + frame(0, STATE),
        frame(2, STATE),
        frame(9, b"x") * 5_000 + frame(1, STATE),
    ],
    ids=["bytes", "ping_between", "empty", "binary", "pings"],
)
def test_a_message_in_fragments_is_one_message(server, sent):
    assert b'"step_count":0' in answered(server[0], sent)


PROTOCOL, TEXT, LONG = struct.pack(">H", 1002), struct.pack(">H", 1007), struct.pack(">H", 1009)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(1, STATE, masked=False), PROTOCOL),
        (frame(1, STATE, rsv=4), PROTOCOL),
        (frame(0, STATE), PROTOCOL),
        (frame(1, b"{", fin=False) + frame(1, STATE), PROTOCOL),
        (frame(3), PROTOCOL),
        (frame(9, b"x", fin=False), PROTOCOL),
        (frame(8, b"\x03"), PROTOCOL),
        (frame(1, b"\xff\xfe"), TEXT),
        (b"\x81\xff" + struct.pack(">Q", 2**63), LONG),
        (b"\x81\xff" + struct.pack(">Q", 50_001), LONG),
        (frame(1, b"x" * 40_000, fin=False) + frame(0, b"x" * 40_000, fin=False), LONG),
    ],
    ids=["unmasked", "rsv", "no_start", "two_starts", "opcode", "ping", "close", "utf8", "2_63", "declared", "sum"],
)
def test_frames_that_break_the_protocol_end_the_connection_and_its_session(server, sent, code):
    address, sessions = server
    held = sessions.num_held
    assert b"\x88" in (said := answered(address, sent))
    assert code in said
    until(lambda: sessions.num_held <= held)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (
            b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n{\r\n" + b'c\r\n"env":"maze"\r\n' + b"1\r\n}\r\n0\r\n\r\n",
            200,
        ),
        (b"Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nab\r\n", 400),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"Content-Length: 5\r\nContent-Length: 15\r\n\r\n" + b'{"env": "maze"}', 400),
        (b"Content-Length: -5\r\n\r\n{}", 400),
    ],
    ids=["bytes", "no_size", "huge", "two_kinds", "two_lengths", "negative"],
)
def test_bodies_in_chunks_and_ambiguous_lengths(server, body, status):
    host, port = server[0].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(HTTP + body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 %d" % status)


def test_a_client_that_leaves_within_its_body_is_no_error_of_the_server():
    came = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    reached = []

    async def receive():
        return next(came)

    async def reach(*what):
        reached.append(what)

    scope = {"type": "http", "path": "/v1/create", "headers": [(b"content-length", b"500")]}
    asyncio.run(Gate(reach, max_body_bytes=1000)(scope, receive, reach))
    assert not reached  # neither the application, which would raise, nor the client


def test_two_hundred_abandoned_leases_end_and_their_environments_are_closed():
    with env_server(more={"wild": wild()}, lease_s=0.5) as (address, sessions), httpx.Client(base_url=address) as http:
        Wild.closed.clear()

        def abandoned(number: int) -> str:
            id = http.post("/v1/create", json={"env": "wild"}).json()["id"]
            http.post("/v1/reset", json={"id": id, "item": number % 6})
            return str(id)

        with ThreadPoolExecutor(8) as threads:
            ids = list(threads.map(abandoned, range(200)))
        until(lambda: sessions.num_held == 0, 10)
        until(lambda: len(Wild.closed) == 200, 10)
        assert sessions.counts["expired"] == sessions.counts["created"] == 200
        late = http.post("/v1/step", json={"id": ids[0], "action": "a", "turn": 1})
        assert (late.status_code, late.json()["error"]["code"]) == (410, "expired")
