"""Environments of tools, SQL, search, a shop and households: who reaches their goals, steps a CPU second, and memory.

    .venv/bin/python benchmarks/more_envs.py                              # seven minutes
    .venv/bin/python benchmarks/more_envs.py --only weather --steps 5000  # the others' results stay

*success*: 200 test items, an episode each, within the usual turns, by the expert, by listed actions at random, and by
the first listed action again and again. *speed* and *memory*: experts and random agents take turns over the training
items. CPU seconds and resident memory are of this process and of those that it starts: textworld-express runs in Java.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import psutil

from study import machine_now, read_result, write
from whet.envs.protocol import ACTIONS, EnvironmentInfo
from whet.envs.registry import ENVIRONMENTS

NAMES = ("weather", "movie", "academia", "sheet", "todo", "sqlgym", "searchqa", "webshop", "cookingworld", "twc")
NUM_ITEMS = 200
AGENTS = ("expert", "random", "constant")
NUM_MARKS = 5
"""Counts of steps at which the memory is looked at."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="of each environment, for speed and memory")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="the others' results stay")
    chosen = parser.parse_args()
    for name in chosen.only:
        with ProcessPoolExecutor(1) as fresh:  # so that its memory holds no other environment
            found = {**fresh.submit(measured, name, chosen.steps).result(), "machine": machine_now()}
        known = {**read_result("more_envs").get("environments", {}), name: found}
        result = {
            "command": f"python benchmarks/more_envs.py --steps {chosen.steps}",
            "environments": {each: known[each] for each in NAMES if each in known},
        }
        write("more_envs", result, text(result))
        print(f"{name}: written", flush=True)


def measured(name: str, num_steps: int) -> dict[str, Any]:
    info = ENVIRONMENTS.get(name)
    return {"success": {agent: successes(info, agent) for agent in AGENTS}, **speed(info, num_steps)}


def successes(info: EnvironmentInfo, agent: str) -> dict[str, float]:
    """Shares over the test items."""
    env, rewards, num_turns = info.make(), [], 0
    items = random.Random(0).sample(info.splits()["test"], NUM_ITEMS)
    for item in items:
        _, about = env.reset(item)
        rng, total = random.Random(f"more_envs {item}"), 0.0
        moves = info.expert(env, seed=item) if agent == "expert" else None
        for _ in range(info.max_turns):
            listed = about[ACTIONS]
            action = next(moves)[1] if moves is not None else listed[0] if agent == "constant" else rng.choice(listed)
            _, reward, is_over, _, about = env.step(action)
            total, num_turns = total + reward, num_turns + 1
            if is_over:
                break
        rewards.append(total)
    count = len(items)
    return {
        "success": sum(map(info.is_success, rewards)) / count,
        "reward": sum(rewards) / count,
        "turns": num_turns / count,
    }


def speed(info: EnvironmentInfo, num_steps: int) -> dict[str, Any]:
    env, rng = info.make(), random.Random(0)
    steps = resets = 0
    in_steps = in_resets = 0.0
    marks: list[float] = []
    items = info.splits()["train"]
    env.reset(items[0])  # which starts what the environment needs
    meter = Meter()
    while steps < num_steps:
        begun = meter.cpu()
        _, about = env.reset(items[resets % len(items)])
        in_resets += meter.cpu() - begun
        moves = info.expert(env, seed=resets) if resets % 2 else None
        resets += 1
        for _ in range(info.max_turns):
            action = next(moves)[1] if moves is not None else rng.choice(about[ACTIONS])
            begun = meter.cpu()
            _, _, is_over, _, about = env.step(action)
            in_steps += meter.cpu() - begun
            steps += 1
            if steps % (num_steps // NUM_MARKS) == 0:
                marks.append(meter.resident_mb())
            if is_over:
                break
    return {
        "steps_per_s": steps / in_steps,
        "with_resets_per_s": steps / (in_steps + in_resets),
        "reset_ms": 1000 * in_resets / resets,
        "resident_mb": marks,
    }


class Meter:
    """CPU seconds and resident MB of this process and of those that it had started when the meter was made."""

    def __init__(self) -> None:
        own = psutil.Process()
        self._started = own.children(recursive=True)
        self._all = (own, *self._started)

    def cpu(self) -> float:
        return time.process_time() + sum(sum(each.cpu_times()[:2]) for each in self._started)

    def resident_mb(self) -> float:
        return round(sum(each.memory_info().rss for each in self._all) / 2**20, 1)


def text(result: Mapping[str, Any]) -> str:
    titles = ["environment", *AGENTS, "steps a CPU second", "resets included", "a reset, ms", "resident MB"]
    lines = ["# Environments of tools, SQL, search, a shop and households", "", f"`{result['command']}`", ""]
    lines += [f"Success in percent, and mean reward, over {NUM_ITEMS} test items.", ""]
    lines += [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, found in result["environments"].items():
        cells = [f"{100 * each['success']:.1f} ({each['reward']:.2f})" for each in found["success"].values()]
        numbers = [f"{found['steps_per_s']:,.0f}", f"{found['with_resets_per_s']:,.0f}", f"{found['reset_ms']:.2f}"]
        lines.append(f"| {' | '.join([name, *cells, *numbers, ', '.join(map(str, found['resident_mb']))])} |")
    machines = {
        ", ".join(f"{k} {v}" for k, v in found["machine"].items() if v) for found in result["environments"].values()
    }
    lines += ["", *(f"Machine: {each}." for each in sorted(machines))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
