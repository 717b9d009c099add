"""Sizes and keys at the server's door: what is too long is refused before it costs anything, and others are served."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
import uvicorn
from typer.testing import CliRunner

from support.commands import ENVIRONMENT
from support.served import only_policies, served
from whet.cli.app import app as commands
from whet.config.parts import ModelConfig
from whet.errors import WhetError
from whet.models.policy import load_policies
from whet.serve.limits import Gate, is_certainly_longer
from whet.serve.models import ServedPolicies
from whet.serve.schemas import ChatRequest

LIMIT, KEY = 100_000, "sk-of-this-test"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def cast() -> ServedPolicies:
    """The shipped model, and one that reads as much as it is given."""
    return only_policies(load_policies({"policy": ModelConfig()}))


@pytest.fixture(scope="module")
def address(cast) -> Iterator[str]:
    with served(cast, max_body_bytes=LIMIT) as found:
        yield found


def chat(text="Solve: 7 + 5", **more):
    return {"model": "policy", "messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}


def post(address, body, **more):
    return httpx.post(f"{address}/v1/chat/completions", timeout=60, headers=JSON, content=body, **more)


def error_of(answer):
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error


def test_a_body_just_within_the_limit_is_read_and_one_byte_more_is_not(address):
    body = json.dumps(chat()).encode()
    assert post(address, body + b" " * (LIMIT - len(body))).status_code == 200
    answer = post(address, body + b" " * (LIMIT - len(body) + 1))
    assert answer.status_code == 413
    error = error_of(answer)
    assert (error["type"], error["code"]) == ("invalid_request_error", "body_too_large")
    assert "100,000 bytes" in error["message"]


@pytest.mark.parametrize("has_length", [True, False])
def test_a_body_of_megabytes_is_refused_whether_or_not_it_says_how_long_it_is(address, has_length):
    body = json.dumps(chat("x" * 20_000_000)).encode()
    parts = (body[at : at + 65_536] for at in range(0, len(body), 65_536))
    answer = post(address, body if has_length else parts)
    assert answer.status_code == 413
    assert error_of(answer)["code"] == "body_too_large"
    assert httpx.get(f"{address}/health").json()["status"] == "ok"


def test_a_refusal_comes_before_the_body():
    """Nothing of it is sent here, but for its length."""
    with served_alone() as (host, port), socket.create_connection((host, port), timeout=30) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n")
        assert client.recv(65_536).startswith(b"HTTP/1.1 413 ")


@contextmanager
def served_alone():
    async def nobody(scope, receive, send):
        raise AssertionError("a refused request came through")

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(Gate(nobody, max_body_bytes=LIMIT), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listener.getsockname()
    server.should_exit = True
    thread.join(20)


def test_prompts_are_read_off_the_loop(cast, monkeypatch):
    """While one client's prompt is read, which here takes as long as the test wants, others are answered."""
    from whet.serve.pipeline import ChatRunner

    begun, over = threading.Event(), threading.Event()
    read = ChatRunner._read

    def slow(self, *args, **named):
        begun.set()
        assert over.wait(60)
        return read(self, *args, **named)

    monkeypatch.setattr(ChatRunner, "_read", slow)
    with served(cast) as address:
        answers = []
        client = threading.Thread(target=lambda: answers.append(post(address, json.dumps(chat()).encode())))
        client.start()
        assert begun.wait(60)
        assert httpx.get(f"{address}/health", timeout=30).json()["status"] == "ok"
        assert not answers
        over.set()
        client.join(60)
    assert answers[0].status_code == 200


