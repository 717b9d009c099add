"""What comes from outside and is too large: is it refused or cut, as what, and how soon?

    .venv/bin/python benchmarks/boundaries.py     # two minutes on two cores, and no network but loopback

*serve*: `whet.serve` in a process of its own (uvicorn), with the shipped tiny model, once as it is and once as a model
of 300,000 positions. While a request is on its way, `/health` is asked every 20 ms from another process.
*endpoint*: the client of endpoints, with its default limits, against a server that answers what is named.
*environment*: `whet train agent_grpo` on TextCraft whose every observation has ten million characters and whose `close`
sleeps for an hour (`loud_craft.py`); its traces are measured, and whether the process ends. One episode of it is timed
on its own.

Times are wall-clock, of one try each.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

import loud_craft
from study import machine_now, write
from whet.config.parts import EndpointConfig, EngineConfig, ModelConfig, SamplingConfig
from whet.engines.endpoint import EndpointEngine
from whet.engines.replies import Prompt
from whet.envs import ENVIRONMENTS
from whet.envs.formats import PARSERS
from whet.models.policy import load_policies
from whet.rollout.agent import ENVIRONMENT_SERVICE, ITEM, Agent
from whet.rollout.driver import roll_out
from whet.rollout.environments import Environments
from whet.rollout.roles import written
from whet.serve.app import serve
from whet.serve.models import ServedPolicies
from whet.tasks.prompts import find_prompts
from whet.types import Failure, Sampling, Task

MB = 1_000_000
MAX_HEALTH_S, MAX_S, MAX_TRACE = 0.2, 2.0, MB
"""What the table is held against: `/health`, one observation or reply, and an episode's trace in bytes."""
WORDS = "7 + 5 * 3 "
POSITIONS = 300_000
"""Of a model of which it is not certain that 1 MB is too much for it before all is tokenised."""


# --- serve ------------------------------------------------------------------------------------------------------------


def run_server(positions: int | None, address: Any) -> None:
    """In a process of its own.

    Args:
        positions: of the model, in place of its own.
    """
    policies = load_policies({"policy": ModelConfig()})
    if positions is not None:
        policies["policy"].causal_lm.config.max_position_embeddings = positions
    limits = {"policy": SamplingConfig(max_new_tokens=8)}
    served = ServedPolicies(policies, limits, find_prompts("chains"), lambda text, words: {}, EngineConfig(), (), 0)
    serve(served, "127.0.0.1", 0, address.put)


@contextmanager
def served(positions: int | None = None) -> Iterator[str]:
    spawning = multiprocessing.get_context("spawn")
    address = spawning.Queue()
    process = spawning.Process(target=run_server, args=(positions, address))
    process.start()
    try:
        url = address.get(timeout=120)
        with httpx.Client(transport=httpx.HTTPTransport(retries=8)) as client:  # until it listens
            client.get(f"{url}/health", timeout=60)
        yield url
    finally:
        process.terminate()
        process.join(30)


