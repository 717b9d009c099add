"""What a cluster costs: a unit in the run's own process, a worker beside units in process, ranks beside one process.

    python benchmarks/cluster_cost.py unit          # CPU milliseconds of the run's own process, a unit of 32 rollouts
    python benchmarks/cluster_cost.py worker        # wall time of one worker over that of units in process
    python benchmarks/cluster_cost.py ranks         # CPU time of the slower of two ranks over that of one process

Each prints medians, and ratios of figures that were measured in turn on one machine.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import Qwen2ForCausalLM

from whet.cluster import workers
from whet.cluster.ray_start import facts_of_this_process
from whet.config.parts import ClusterConfig, EngineConfig, LearningConfig, SamplingConfig
from whet.models.policy import Policy
from whet.models.tiny import SPECIAL, tiny_config, tiny_tokenizer
from whet.rollout.parcels import pack
from whet.rollout.retries import Ended
from whet.rollout.runtime import Runtime
from whet.rollout.solve import Solve
from whet.rollout.units import UnitResult
from whet.tasks.prompts import CHAINS
from whet.types import Episode, Grade, Row, Segment, Task

UNIT, NUM_UNITS, NUM_REPEATS = 32, 60, 5
SHAPES = {"32 short rollouts": (1, 24, 30), "32 rollouts of 10 turns x 256 tokens": (10, 256, 64)}
"""Turns, tokens a turn, and tokens that its prompt adds."""
LIMITS = {"32 short rollouts": 1.0, "32 rollouts of 10 turns x 256 tokens": 3.0}
"""Milliseconds that issue 35 allows."""


def grade(batch: Any) -> list[Grade]:
    return [Grade(score=1.0) for _ in batch]


def small_policy(hidden: int = 0, layers: int = 0) -> Policy:
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    config = tiny_config(len(tokenizer))
    if hidden:
        config.hidden_size, config.num_hidden_layers, config.intermediate_size = hidden, layers, 3 * hidden
        config.layer_types = ["full_attention"] * layers
    model = Qwen2ForCausalLM(config).eval()
    return Policy("policy", model, tokenizer, stop_ids=frozenset({SPECIAL.index("<|end|>")}))


def calls(runtime: Runtime, count: int) -> list[Any]:
    role = runtime.role("policy", "policy", SamplingConfig(max_new_tokens=48))
    solve = Solve(CHAINS, role, ("seed", 0))
    return [partial(solve, Task(id=f"{i}", prompt=f"{i % 9} + {i % 7}", answer="1"), sample=i) for i in range(count)]


# --- the run's own process, a unit ------------------------------------------------------------------------------------


class Echo:
    """A worker that answers at once, with a unit that it was made with."""

    def __init__(self, build: Any, settings: Mapping[str, Any]) -> None:
        self.answer = settings["answer"]

    def facts(self) -> Any:
        return facts_of_this_process()

    def start(self) -> None:
        """It has nothing to make."""

    def run(self, parcel: bytes, recorded: Any) -> Any:
        return "answer", self.answer, 0.0


def prepared(num_turns: int, num_tokens: int, num_added: int) -> bytes:
    rng = random.Random(0)
    episodes = []
    for number in range(UNIT):
        segments: list[Segment] = []
        for turn in range(num_turns):
            segments.append(
                Segment(
                    role="agent",
                    policy="policy",
                    added=tuple(rng.randrange(50_000) for _ in range(num_added)),
                    tokens=tuple(rng.randrange(50_000) for _ in range(num_tokens)),
                    logprobs=tuple(-rng.random() for _ in range(num_tokens)),
                    versions=((1, num_tokens),),
                    text="a word " * (num_tokens // 2),
                    stop_reason="stop",
                    temperature=1.0,
                    seed=rng.getrandbits(60),
                    parent=turn - 1 if turn else None,
                    prefix=segments[-1] if turn else None,
                    grade=Grade(score=1.0),
                    rewards={"outcome": 1.0},
                )
            )
        task = Task(id=f"task {number}", prompt="a question of some words", answer="1")
        episodes.append(Episode(task=task, segments=tuple(segments)))
    endings = [Ended("ok", number, False, None, "") for number in range(UNIT)]
    return pack(UnitResult(episodes, endings, {"tokens": 1.0}), {})


def measure_units() -> None:
    workers.WorkerProcess = Echo  # type: ignore[assignment, misc]
    for name, shape in SHAPES.items():
        runtime = Runtime({}, grade, EngineConfig())
        source = Runtime({"policy": small_policy()}, grade, EngineConfig())
        unit = calls(source, UNIT)
        settings = ClusterConfig(workers=1)
        answer = prepared(*shape)
        pool = workers.RayWorkers(
            settings,
            runtime,
            grade,
            {"answer": answer},
            lambda name: name,
            {},
            print,  # type: ignore[arg-type]
        )
        pool._names = {"tokenizer of policy": source.policies["policy"].tokenizer}
        pool.roll_out([unit] * 4, "")
        spent = []
        for _ in range(NUM_REPEATS):
            started = time.process_time()
            pool.roll_out([unit] * NUM_UNITS, "")
            spent.append((time.process_time() - started) / NUM_UNITS * 1000)
        pool.close()
        print(f"{name}: {median(spent):.2f} ms a unit of {len(answer):,} bytes (at most {LIMITS[name]:g})", flush=True)


# --- a worker beside this process -------------------------------------------------------------------------------------


def build(settings: Mapping[str, Any]) -> Runtime:
    torch.set_num_threads(1)
    return Runtime({"policy": small_policy()}, grade, EngineConfig())


def measure_worker() -> None:
    torch.set_num_threads(1)
    runtime = build({})
    cut = [calls(runtime, 16 * 64)[at : at + 64] for at in range(0, 16 * 64, 64)]
    pool = workers.RayWorkers(ClusterConfig(workers=1), runtime, build, {}, lambda name: name, {}, print)
    ratios = []
    pool.roll_out(cut[:2], "")
    for _ in range(NUM_REPEATS):
        runtime.unit, runtime.pool = 64, None
        started = time.perf_counter()
        here = runtime.roll_out([call for unit in cut for call in unit])
        alone_s = time.perf_counter() - started
        started = time.perf_counter()
        there = pool.roll_out(cut, "")
        worker_s = time.perf_counter() - started
        assert here == there
        ratios.append(worker_s / alone_s)
        print(f"in process {alone_s:.2f} s, by a worker {worker_s:.2f} s: {ratios[-1]:.2f}", flush=True)
    pool.close()
    print(f"one worker takes {median(ratios):.2f} times as long as units in process (at most 1.1)")


# --- ranks beside one process -----------------------------------------------------------------------------------------


def training_rows() -> list[Row]:
    generator = torch.Generator().manual_seed(0)
    return [
        Row(
            tokens=torch.randint(5, 50, (160,), generator=generator).tolist(),
            trains=range(32, 160),
            credit=[1.0 - number % 3] * 128,
            policy="policy",
            logprobs=[-4.0] * 128,
        )
        for number in range(64)
    ]


def updates_of() -> Iterator[float]:
    """CPU seconds of each update of 5 million weights, in this process or in this rank."""
    import os

    from whet.models.sharding import join
    from whet.models.skeleton import Skeleton
    from whet.trainer.losses import imitation
    from whet.trainer.rank import Rank

    torch.set_num_threads(1)
    policy = small_policy(256, 6)
    rule = imitation(LearningConfig(learning_rate=1e-4, minibatch_rows=64, token_budget=4096), NUM_REPEATS + 1)
    rank = Rank(join(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://", 0))
    rank.make(Skeleton.of(policy), first=dict(policy.model.named_parameters()) if rank.group.rank == 0 else None)
    rank.begin("policy", rule, 0)
    rows = training_rows()
    for number in range(NUM_REPEATS + 1):
        started = time.process_time()
        rank.update("policy", rows, number, None)
        spent = rank.group.gather(time.process_time() - started)
        if number:  # the first one allocates
            yield max(spent)
    if rank.group.rank == 0:
        count = sum(p.numel() for p in policy.model.parameters())
        print(f"{rank.group.size} ranks, {count:,} weights", file=sys.stderr)


def measure_ranks() -> None:
    spent = {}
    for size in (1, 2):
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", f"{size}"]
        done = subprocess.run(
            [sys.executable, *command, str(Path(__file__)), "one_rank"], capture_output=True, text=True, check=True
        )
        times = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("seconds")]
        spent[size] = median(times)
        print(f"{size} ranks: {', '.join(f'{t:.2f}' for t in times)} CPU s an update, in the slowest rank", flush=True)
    print(f"the slower of two ranks takes {spent[2] / spent[1]:.2f} of one process's CPU time (at most 0.75)")


def main() -> None:
    match sys.argv[1:]:
        case ["unit"]:
            measure_units()
        case ["worker"]:
            measure_worker()
        case ["ranks"]:
            measure_ranks()
        case ["one_rank"]:
            import os

            for seconds in updates_of():
                if os.environ["RANK"] == "0":
                    print(f"seconds {seconds}", flush=True)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
