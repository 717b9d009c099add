"""Sizes from an endpoint: replies longer than asked for, bytes of an answer, usage that cannot be."""

from __future__ import annotations

import gzip
import json
import threading
import time
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("openai", reason="openai is not installed; it comes with the extra 'endpoint'")

from whet.config.parts import EndpointConfig
from whet.engines.endpoint import EndpointEngine
from whet.engines.replies import MAX_UNSEEN_TOKENS, Prompt, Reply
from whet.types import Failure, Sampling

MOST = 9
"""Tokens that are asked for."""


def body(text="fine", usage=None, **choice):
    message = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}, **choice}
    found = {"id": "x", "object": "chat.completion", "created": 0, "model": "tiny", "choices": [message]}
    return json.dumps(found if usage is None else {**found, "usage": usage}).encode()


@contextmanager
def answering(*parts, encoding=None, pause_s=0.0):
    """A server that answers with these bytes, one after another."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args): ...

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            server.num_asked += 1
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            if encoding:
                self.send_header("Content-Encoding", encoding)
            self.end_headers()
            try:
                for part in parts:
                    self.wfile.write(part)
                    self.wfile.flush()
                    time.sleep(pause_s)
                    server.num_sent += len(part)
            except OSError:
                return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.num_asked, server.num_sent = True, 0, 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def ask(server, folder=None, **settings):
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    config = EndpointConfig(url=url, model="tiny", **({"retries": 3, "timeout_s": 20.0} | settings))
    engine = EndpointEngine("actor", config, folder)
    sampling = Sampling(temperature=0.0, max_new_tokens=MOST)
    engine.submit(0, Prompt(messages=(("user", "7 + 5"),), sampling=sampling, seed=1))
    [(_, found)] = engine.advance(wait=True)
    return found, engine


def usage(read, written):
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": 0}


LOGPROBS = {"content": [{"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}] * (MOST + 1)}


@pytest.mark.parametrize(
    ("answer", "settings", "reason"),
    [
        (body(usage=usage(7, MOST + 1)), {}, "a reply of 10 tokens, where 9 were asked for"),
        (body(usage=usage(7, 10**30)), {}, "where 9 were asked for"),
        (body("x" * 1200, usage(7, 3)), {}, "a reply of 1,200 characters, where 9 tokens were asked for"),
        (body("x" * 400), {}, "a reply of 100 tokens"),  # the server counts none, and four characters are a token
        (body(usage=usage(7, 3), logprobs=LOGPROBS), {}, "and 10 logprobs, where 9 were asked for"),
        (body(usage=usage(60, 5)), {"max_model_len": 64}, "a prompt of 60 tokens and a reply of 5, where the model"),
    ],
)
def test_a_reply_that_is_longer_than_it_may_be_is_a_failure_and_not_asked_for_again(answer, settings, reason):
    with answering(answer) as server:
        found, engine = ask(server, **settings)
    assert isinstance(found, Failure)
    assert found.kind == "endpoint_error"
    assert reason in found.reason
    assert (server.num_asked, engine.counts["sent"], engine.counts["retried"]) == (1, 1, 0)
    assert engine.counts["written"] <= MAX_UNSEEN_TOKENS


def test_a_reply_that_just_fits_is_taken():
    tokens = {"content": LOGPROBS["content"][:MOST]}
    with answering(body("x" * MOST * 4, usage(55, MOST), logprobs=tokens)) as server:
        found, _ = ask(server, max_model_len=64)
    assert isinstance(found, Reply)
    assert (found.num_read, found.num_written, len(found.logprobs)) == (55, MOST, MOST)


@pytest.mark.parametrize("value", ["NaN", "1e999", "-1e999"])
def test_logprobs_that_are_no_numbers_are_no_reply(value):
    answer = body(logprobs={"content": [{"token": "a", "logprob": 11, "bytes": None, "top_logprobs": []}]})
    with answering(answer.replace(b"11", value.encode())) as server:
        found, _ = ask(server, retries=0)
    assert isinstance(found, Failure)
    assert found.kind == "endpoint_error"


@pytest.mark.parametrize(
    ("given", "read", "written"),
    [
        (usage(7, 3), 7, 3),
        (usage("7", "3"), 7, 3),
        (usage(-7, -3), 2, 1),  # estimated: 5 and 4 characters
        (usage(0, 0), 2, 1),
        (usage(True, False), 1, 1),  # the client reads true as 1 and false as 0
        (usage("many", [3]), 2, 1),
        (usage(10**30, 3), 2, 3),
        (None, 2, 1),
    ],
)
def test_usage_is_a_number_that_can_be_or_is_estimated(given, read, written):
    with answering(body(usage=given)) as server:
        found, engine = ask(server)
    assert isinstance(found, Reply)
    assert (found.num_read, found.num_written) == (read, written)
    assert (engine.counts["read"], engine.counts["written"]) == (read, written)


def test_no_more_of_an_answer_is_read_than_may_be():
    """An answer without an end: what was sent by then is little more than the limit."""
    with answering(*[b" " * 10_000] * 10_000) as server:
        found, _ = ask(server, max_reply_bytes=100_000)
        assert isinstance(found, Failure)
        assert found.kind == "endpoint_error"
        assert "an answer of more than 100,000 bytes (actor.max_reply_bytes)" in found.reason
        assert server.num_asked == 1
    assert server.num_sent < 20_000_000


def test_a_compressed_answer_is_measured_as_it_is_read():
    with answering(gzip.compress(b" " * 50_000_000 + body()), encoding="gzip") as server:
        found, _ = ask(server, max_reply_bytes=100_000)
    assert isinstance(found, Failure)
    assert "more than 100,000 bytes" in found.reason
    with answering(zlib.compress(body()), encoding="deflate") as server:
        found, _ = ask(server)
    assert isinstance(found, Reply)


def test_an_answer_that_drips_is_a_timeout_of_the_whole_request():
    """Each byte comes in time, and all of them do not."""
    with answering(*[b" "] * 1000, pause_s=0.05) as server:
        found, _ = ask(server, timeout_s=0.4, retries=0)
    assert isinstance(found, Failure)
    assert (found.kind, "no answer within 0.4 s" in found.reason) == ("timeout", True)


def test_a_kept_reply_that_is_too_long_is_asked_for_again(tmp_path):
    with answering(body("x" * 36, usage(7, MOST))) as server:
        found, engine = ask(server, tmp_path, cache="")
        assert isinstance(found, Reply)
        [place] = tmp_path.rglob("*.json")
        kept = json.loads(place.read_text())
        kept["reply"]["num_written"] = MOST + 1
        place.write_text(json.dumps(kept))
        found, engine = ask(server, tmp_path, cache="")
    assert isinstance(found, Reply)
    assert (found.num_written, engine.counts["sent"], engine.counts["cached"]) == (MOST, 1, 0)
