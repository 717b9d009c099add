"""Environments of tools: who reaches their goals, steps a second of CPU, and memory over 100,000 steps.

    .venv/bin/python benchmarks/tool_envs.py    # two minutes

*success*: the 200 test items, an episode each, within the usual turns, by the expert, by listed calls at random, and by
the first listed call again and again. *speed* and *memory*: experts and random agents take turns over all items.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping
from typing import Any

import psutil

from study import machine_now, write
from whet.envs.protocol import ACTIONS, EnvironmentInfo
from whet.envs.registry import ENVIRONMENTS

NAMES = ("weather", "movie", "academia", "sheet", "todo")
AGENTS = ("expert", "random", "constant")
NUM_MARKS = 5
"""Counts of steps at which the memory is looked at."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="of each environment, for speed and memory")
    chosen = parser.parse_args()
    result = {
        "command": f"python benchmarks/tool_envs.py --steps {chosen.steps}",
        "machine": machine_now(),
        "environments": {name: measured(ENVIRONMENTS.get(name), chosen.steps) for name in NAMES},
    }
    write("tool_envs", result, text(result))


def measured(info: EnvironmentInfo, num_steps: int) -> dict[str, Any]:
    return {"success": {agent: successes(info, agent) for agent in AGENTS}, **speed(info, num_steps)}


def successes(info: EnvironmentInfo, agent: str) -> dict[str, float]:
    """Shares over the test items."""
    env, rewards, num_turns = info.make(), [], 0
    items = info.splits()["test"]
    for item in items:
        _, about = env.reset(item)
        rng, total = random.Random(f"tool_envs {item}"), 0.0
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
    process = psutil.Process()
    while steps < num_steps:
        begun = time.process_time()
        _, about = env.reset(resets % 1000)
        in_resets += time.process_time() - begun
        moves = info.expert(env, seed=resets) if resets % 2 else None
        resets += 1
        for _ in range(info.max_turns):
            action = next(moves)[1] if moves is not None else rng.choice(about[ACTIONS])
            begun = time.process_time()
            is_over = env.step(action)[2]
            in_steps += time.process_time() - begun
            steps += 1
            if steps % (num_steps // NUM_MARKS) == 0:
                marks.append(round(process.memory_info().rss / 2**20, 1))
            if is_over:
                break
    return {
        "steps_per_s": steps / in_steps,
        "with_resets_per_s": steps / (in_steps + in_resets),
        "reset_ms": 1000 * in_resets / resets,
        "resident_mb": marks,
    }


def text(result: Mapping[str, Any]) -> str:
    titles = ["environment", *AGENTS, "steps a CPU second", "resets included", "a reset, ms", "resident MB"]
    lines = ["# Environments of tools", "", f"`{result['command']}`", ""]
    lines += ["Success in percent, and mean reward, over 200 test items.", ""]
    lines += [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, found in result["environments"].items():
        cells = [f"{100 * each['success']:.1f} ({each['reward']:.2f})" for each in found["success"].values()]
        numbers = [f"{found['steps_per_s']:,.0f}", f"{found['with_resets_per_s']:,.0f}", f"{found['reset_ms']:.2f}"]
        lines.append(f"| {' | '.join([name, *cells, *numbers, ', '.join(map(str, found['resident_mb']))])} |")
    lines += ["", f"Machine: {', '.join(f'{k} {v}' for k, v in result['machine'].items() if v)}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
