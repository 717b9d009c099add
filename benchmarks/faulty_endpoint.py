"""An OpenAI-compatible endpoint of the tiny world that fails as real ones do: for `kill_resume.py`.

What it writes is a function of the request and its seed, by the careless textbook and not by a model, so that a run
that asks again gets the same. A share of requests is answered 503, or dropped; like real failures these come from no
seed.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from whet.seeds import seed_of
from whet.tasks.chains import (
    FULL_HELP,
    Chain,
    answer_text,
    criticise,
    critique_text,
    parse_chain,
    refine,
    work_out,
    write_up,
)
from whet.tasks.demonstrations import CARE, COLLEAGUE, TEXTBOOK
from whet.tasks.oracles import RESULT, claimed_values

PLACE = "{endpoint}"
"""Stands in settings for its address."""


def reply(messages: Sequence[dict[str, str]], seed: int) -> str:
    """What the author of the tiny world's textbook writes: an answer, one that goes on, a critique, or a refinement."""
    rng = random.Random(seed_of("endpoint", seed, *(each["content"] for each in messages)))
    first = messages[0]["content"]
    if first.startswith("Critique: "):
        question, _, answer = first.removeprefix("Critique: ").partition("\n")
        chain = parse_chain(question)
        return critique_text(chain, criticise(chain, claimed_values(chain, answer), COLLEAGUE, FULL_HELP, rng))
    chain = parse_chain(first.removeprefix("Solve: "))
    if messages[-1]["content"].startswith("Refine: "):
        claimed = claimed_values(chain, messages[1]["content"])
        lines = messages[-1]["content"].removeprefix("Refine: ").split("\n")
        own = [int(line.partition(", claimed")[0][-1]) for line in lines if ", claimed" in line]
        return answer_text(chain, refine(chain, write_up(claimed, own, FULL_HELP, rng), TEXTBOOK, CARE, rng))
    if messages[-1]["role"] == "assistant":
        begun = messages[-1]["content"]
        whole = answer_text(chain, work_out(chain, TEXTBOOK, rng, given=[int(v) for v in RESULT.findall(begun)]))
        return "".join(f"\n{line}" for line in whole.split("\n")[begun.count("\n") + 1 :])
    return answer_text(chain, work_out(Chain(chain.start, chain.operations), TEXTBOOK, rng))


class Endpoint(ThreadingHTTPServer):
    """
    Args:
        share: of requests that fail.
        log: a file that gets a letter a request: `.` answered, `5` a 503, `d` dropped.
    """

    daemon_threads = True

    def __init__(self, share: float, log: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.share, self.log, self.chance, self.lock = share, log, random.Random(), threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def fate(self) -> str:
        with self.lock:
            found = "." if self.chance.random() >= self.share else self.chance.choice("5d")
            with self.log.open("a") as file:
                file.write(found)
        return found

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed are no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def log_message(self, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self._send(
            200, {"object": "list", "data": [{"id": "textbook", "object": "model", "created": 0, "owned_by": "w"}]}
        )

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fate = self.server.fate()
        if fate == "d":
            self.connection.close()
        elif fate == "5":
            self._send(503, {"error": {"message": "overloaded"}})
        else:
            text = reply(asked["messages"], asked["seed"])
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
            self._send(200, {"id": "x", "object": "chat.completion", "created": 0, "model": asked["model"],
                             "choices": [choice], "usage": usage})  # fmt: skip

    def _send(self, status: int, found: dict[str, Any]) -> None:
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def endpoint(share: float, log: Path) -> Iterator[Endpoint]:
    """The server while it runs."""
    log.parent.mkdir(parents=True, exist_ok=True)
    server = Endpoint(share, log)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