def chat(num_chars: int, text: str = WORDS) -> bytes:
    content = (text * (num_chars // len(text) + 1))[:num_chars]
    body = {"model": "policy", "messages": [{"role": "user", "content": content}], "max_tokens": 8}
    return json.dumps(body).encode()


def in_parts(body: bytes) -> Iterator[bytes]:
    """Without a length in the header."""
    for at in range(0, len(body), 65_536):
        yield body[at : at + 65_536]


class Health(threading.Thread):
    """Asks for `/health` every 20 ms, and keeps what that took, in seconds."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.seconds, self.over = url, list[float](), threading.Event()

    def run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self.over.wait(0.02):
                begun = time.perf_counter()
                client.get(f"{self.url}/health").raise_for_status()
                self.seconds.append(time.perf_counter() - begun)


def request(url: str, name: str, body: bytes, *, has_length: bool = True) -> dict[str, Any]:
    health = Health(url)
    health.start()
    time.sleep(0.2)
    begun = time.perf_counter()
    content = body if has_length else in_parts(body)
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{url}/v1/chat/completions", content=content, headers=headers, timeout=120)
    seconds = time.perf_counter() - begun
    time.sleep(0.2)
    health.over.set()
    health.join()
    outcome = f"{answer.status_code} {answer.json().get('error', {}).get('code') or ''}".strip()
    return {
        "boundary": "serve", "case": name, "bytes": len(body), "outcome": outcome, "seconds": seconds,
        "health_max_s": max(health.seconds), "health_median_s": statistics.median(health.seconds),
        "holds": max(health.seconds) < MAX_HEALTH_S,
    }  # fmt: skip


def serve_cases() -> list[dict[str, Any]]:
    strangers = json.dumps({"model": "policy", "messages": [], **{f"a{n}": 0 for n in range(140_000)}}).encode()
    with served() as url:
        httpx.post(f"{url}/v1/chat/completions", content=chat(20), headers={"Content-Type": "application/json"})
        rows = [
            request(url, "20 MB, with its length", chat(20 * MB)),
            request(url, "20 MB, in chunks", chat(20 * MB), has_length=False),
            request(url, "1 MB of a chat, more than fits", chat(MB)),
            request(url, "1.9 MB of unknown arguments", strangers),
        ]
    with served(POSITIONS) as url:
        rows.append(request(url, f"1 MB of a chat, read whole: more than {POSITIONS:,} positions", chat(MB)))
    return rows


# --- endpoints --------------------------------------------------------------------------------------------------------


@contextmanager
def answering(send: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None: ...

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            try:
                send(self)
            except OSError:  # the client has heard enough
                return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def reply(text: str, usage: Any = None, logprobs: int = 0) -> bytes:
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    if logprobs:
        choice["logprobs"] = {
            "content": [{"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}] * logprobs
        }
    found = {"id": "x", "object": "chat.completion", "created": 0, "model": "tiny", "choices": [choice]}
    return json.dumps(found | ({} if usage is None else {"usage": usage})).encode()


def at_once(body: bytes, encoding: str = "") -> Callable[[BaseHTTPRequestHandler], None]:
    def send(handler: BaseHTTPRequestHandler) -> None:
        if encoding:
            handler.send_header("Content-Encoding", encoding)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return send


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65_536)


def asked(name: str, send: Callable[[BaseHTTPRequestHandler], None], size: int | None, **more: Any) -> dict[str, Any]:
    with answering(send) as url:
        engine = EndpointEngine("actor", EndpointConfig(url=url, model="tiny", retries=0, **more))
        sampling = Sampling(temperature=0.0, max_new_tokens=64)
        begun = time.perf_counter()
        engine.submit(0, Prompt(messages=(("user", "7 + 5"),), sampling=sampling, seed=1))
        [(_, found)] = engine.advance(wait=True)
        seconds = time.perf_counter() - begun
    outcome = found.kind if isinstance(found, Failure) else f"reply, {found.num_read} read, {found.num_written} written"
    is_typed = isinstance(found, Failure) or name.startswith("usage")
    return {"boundary": "endpoint", "case": name, "bytes": size, "outcome": outcome, "seconds": seconds,
            "holds": is_typed and seconds < MAX_S}  # fmt: skip


def endpoint_cases() -> list[dict[str, Any]]:
    def usage(read: Any, written: Any) -> dict[str, Any]:
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": 0}

    large, packed = reply("x" * 10 * MB), gzip.compress(b" " * 200 * MB + reply("fine"))
    many, rest = reply("x " * 40, usage(7, 65)), reply("x" * 9000, usage(7, 3))
    tokens, whole = reply("fine", usage(7, 3), logprobs=20_000), reply("x" * 200, usage(500, 60))
    asked("warm up", at_once(reply("fine")), None)
    return [
        asked("10 MB", at_once(large), len(large)),
        asked("without an end", endless, None),
        asked("200 MB, compressed", at_once(packed, "gzip"), len(packed)),
        asked("65 tokens for 64", at_once(many), len(many)),
        asked("9,000 characters for 64 tokens, which says 3", at_once(rest), len(rest)),
        asked("20,000 logprobs for 64 tokens", at_once(tokens), len(tokens)),
        asked("560 tokens in all, of a model of 512 positions", at_once(whole), len(whole), max_model_len=512),
        asked("usage below 0", at_once(reply("fine", usage(-7, -3))), None),
        asked("usage of 10^30 read", at_once(reply("fine", usage(10**30, 3))), None),
        asked("usage of no numbers", at_once(reply("fine", usage("many", [3]))), None),
    ]


# --- environments -----------------------------------------------------------------------------------------------------


class Walker:
    """Looks about."""

    name, policy, sampling = "agent", "rule", Sampling()

    async def reply(self, messages: Sequence[Any], *, seed: int, parent: int | None = None, **more: Any) -> Any:
        return written("agent", "Thought: on.\nAction: inventory", parent=parent, seed=seed)


def observation_case(turns: int = 4) -> dict[str, Any]:
    """Seconds of one observation, over an episode."""
    envs = Environments(close_timeout_s=0.1)
    agent = Agent(Walker(), ENVIRONMENTS.get("loud_craft"), (), PARSERS.get("react"), (0, "loud"), max_turns=turns)
    begun = time.perf_counter()
    [episode] = roll_out([agent(Task(id="0", prompt="", info={ITEM: 0}))], {ENVIRONMENT_SERVICE: envs})
    seconds = (time.perf_counter() - begun) / (turns + 1)
    envs.close()
    longest = max(len(each.text) for each in episode.segments)
    return {"boundary": "environment", "case": "an observation of 10 MB, the first and each other",
            "bytes": loud_craft.SIZE, "outcome": f"cut to {longest:,} characters, and counted", "seconds": seconds,
            "holds": seconds < MAX_S and envs.counts["cut_observations"] == turns + 1}  # fmt: skip


def run_case(root: Path) -> list[dict[str, Any]]:
    """A whole run, and what is left of it."""
    plugin = Path(loud_craft.__file__).resolve()
    command = [
        sys.executable, "-m", "whet.cli", "train", "agent_grpo", f"plugins=[{plugin}]", "data.env=loud_craft",
        "data.num_train=8", "data.num_validation=2", "data.num_test=2", "num_steps=1", "prompts_per_step=2",
        "group_size=2", "max_turns=3", "evaluation.max_turns=3", "max_observation=600", "num_threads=1",
        "pool.close_timeout_s=2", "--out", str(root / "run"),
    ]  # fmt: skip
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    lines = [len(line) for path in (root / "run" / "traces").glob("*.jsonl") for line in path.read_bytes().splitlines()]
    metrics = [json.loads(line) for line in (root / "run" / "metrics.jsonl").read_text().splitlines()]
    num_cut = sum(row.get("environment/cut_observations", 0) for row in metrics)
    left = "did not close within 2 s" in done.stdout + done.stderr
    return [
        {"boundary": "environment", "case": f"traces of a run of such episodes ({len(lines)})",
         "bytes": 4 * loud_craft.SIZE, "outcome": f"{max(lines):,} bytes at most, {num_cut:.0f} observations counted",
         "seconds": None, "holds": 0 < max(lines) < MAX_TRACE and num_cut > 0},
        {"boundary": "environment", "case": "`close` sleeps for an hour", "bytes": None,
         "outcome": f"exit code {done.returncode}, {'said' if left else 'NOT said'}", "seconds": seconds,
         "holds": left},
    ]  # fmt: skip


def markdown(result: dict[str, Any]) -> str:
    lines = [
        "# What comes from outside and is too large", "",
        "`benchmarks/boundaries.py`. *seconds*: of the request, of one reply or observation, or of the whole run.",
        "*/health*: the slowest and the median answer while the request was on its way. *holds*: `/health` below 0.2",
        "s, a reply or observation within 2 s, an episode's trace below 1 MB. *load*: of the machine's cores.",
        "",
        "| boundary | case | MB | outcome | seconds | /health, slowest (median), ms | holds |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in result["rows"]:
        size = "–" if row["bytes"] is None else f"{row['bytes'] / MB:.2f}"
        seconds = "–" if row["seconds"] is None else f"{row['seconds']:.2f}"
        slowest, median = (1e3 * row.get(key, 0.0) for key in ("health_max_s", "health_median_s"))
        health = f"{slowest:.0f} ({median:.0f})" if slowest else "–"
        cells = (row["boundary"], row["case"], size, row["outcome"], seconds, health, "yes" if row["holds"] else "NO")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Machine: {json.dumps(result['machine'])}.", ""])


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    loads = [round(os.getloadavg()[0], 1)]
    with tempfile.TemporaryDirectory() as root:
        rows = [*serve_cases(), *endpoint_cases(), observation_case(), *run_case(Path(root))]
    loads.append(round(os.getloadavg()[0], 1))
    result = {"machine": {**machine_now(), "load": loads}, "rows": rows}
    write("boundaries", result, markdown(result))


if __name__ == "__main__":
    main()
