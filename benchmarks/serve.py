"""Many clients at a served critic: does everybody get the right answer, and how long does it take?

    .venv/bin/python benchmarks/serve.py runs/critique_rl                 # two minutes, 64 clients
    .venv/bin/python benchmarks/serve.py runs/critique_rl --seconds 20

`whet serve` in a process of its own, on loopback. Every client asks for one greedy critique after another, as soon as
it has the last, about every second one as a stream; each reply is held against what the engine gives to that request
alone. The questions are the run's test problems with the actor's answers. Latency is from the request to the last byte;
clients and server share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

import whet
import whet.methods  # registers them
from side_by_side import BUSY
from study import RESULTS, machine_now, write
from whet.engines.local import LocalEngine
from whet.rollout.roles import render
from whet.run.data import load_tasks
from whet.run.load import load_run
from whet.types import Request, Sampling

NUM_QUESTIONS = 200
"""Different requests."""


@dataclass
class Seen:
    """What the clients came to."""

    latencies: list[float] = field(default_factory=list)
    first_token: list[float] = field(default_factory=list)
    """Seconds to the first text of a stream."""
    outcomes: Counter[str] = field(default_factory=Counter)


def expected(run: Path) -> tuple[str, int, dict[str, str]]:
    """The critic's name, its limit, and by message what the engine alone replies."""
    trained = load_run(run)
    actor, critic = whet.load_actor(run), whet.load_critic(run)
    limit = critic.sampling.max_new_tokens
    engine, found = LocalEngine(critic.policy), {}
    for task in load_tasks(trained.config.data).tasks["test"][:NUM_QUESTIONS]:
        [message] = critic.prompts.critique_messages(task.prompt, actor.answer(task.prompt))
        context = render(critic.policy.tokenizer, [message])
        request = Request(context=context, sampling=Sampling(temperature=0.0, max_new_tokens=limit), seed=0)
        [done] = engine.generate([request])
        found[message["content"]] = critic.policy.tokenizer.decode(done.tokens, skip_special_tokens=True)
    return critic.policy.name, limit, found


async def client(
    number: int, base: str, model: str, limit: int, right: dict[str, str], until: float, seen: Seen
) -> None:
    rng, messages = random.Random(number), sorted(right)
    async with httpx.AsyncClient(timeout=120) as http:
        while time.monotonic() < until:
            message, stream = rng.choice(messages), rng.random() < 0.5
            body = {"model": model, "messages": [{"role": "user", "content": message}], "temperature": 0,
                    "max_tokens": limit, "stream": stream}  # fmt: skip
            begun = time.perf_counter()
            try:
                text, first = await (streamed if stream else whole)(http, f"{base}/chat/completions", body)
            except (httpx.HTTPError, KeyError, ValueError) as error:
                seen.outcomes[f"lost: {type(error).__name__}"] += 1
                continue
            seen.latencies.append(time.perf_counter() - begun)
            seen.first_token += [first - begun] if first is not None else []
            theirs = "somebody else's" if text in right.values() else "another text"
            seen.outcomes["right" if text == right[message] else theirs] += 1


async def whole(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> tuple[str, None]:
    answer = await http.post(url, json=body)
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]["content"], None


async def streamed(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> tuple[str, float | None]:
    text, first, ended = "", None, False
    async with http.stream("POST", url, json=body) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line == "data: [DONE]":
                ended = True
            elif line.startswith("data: "):
                new = json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                first = time.perf_counter() if new and first is None else first
                text += new
    if not ended:
        raise ValueError("a stream without an end")
    return text, first


async def load(base: str, model: str, limit: int, right: dict[str, str], clients: int, seconds: float) -> Seen:
    seen, until = Seen(), time.monotonic() + seconds
    await asyncio.gather(*(client(i, base, model, limit, right, until, seen) for i in range(clients)))
    return seen


def served(run: Path, right: dict[str, str], model: str, limit: int, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "whet.cli", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    try:
        base = process.stdout.readline().split()[2]
        while True:
            try:
                httpx.get(f"{base}/models")
                break
            except httpx.ConnectError:
                time.sleep(0.05)
        begun = time.perf_counter()
        seen = asyncio.run(load(base, model, limit, right, options.clients, options.seconds))
        took = time.perf_counter() - begun
        process.send_signal(signal.SIGTERM)
        return {"outcomes": dict(seen.outcomes), "seconds": took, "exit_code": process.wait(60),
                "latency_s": percentiles(seen.latencies), "first_text_s": percentiles(seen.first_token)}  # fmt: skip
    finally:
        process.kill()


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """By rank, of what was measured."""
    ordered = sorted(values)
    return {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))}  # fmt: skip


def table(result: dict[str, Any]) -> str:
    found, where = result["found"], result["machine"]
    outcomes, asked = found["outcomes"], sum(found["outcomes"].values())
    wrong = {name: count for name, count in outcomes.items() if name != "right"}
    shared = ", so other work ran beside it" if result["load_before"] > BUSY else ""
    lines = [
        "# A served critic under load", "",
        f"`{result['command']}`; {where['processor']}, {where['num_cores']} cores, commit {where['commit']}. Load of "
        f"the machine before the clients came: {result['load_before']:.1f}{shared}.", "",
        f"{result['clients']} clients for {found['seconds']:.0f} s: **{asked:,} requests, {outcomes.get('right', 0):,} "
        f"answered as the engine answers each alone; lost, mixed or other: {wrong or 'none'}.** "
        f"{asked / found['seconds']:.1f} a second. Exit code after SIGTERM: {found['exit_code']}.", "",
        "| seconds | p50 | p90 | p99 | longest |", "|---|---|---|---|---|",
        *(f"| {title} | " + " | ".join(f"{found[key][p]:.2f}" for p in ("p50", "p90", "p99", "max")) + " |"
          for key, title in (("latency_s", "whole reply"), ("first_text_s", "first text of a stream"))), "",
    ]  # fmt: skip
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run of critics, such as one of `make train`")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--name", default="serve", help=f"of the result files in {RESULTS.name}/")
    options = parser.parse_args(arguments)
    load_before = os.getloadavg()[0]
    model, limit, right = expected(options.run)
    found = served(options.run, right, model, limit, options)
    result = {"command": " ".join(["python benchmarks/serve.py", *arguments]), "clients": options.clients,
              "machine": machine_now(), "load_before": load_before, "found": found}  # fmt: skip
    write(options.name, result, table(result))
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
