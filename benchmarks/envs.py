"""Worlds under load: steps a second, memory over 100,000 steps, and what becomes of episodes whose worlds fail.

    .venv/bin/python benchmarks/envs.py             # three or four minutes
    .venv/bin/python benchmarks/envs.py --only speed

*speed*: episodes as the scripted experts play them, cut at the usual limit of turns, are done again with the clock on:
resets included, experts not. In process that is one world and one thread; through the service, 64 episodes at a time by
`roll_out_free`. What the service costs is the difference of CPU seconds a step. BabyAI is timed beside minigrid's own
environment, which does the same primitive moves on the same levels and gives its picture of numbers and its mission;
SciWorld beside scienceworld's own loop on the same actions, where CPU seconds are those of Python and Java together.

*memory*: the resident set of a fresh process for each world, and for the service, at three counts of steps.

*faults*: see `faulty_worlds.py`.

The machine's other work moves wall seconds, CPU seconds less so, and ratios of one run hardly.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import psutil

import faulty_worlds
from study import machine_now, write
from whet.envs.babyai.environment import BABYAI, BabyAI
from whet.envs.babyai.levels import LEVELS, level_and_seed
from whet.envs.protocol import EnvironmentInfo
from whet.envs.registry import ENVIRONMENTS
from whet.rollout.driver import Ask
from whet.rollout.environments import Act, Begin, Environments
from whet.rollout.free import roll_out_free

PARTS = ("speed", "memory", "faults")
PURE = ("textcraft", "maze", "wordle", "babyai")
"""The worlds that need no other process."""
AT_A_TIME = 64
"""Episodes, in the service."""
ROUNDS = 5
"""Sides that are compared take turns so often."""
MARKS = (10_000, 50_000, 100_000)
"""Steps at which the memory is looked at."""
FLAT_MB = 2.0
"""What may come between the first mark and the last: the allocator's own, and no more."""


@dataclass(frozen=True)
class Recorded:
    """What an expert did in an item."""

    item: int
    actions: tuple[str, ...]


def record(info: EnvironmentInfo, items: Sequence[int]) -> list[Recorded]:
    """Episodes of a scripted expert, to their ends or to the usual limit of turns."""
    env, found = info.make(), []
    assert info.expert is not None
    for item in items:
        env.reset(item, seed=0)
        actions: list[str] = []
        for _, action in info.expert(env, seed=0):
            actions.append(action)
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated or len(actions) >= info.max_turns:
                break
        found.append(Recorded(item, tuple(actions)))
    env.close()
    return found


