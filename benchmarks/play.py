"""Lockstep beside free-running play: decode steps, how busy the engine is, and what is read twice.

    .venv/bin/python benchmarks/play.py             # a minute or two
    .venv/bin/python benchmarks/play.py --only steps

*steps*: flows of several turns with replies of long-tailed lengths (log-normal, mean 21, at most 256) that are set
beforehand. No schedule can take fewer steps than the longest flow has tokens (`ideal_steps`).

*busy*: many flows open on few rows, with an environment that takes 50 ms a step, or nothing but 2 s one time in a
hundred. The first has a latency of 16 steps. The second is run with its latency left free, which can be repeated with
its log of arrivals, and with a latency of 200 steps: a step takes 3 ms here, so an answer of 2 s is late by more than a
second then, and one latency for all that covers it (700 steps) would keep 1,000 flows from filling 64 rows. Busy is the
share of rows that were in work while the engine computed, of all rows at all times: occupied row-steps times the
seconds of their steps, over rows times wall time.

*prefix*: one episode of 30 turns and 8,000 tokens; `prefilled_tokens` counts what the model read of its contexts, and
`context_tokens` what it would have read if every turn were read from its beginning.

The shipped model; in `steps` and `busy` replies end at their lengths and not at an end token.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from study import machine_now, write
from whet.config.parts import ModelConfig
from whet.engines.local import LocalEngine
from whet.models.policy import Policy, load_policies
from whet.rollout.driver import Ask, roll_out
from whet.rollout.free import Clock, roll_out_free
from whet.rollout.services import Pool
from whet.seeds import seed_of
from whet.types import Completion, Request, Sampling

ROWS, SAID = 64, 12
"""Of the engine; tokens that an environment says at most."""


def length(rng: random.Random) -> int:
    """Of a reply: long-tailed."""
    return max(1, min(256, round(rng.lognormvariate(2.6, 0.95))))


def lengths_of(number: int, turns: int) -> list[int]:
    rng = random.Random(seed_of("lengths", number))
    return [length(rng) for _ in range(turns)]


async def episode(number: int, turns: int, *, environment: bool, limit: int = 900) -> int:
    """A dialogue with an environment, or with nobody. Returns: the tokens that were written."""
    rng = random.Random(seed_of("episode", number))
    context, follows, written = tuple(rng.randrange(4, 50) for _ in range(20)), None, 0
    for turn, count in enumerate(lengths_of(number, turns)):
        count = min(count, limit - len(context))
        if count < 1:
            break
        seed = seed_of("turn", number, turn)
        request = Request(
            context=context, sampling=Sampling(max_new_tokens=count), seed=seed, follows=follows, keep=True
        )
        done = await Ask("policy", request)
        written += len(done.tokens)
        if environment:
            await Ask("environment", seed)
        said = tuple(rng.randrange(4, 50) for _ in range(rng.randrange(1, SAID)))
        context, follows = (*context, *done.tokens, *said), seed
    return written


def shipped() -> Policy:
    [policy] = load_policies({"policy": ModelConfig(path="tiny")}).values()
    return replace(policy, stop_ids=frozenset())


class Counting:
    """The engine's `generate`, with its steps counted: a batch takes as many as its schedule has."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine, self.steps = engine, 0

    def __call__(self, requests: list[Request]) -> list[object]:
        runner, decode = self.engine.runner, self.engine.runner.decode
        prefill = runner.prefill

        def counted(which):
            def run(*args):
                self.steps += 1
                return which(*args)

            return run

        runner.decode, runner.prefill = counted(decode), counted(prefill)
        try:
            return self.engine.generate(requests)
        finally:
            runner.decode, runner.prefill = decode, prefill


def steps(rollouts: int, turns: int) -> dict[str, object]:
    ideal = max(sum(lengths_of(number, turns)) for number in range(rollouts))
    free = LocalEngine(shipped(), max_rows=ROWS)
    begun = time.process_time()
    written = roll_out_free(
        [episode(n, turns, environment=False, limit=10**6) for n in range(rollouts)], {"policy": free}
    )
    free_s = time.process_time() - begun
    lockstep = Counting(LocalEngine(shipped(), max_rows=ROWS))
    begun = time.process_time()
    assert (
        roll_out([episode(n, turns, environment=False, limit=10**6) for n in range(rollouts)], {"policy": lockstep})
        == written
    )
    lockstep_s = time.process_time() - begun
    counts = free.stream.counts
    return {
        "ideal_steps": ideal, "free_steps": counts.steps, "lockstep_steps": lockstep.steps, "tokens": sum(written),
        "free_seconds": free_s, "lockstep_seconds": lockstep_s, "free_rows_busy": counts.row_steps / counts.steps,
    }  # fmt: skip


class Nap:
    """An environment that takes a while: always, or now and then."""

    def __init__(self, seconds: float, share: float = 1.0) -> None:
        self.seconds, self.share = seconds, share

    def __call__(self, seed: int) -> None:
        if random.Random(seed).random() < self.share:
            time.sleep(self.seconds)


class Timed(LocalEngine):
    """The engine, with what every step came to: when it began and ended, and how many rows were in work."""

    def __init__(self, policy: Policy, **more: int) -> None:
        super().__init__(policy, **more)
        self.log: list[tuple[float, float, int]] = []

    def advance(self, *, wait: bool = False) -> list[tuple[int, Completion]]:
        begun, before = time.perf_counter(), self.stream.counts.row_steps
        found = super().advance(wait=wait)
        self.log.append((begun, time.perf_counter(), self.stream.counts.row_steps - before))
        return found