def test_a_text_that_cannot_fit_is_refused_by_its_beginning(cast, monkeypatch):
    positions, tokenizer = cast.positions("policy"), cast.policies["policy"].tokenizer
    text = "7 + 5 * 3 " * 20_000
    assert is_certainly_longer([text], tokenizer, positions)
    assert is_certainly_longer(["7 + 5 " * 10] * 3_000, tokenizer, positions)
    assert not is_certainly_longer(["7 + 5"], tokenizer, positions)
    assert not is_certainly_longer([" " * 1_000_000], tokenizer, positions)  # a template may strip it
    read = []
    count = type(tokenizer).encode

    def counted(self, text, *args, **named):
        read.append(len(text))
        return count(self, text, *args, **named)

    monkeypatch.setattr(type(tokenizer), "encode", counted)
    with served(cast) as address:
        answer = post(address, json.dumps(chat(text)).encode())
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert f"{positions} positions" in error["message"]
    assert 0 < sum(read) <= 16 * positions < len(text)


def test_what_others_say_of_the_length_is_as_before(address, cast):
    """One that may just not fit is tokenised, and told by how much."""
    positions = cast.positions("policy")
    answer = post(address, json.dumps(chat("7 " * positions)).encode())
    assert answer.status_code == 400
    assert "the messages take" in error_of(answer)["message"]


@pytest.mark.parametrize(
    ("changed", "param", "code"),
    [
        ({f"x{n}": 0 for n in range(5_000)}, "x0", "unknown_parameter"),
        ({"messages": [{"role": "user", "content": "1", **{f"x{n}": 0 for n in range(5_000)}}]}, "messages.0.x0",
         "unknown_parameter"),
        ({"messages": [0] * 20_000}, "messages.0", "invalid_value"),
        ({"messages": [{"role": "user", "content": [0] * 20_000}]}, "messages.0.content", "invalid_value"),
        ({"stop": [0] * 20_000}, "stop", "invalid_value"),
        ({"stop": "x" * 1001}, "stop", "invalid_value"),
        ({"metadata": {f"x{n}": "y" for n in range(5_000)}}, "metadata", "invalid_value"),
        ({"x" * 50_000: 1}, "x" * 200, "unknown_parameter"),
        ({"model": "x" * 50_000}, "model", "model_not_found"),
    ],
)  # fmt: skip
def test_what_is_wrong_many_times_is_said_once_and_shortly(address, changed, param, code):
    answer = post(address, json.dumps(chat() | changed).encode())
    error = error_of(answer)
    assert answer.status_code in (400, 404)
    assert (error["param"].removesuffix(".0") if "content" in param else error["param"], error["code"]) == (param, code)
    assert len(answer.content) < 2_000


def test_as_many_messages_as_fit_are_taken():
    request = ChatRequest(model="m", messages=[{"role": "user", "content": "1"}] * 10_000)
    assert len(request.messages) == 10_000


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_is_asked_for_of_everything_but_health(cast):
    with served(cast, api_key=KEY) as address:
        assert httpx.get(f"{address}/health").status_code == 200
        for given in (None, "", KEY, f"Basic {KEY}", "Bearer", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer é"):
            headers = {} if given is None else {"Authorization": given.encode()}
            answer = httpx.get(f"{address}/v1/models", headers=headers)
            assert answer.status_code == 401, given
            assert answer.headers["www-authenticate"] == "Bearer"
            error = error_of(answer)
            assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
            assert KEY not in answer.text
        assert post(address, json.dumps(chat()).encode()).status_code == 401
        for scheme in ("Bearer", "bearer"):
            headers = {"Authorization": f"{scheme} {KEY}"}
            assert httpx.get(f"{address}/v1/models", headers=headers).status_code == 200
            answer = httpx.post(f"{address}/v1/chat/completions", json=chat(), headers=headers, timeout=60)
            assert answer.status_code == 200


def test_openais_client_sends_the_key_and_tells_of_a_wrong_one(cast):
    openai = pytest.importorskip("openai")
    with served(cast, api_key=KEY) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key=KEY)
        assert [each.id for each in client.models.list()] == ["policy"]
        with pytest.raises(openai.AuthenticationError, match="this key is not the server's"):
            openai.OpenAI(base_url=f"{address}/v1", api_key="another", max_retries=0).models.list()