def items_of(info: EnvironmentInfo, number: int) -> list[int]:
    """Training items. Where the list goes from easy to hard they are from all of it; BabyAI's levels come in turn."""
    train = info.splits()["train"]
    stride = 1 if info.name == "babyai" else max(1, len(train) // number)
    return [train[place * stride % len(train)] for place in range(number)]


def again(env: Any, episodes: Sequence[Recorded]) -> int:
    """Do them once more. Returns: steps."""
    for episode in episodes:
        env.reset(episode.item, seed=0)
        for action in episode.actions:
            env.step(action)
    return sum(len(episode.actions) for episode in episodes)


# --- speed ------------------------------------------------------------------------------------------------------------


def timed(work: Callable[[], int], seconds: float, cpu: Callable[[], float] = time.process_time) -> dict[str, float]:
    """Call it again and again for so many seconds. Returns: what it counted, CPU and wall seconds."""
    count, begun, begun_cpu = 0, time.perf_counter(), cpu()
    while time.perf_counter() - begun < seconds:
        count += work()
    return {"count": count, "cpu_s": cpu() - begun_cpu, "wall_s": time.perf_counter() - begun}


def rates(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Steps a second of CPU and of wall time, over all rounds."""
    total = {key: sum(each[key] for each in rounds) for key in ("count", "cpu_s", "wall_s")}
    count, cpu_s, wall_s = total.values()
    return {"steps": count, "per_cpu_s": count / cpu_s, "per_wall_s": count / wall_s, "cpu_us": 1e6 * cpu_s / count}


def in_turns(
    sides: Mapping[str, Callable[[], int]], seconds: float, cpu: Callable[[], float] = time.process_time
) -> dict[str, Any]:
    """Both sides by turns. `ratio`: of CPU seconds a step, the second side's over the first's, median of the rounds."""
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, work in sides.items():
            rounds[name].append(timed(work, seconds, cpu))
    first, second = rounds.values()
    ratios = [(b["cpu_s"] / b["count"]) / (a["cpu_s"] / a["count"]) for a, b in zip(first, second, strict=True)]
    return {**{name: rates(each) for name, each in rounds.items()}, "ratio": statistics.median(ratios)}


async def replayed(info: EnvironmentInfo, episode: Recorded) -> int:
    """A flow that does what the expert did."""
    begin = Begin(info, episode.item, 0)
    await Ask("environment", begin)
    for action in episode.actions:
        await Ask("environment", Act(begin.lease, action))
    return len(episode.actions)


def speed(name: str, seconds: float) -> dict[str, Any]:
    """One world, in process and through the service, by turns."""
    info = ENVIRONMENTS.get(name)
    episodes = record(info, items_of(info, AT_A_TIME))
    env, envs = info.make(), Environments(capacity=AT_A_TIME)

    def through_the_service() -> int:
        return sum(roll_out_free([replayed(info, each) for each in episodes], {"environment": envs}))

    again(env, episodes), through_the_service()  # worlds are made once
    found = in_turns({"in_process": lambda: again(env, episodes), "service": through_the_service}, seconds)
    envs.close()
    added = found["service"]["cpu_us"] - found["in_process"]["cpu_us"]
    return {**found, "service_us": added, "turns": statistics.fmean(len(each.actions) for each in episodes)}


def moves_of(env: BabyAI, episode: Recorded) -> list[int]:
    """minigrid's primitive moves in an episode."""
    env.reset(episode.item, seed=0)
    grid, moves = env.grid, []
    step = grid.step
    grid.step = lambda move: (moves.append(int(move)), step(move))[1]
    for action in episode.actions:
        env.step(action)
    grid.step = step
    return moves


def babyai(seconds: float) -> dict[str, Any]:
    """Beside minigrid, both counted in primitive moves: ours makes several in an action, and then looks once."""
    episodes, ours = record(BABYAI, items_of(BABYAI, AT_A_TIME)), BabyAI()
    moves = [moves_of(ours, episode) for episode in episodes]
    made = import_module("minigrid.envs.babyai")
    theirs: dict[int, Any] = {}
    for episode in episodes:
        level, _ = level_and_seed(episode.item)
        if level not in theirs:
            name, settings = LEVELS[level - 1]
            theirs[level] = getattr(made, name)(**settings)
    num_moves, seen = sum(map(len, moves)), [""]

    def in_our_world() -> int:
        again(ours, episodes)
        return num_moves

    def in_theirs() -> int:
        for episode, each in zip(episodes, moves, strict=True):
            level, seed = level_and_seed(episode.item)
            env = theirs[level]
            view, _ = env.reset(seed=seed)
            for move in each:
                view, *_ = env.step(move)
                seen[0] = view["mission"]
        return num_moves

    found = in_turns({"whet": in_our_world, "minigrid": in_theirs}, seconds)
    actions = sum(len(episode.actions) for episode in episodes)
    return {**found, "moves_an_action": num_moves / actions,
            "actions_per_cpu_s": found["whet"]["per_cpu_s"] * actions / num_moves,
            "resets": len(episodes), "moves": num_moves}  # fmt: skip


def sciworld(seconds: float) -> dict[str, Any]:
    """Beside scienceworld's own class, which asks Java for more at every step."""
    info = ENVIRONMENTS.get("sciworld")
    task_of = import_module("whet.envs.sciworld.items").task_of
    items = [
        next(item for item in info.splits()["train"] if task_of(item)[0].number == each) for each in ("4-1", "6-2")
    ]
    episodes, ours = record(info, items), info.make()
    theirs = import_module("scienceworld").ScienceWorldEnv()

    def in_theirs() -> int:
        for episode in episodes:
            task, variation = task_of(episode.item)
            theirs.load(task.name, variation)
            theirs.reset()
            for action in episode.actions:
                theirs.step(action)
        return sum(len(episode.actions) for episode in episodes)

    again(ours, episodes), in_theirs()  # Java compiles what is hot
    found = in_turns({"whet": lambda: again(ours, episodes), "scienceworld": in_theirs}, seconds, cpu_with_children)
    ours.close(), theirs.close()
    return found


def cpu_with_children() -> float:
    me = psutil.Process()
    times = [each.cpu_times() for each in (me, *me.children(recursive=True))]
    return sum(each.user + each.system for each in times)


# --- memory -----------------------------------------------------------------------------------------------------------


def steps_for_ever(name: str) -> Iterator[None]:
    info = ENVIRONMENTS.get(name)
    episodes, env = record(info, items_of(info, AT_A_TIME)), info.make()
    while True:
        for episode in episodes:
            env.reset(episode.item, seed=0)
            for action in episode.actions:
                env.step(action)
                yield


def service_for_ever() -> Iterator[None]:
    """Fast worlds, so that what grows would be the service's."""
    info = ENVIRONMENTS.get("maze")
    episodes, envs = record(info, items_of(info, AT_A_TIME)), Environments(capacity=AT_A_TIME)
    while True:
        yield from range(sum(roll_out_free([replayed(info, each) for each in episodes], {"environment": envs})))


def resident(name: str) -> dict[str, Any]:
    """MB of this process at each mark."""
    steps = service_for_ever() if name == "service" else steps_for_ever(name)
    found = []
    for count in range(1, MARKS[-1] + 1):
        next(steps)
        if count in MARKS:
            gc.collect()
            found.append(psutil.Process().memory_info().rss / 2**20)
    grown = found[-1] - found[0]
    return {"steps": list(MARKS), "mb": found, "grown_mb": grown, "is_flat": grown < FLAT_MB}


def memory() -> dict[str, Any]:
    found = {}
    for name in (*PURE, "service"):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
            found[name] = fresh.submit(resident, name).result()
        print(f"memory, {name}: {found[name]}", flush=True)
    return found


# --- what came of it --------------------------------------------------------------------------------------------------


def speeds(seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {"worlds": {}}
    for name in PURE:
        found["worlds"][name] = speed(name, seconds)
        print(f"speed, {name}: {found['worlds'][name]}", flush=True)
    found["babyai"] = babyai(seconds)
    print(f"speed, babyai beside minigrid: {found['babyai']}", flush=True)
    if "sciworld" in ENVIRONMENTS and find_spec("scienceworld") and shutil.which("java"):
        found["sciworld"] = sciworld(seconds)
        print(f"speed, sciworld beside scienceworld: {found['sciworld']}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--name", default="envs", help="of the result files")
    parser.add_argument("--seconds", type=float, default=0.4, help="of one side in one round, for speed")
    chosen = parser.parse_args()
    result: dict[str, Any] = {
        "command": " ".join(["python benchmarks/envs.py", *sys.argv[1:]]),
        "machine": machine_now(),
    }
    if "speed" in chosen.only:
        result["speed"] = speeds(chosen.seconds)
    if "memory" in chosen.only:
        result["memory"] = memory()
    if "faults" in chosen.only:
        result["faults"] = faulty_worlds.measured()
    write(chosen.name, result, text(result))


def text(result: Mapping[str, Any]) -> str:
    lines = ["# Worlds under load", "", f"`{result['command']}`", ""]
    if "speed" in result:
        lines += speed_lines(result["speed"])
    if "memory" in result:
        lines += memory_lines(result["memory"])
    if "faults" in result:
        lines += faulty_worlds.lines(result["faults"])
    lines += [f"Machine: {', '.join(f'{k} {v}' for k, v in result['machine'].items() if v)}."]
    return "\n".join(lines) + "\n"


def speed_lines(found: Mapping[str, Any]) -> list[str]:
    lines = ["## Speed", "", "Steps a second, resets included, by the experts' actions.", "",
             "| world | turns an episode | in process, a CPU second | a wall second | service, a CPU second "
             "| a wall second | CPU µs a step that the service adds |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, each in found["worlds"].items():
        rate = [each[side][per] for side in ("in_process", "service") for per in ("per_cpu_s", "per_wall_s")]
        shown = " | ".join(f"{value:,.0f}" for value in rate)
        lines.append(f"| {name} | {each['turns']:.1f} | {shown} | {each['service_us']:.0f} |")
    b = found["babyai"]
    lines += ["", f"BabyAI makes {b['whet']['per_cpu_s']:,.0f} primitive moves a CPU second ("
              f"{b['actions_per_cpu_s']:,.0f} actions, of {b['moves_an_action']:.1f} moves each), minigrid's own "
              f"environment {b['minigrid']['per_cpu_s']:,.0f}: {b['ratio']:.2f} of ours in CPU seconds a move. "
              f"{b['resets']} resets to {b['moves']:,} moves.", ""]  # fmt: skip
    if "sciworld" in found:
        s = found["sciworld"]
        lines += [f"SciWorld does {s['whet']['per_wall_s']:,.0f} steps a wall second ({s['whet']['per_cpu_s']:,.0f} a "
                  f"CPU second, Java's included), scienceworld's own class {s['scienceworld']['per_wall_s']:,.0f} ("
                  f"{s['scienceworld']['per_cpu_s']:,.0f}): it takes {s['ratio']:.1f} times our CPU seconds a step.",
                  ""]  # fmt: skip
    else:
        lines += ["SciWorld was not measured: it needs the package scienceworld and Java.", ""]
    return lines


def memory_lines(found: Mapping[str, Any]) -> list[str]:
    lines = ["## Memory", "", "Resident MB of a fresh process, by steps so far.", ""]
    lines += ["| | steps | MB | more | flat |", "|---|---|---|---|---|"]
    for name, each in found.items():
        marks = ", ".join(f"{mark:,}" for mark in each["steps"])
        sizes = ", ".join(f"{size:.1f}" for size in each["mb"])
        lines.append(f"| {name} | {marks} | {sizes} | {each['grown_mb']:.1f} | {'yes' if each['is_flat'] else 'NO'} |")
    return [*lines, ""]


if __name__ == "__main__":
    main()
