"""Bodies that no OpenAI-compatible server sends: an endpoint fails by its type, and a look at it is a sentence."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("openai", reason="openai is not installed; it comes with the extra 'endpoint'")

import whet.engines.endpoint as endpoint
from whet.config.base import ConfigError
from whet.config.parts import EndpointConfig
from whet.engines.endpoint import EndpointEngine
from whet.engines.replies import Prompt
from whet.types import Failure, Sampling


def http(body: str, content_type: str = "application/json", status: str = "200 OK", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{more}"
    return f"{head}Connection: close\r\n\r\n{body}".encode()


BODIES = {
    "a web page": http("<html>Welcome!</html>", "text/html"),
    "a web page that calls itself JSON": http("<html>Welcome!</html>"),
    "a page of a strange encoding": http("ff", "text/html; charset=hex"),
    "null": http("null"),
    "a number": http("5"),
    "a list": http("[]"),
    "a text": http('"text"'),
    "nothing": http(""),
    "a deep list": http("[" * 100_000),
    "a deep object": http('{"data": ' * 100_000),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "a body that breaks off": http("{}").replace(b"Content-Length: 2", b"Content-Length: 900"),
    "an endless redirect": http("", status="302 Found", more="Location: /v1/models\r\n"),
}


@contextmanager
def sending(data: bytes, pause_s: float = 0.0) -> Iterator[str]:
    """The address of a server that answers everything with these bytes.

    Args:
        pause_s: after each byte.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(client: socket.socket) -> None:
        with client:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += client.recv(2**16)
            lengths = [line for line in asked.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            length = int(lengths[0].partition(b":")[2]) if lengths else 0
            while len(asked.partition(b"\r\n\r\n")[2]) < length:
                asked += client.recv(2**16)
            try:
                for part in [data] if not pause_s else [data[at : at + 1] for at in range(len(data))]:
                    client.sendall(part)
                    time.sleep(pause_s)
            except OSError:
                return

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.close()


def engine(url: str, retries: int = 0) -> EndpointEngine:
    return EndpointEngine("actor", EndpointConfig(url=url, model="tiny", retries=retries, timeout_s=30.0))


def asked(url: str, retries: int = 0) -> Failure:
    made = engine(url, retries)
    made.submit(0, Prompt(messages=(("user", "?"),), sampling=Sampling(temperature=0.0, max_new_tokens=9), seed=1))
    [(_, found)] = made.advance(wait=True)
    made.close()
    return found


@pytest.mark.parametrize("name", BODIES)
def test_no_body_is_more_than_a_failure(name, monkeypatch):
    monkeypatch.setattr(endpoint, "BACKOFF_S", 0.001)
    with sending(BODIES[name]) as url:
        found = asked(url, retries=1)
    assert isinstance(found, Failure)
    assert found.kind == "endpoint_error"
    assert "(2 times)" in found.reason


@pytest.mark.parametrize("name", BODIES)
def test_a_look_at_what_is_no_such_server_says_so(name):
    with sending(BODIES[name]) as url, pytest.raises(ConfigError) as error:
        engine(url).look()
    said = str(error.value)
    assert said.startswith(f"actor: tiny at {url} ")
    assert "cannot be reached: " in said or "actor.url, which mostly ends in /v1" in said


def test_a_server_that_drips_is_not_looked_at_for_ever(monkeypatch):
    monkeypatch.setattr(endpoint, "LOOK_S", 0.5)
    with sending(http(" " * 1000), pause_s=0.05) as url, pytest.raises(ConfigError, match=r"no answer within 0\.5 s"):
        engine(url).look()


def test_what_a_server_says_of_an_error_is_of_whole_characters():
    body = json.dumps({"error": {"message": "half \ud800"}})
    with sending(http(body, status="400 Bad Request")) as url:
        found = asked(url)
        assert "half \\ud800" in engine(url).look()
    assert "half \\ud800" in found.reason
    (found.reason + found.trace).encode()