def busy(rollouts: int, turns: int, nap: Nap, latency: int | None) -> dict[str, Any]:
    """Of the steady state: from the first step with all rows in work to the last one."""
    engine, clock = Timed(shipped(), max_rows=ROWS), Clock(latency={"environment": latency})
    pool = Pool(nap, workers=256)
    roll_out_free(
        [episode(n, turns, environment=True) for n in range(rollouts)], {"policy": engine, "environment": pool}, clock
    )
    pool.close()
    full = [place for place, (*_, rows) in enumerate(engine.log) if rows == ROWS]
    log = engine.log[full[0] : full[-1] + 1]
    wall = log[-1][1] - log[0][0]
    return {
        "busy": sum((ended - begun) * rows for begun, ended, rows in log) / (ROWS * wall),
        "steps": len(log), "wall_s": wall, "step_ms": 1000 * statistics.median(e - b for b, e, _ in log),
        "rows": statistics.fmean(rows for *_, rows in log), "late": clock.num_late.get("environment", 0),
        "seconds_late": clock.seconds_late.get("environment", 0.0), "latency": latency, "tokens_per_s": sum(
            rows for *_, rows in log) / wall,
    }  # fmt: skip


async def long_episode(turns: int, tokens: int) -> list[Completion]:
    """Turns that come to so many tokens together."""
    rng, each = random.Random(0), tokens // (2 * turns)
    context, follows, found = tuple(rng.randrange(4, 50) for _ in range(each)), None, []
    for turn in range(turns):
        sampling = Sampling(max_new_tokens=each)
        done = await Ask("policy", Request(context=context, sampling=sampling, seed=turn, follows=follows, keep=True))
        said = tuple(rng.randrange(4, 50) for _ in range(each))
        found.append(done)
        context, follows = (*context, *done.tokens, *said), turn
    return found


def prefix(turns: int, tokens: int) -> dict[str, int]:
    engine = LocalEngine(shipped())
    roll_out_free([long_episode(turns, tokens)], {"policy": engine})
    counts = engine.stream.counts
    return {"prefilled_tokens": counts.prefilled, "context_tokens": counts.context, "written_tokens": counts.written}


def _latency(steps: int | None) -> str:
    return "free" if steps is None else f"{steps} steps"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=["steps", "busy", "prefix"], default=["steps", "busy", "prefix"])
    parser.add_argument("--name", default="play", help="of the result files")
    parser.add_argument("--flows", type=int, default=1000, help="open at one time, for busy")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    result: dict[str, Any] = {
        "command": f"python benchmarks/play.py --flows {chosen.rollouts}",
        "machine": machine_now(),
    }
    if "steps" in chosen.only:
        steps(8, 2)  # what is loaded and compiled once
        result |= steps(64, 10)
    if "prefix" in chosen.only:
        result |= prefix(30, 8000)
    if "busy" in chosen.only:
        every = busy(chosen.rollouts, 4, Nap(0.05), latency=16)
        rare, fixed = (busy(chosen.rollouts, 4, Nap(2.0, 0.01), latency=each) for each in (None, 200))
        result |= {
            "busy_50ms": every["busy"], "busy_rare_2s": rare["busy"], "busy_rare_2s_fixed": fixed["busy"],
            "of_50ms": every, "of_rare_2s": rare, "of_rare_2s_fixed": fixed,
        }  # fmt: skip
    write(chosen.name, result, text(result))


def text(result: Mapping[str, Any]) -> str:
    lines = ["# Lockstep beside free-running play", "", f"`{result['command']}`", "", "| | |", "|---|---|"]
    titles = {
        "ideal_steps": "64 flows of 10 turns: tokens of the longest flow, so steps at least",
        "free_steps": "steps, free-running", "lockstep_steps": "steps, lockstep (prefills among them)",
        "free_seconds": "CPU seconds, free-running", "lockstep_seconds": "CPU seconds, lockstep",
        "free_rows_busy": "rows in work in a step, free-running, of 64",
        "busy_50ms": "busy, environments of 50 ms, latency 16 steps",
        "busy_rare_2s": "busy, 2 s one time in a hundred, latency free",
        "busy_rare_2s_fixed": "busy, 2 s one time in a hundred, latency 200 steps",
        "prefilled_tokens": "30 turns of 8,000 tokens: context tokens that were read",
        "context_tokens": "and would be, were each turn read from its beginning",
    }  # fmt: skip
    for key, title in titles.items():
        if key in result:
            value = result[key]
            shown = (
                f"{100 * value:.1f} %"
                if key.startswith("busy")
                else f"{value:,.1f}"
                if isinstance(value, float)
                else f"{value:,}"
            )
            lines.append(f"| {title} | {shown} |")
    for key, title in (
        ("of_50ms", "environments of 50 ms"),
        ("of_rare_2s", "2 s one time in a hundred"),
        ("of_rare_2s_fixed", "the same, latency 200 steps"),
    ):
        if key in result:
            each = result[key]
            lines += ["", f"{title}: {each['steps']:,} steps of {each['step_ms']:.1f} ms (median), {each['rows']:.1f} "
                      f"rows in work on average, latency {_latency(each['latency'])}, {each['late']:,} answers late by "
                      f"{each['seconds_late']:.1f} s in all, {each['tokens_per_s']:,.0f} tokens a second."]  # fmt: skip
    lines += ["", f"Machine: {', '.join(f'{k} {v}' for k, v in result['machine'].items() if v)}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