@pytest.mark.parametrize("key", ["", " padded", "two words", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused_at_the_start(key, tmp_path):
    done = CliRunner().invoke(commands, ["serve", str(tmp_path)], env={**ENVIRONMENT, "WHET_API_KEY": key})
    says = "ASCII characters without space" if key else "WHET_API_KEY is set and empty: give it the key, or unset it"
    assert (done.exit_code, says in " ".join(done.output.split())) == (2, True), done.output


def test_other_machines_need_a_key_or_an_option_that_says_so(tmp_path):
    command = ["serve", str(tmp_path), "--host", "0.0.0.0"]
    refused = CliRunner().invoke(commands, command, env=ENVIRONMENT)
    assert refused.exit_code == 2
    assert "0.0.0.0 is reached from other machines: set WHET_API_KEY to a key" in " ".join(refused.output.split())
    for more, variables in ((["--no-key"], {}), ([], {"WHET_API_KEY": "abc"})):
        done = CliRunner().invoke(commands, [*command, *more], env={**ENVIRONMENT, **variables})
        assert "holds neither a run" in done.output  # as this folder does


def test_the_cast_of_this_test_reads_no_more_than_its_positions(cast):
    """So that a limit of positions is what the tests above meet."""
    assert cast.positions("policy") is not None
    assert replace(cast, created=1).names == ("policy",)


def test_a_key_of_any_letters_is_known_as_it_is_sent():
    """Headers are bytes, which ASGI servers hand on and Starlette reads as Latin-1."""
    from whet.serve.limits import Gate

    gate = Gate(None, max_body_bytes=1, api_key="schlüssel")
    assert gate._is_known("/v1/models", "Bearer schlüssel".encode().decode("latin-1"))
    assert not gate._is_known("/v1/models", "Bearer schlüssel")  # its Latin-1 bytes are another key


# --- bodies that say or send what no body does ------------------------------------------------------------------------


def passed(length: bytes, chunks: list[bytes], **settings) -> tuple[list[dict], list[bytes]]:
    """What a gate sends to a client, and the bodies that it lets through.

    Args:
        chunks: of the body, after which the client is silent and stays.
    """
    sent, bodies, waiting = list[dict](), list[bytes](), list(chunks)

    async def receive():
        if not waiting:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting) or len(chunks) > 1}

    async def send(message):
        sent.append(message)

    async def inner(scope, receive, send):
        bodies.append((await receive())["body"])

    gate = Gate(inner, max_body_bytes=LIMIT, **settings)
    scope = {"type": "http", "path": "/", "headers": [(b"content-length", length)]}
    asyncio.run(gate(scope, receive, send))
    return sent, bodies


@pytest.mark.parametrize("length", [b"\xb2", b"\xb9\xb2", b"", b"-1", b"1e9", b"0" * 5000 + b"2"])
def test_a_length_that_is_no_number_is_not_gone_by(length):
    assert passed(length, [b"{}"]) == ([], [b"{}"])


@pytest.mark.parametrize("length", [b"9" * 5000, b"100001", b"000100001"])
def test_a_length_of_any_number_of_digits_is_read(length, monkeypatch):
    monkeypatch.setattr("whet.web.gate.DRAIN_S", 0.01)
    sent, bodies = passed(length, [b"{}"])
    assert (sent[0]["status"], bodies) == (413, [])


def test_a_body_that_does_not_come_to_its_end_is_refused(monkeypatch):
    monkeypatch.setattr("whet.web.gate.DRAIN_S", 0.01)
    sent, bodies = passed(b"100", [b"{", b" "], body_s=0.05)
    assert (sent[0]["status"], bodies) == (408, [])
    error = json.loads(sent[1]["body"])["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "body_too_slow")
    assert not sent[-1]["more_body"]


def test_a_text_that_the_tokenizer_cannot_keep_apart_is_the_clients_error(address, monkeypatch):
    def refuse(*_, **__):
        raise WhetError("nothing keeps them apart")

    monkeypatch.setattr("whet.rollout.roles.render", refuse)
    answer = post(address, json.dumps(chat()).encode())
    assert answer.status_code == 400
    assert error_of(answer)["param"] == "messages"
    assert "nothing keeps them apart" in error_of(answer)["message"]
