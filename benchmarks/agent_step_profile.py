"""Where the processor time of `agent_step.py`'s step goes, on whet's side.

    .venv/bin/python benchmarks/agent_step_profile.py

One thread runs two steps of training under Python's own profiler, with the validations around them. The profiler makes
Python's part longer than it is. Each kind of work is the sum over functions that have no other kind's below them.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
from typing import Any

import torch

from agent_step import AGENT, GROUP, ITEMS, whet_side
from agent_world import TURNS
from side_by_side import machine
from study import write

OWN: dict[str, tuple[str, ...]] = {
    "attention of decode steps": ("torch.baddbmm>", "torch.bmm>", "'softmax' of"),
    "attention of prompts, new turns and updates": ("scaled_dot_product_attention>",),
    "linear layers and head, forward": ("_nn.linear>", "torch.addmm>", "torch.mm>"),
    "backward of the update": ("'run_backward'",),
}
"""Kinds of work by functions of torch, whose own time counts."""
WHOLE: dict[str, tuple[tuple[str, str], ...]] = {
    "sampling": (("engines/running.py", "sample"),),
    "keys and values: written, moved, grown": (
        ("engines/memory.py", "write"), ("engines/memory.py", "move"), ("engines/memory.py", "load"),
        ("engines/memory.py", "_make_room"), ("engines/memory.py", "cut"),
    ),
    "conversations as token ids": (("rollout/roles.py", "begin"),),
}  # fmt: skip
"""Kinds of work by functions of whet, which count with all that they call."""


def profiled() -> tuple[float, dict[str, float]]:
    """Seconds of everything, and of each kind."""
    profile = cProfile.Profile(timer=time.process_time)
    profile.enable()
    whet_side(1)
    profile.disable()
    stats: Any = pstats.Stats(profile)
    kinds = dict.fromkeys((*OWN, *WHOLE), 0.0)
    for (file, _, function), (_, _, own, below, _) in stats.stats.items():
        for kind, names in OWN.items():
            kinds[kind] += own * any(name in function for name in names)
        for kind, places in WHOLE.items():
            kinds[kind] += below * any(file.endswith(place) and function == name for place, name in places)
    return stats.total_tt, kinds


def markdown(total: float, kinds: dict[str, float], where: dict[str, Any]) -> str:
    rows = sorted(kinds.items(), key=lambda each: -each[1])
    rows.append(("all else: Python, environments, other calls", total - sum(kinds.values())))
    return "\n".join([
        "# Where an agent's step goes", "",
        f"`{AGENT}` on {ITEMS} items of TextCraft x {GROUP} episodes of {TURNS} turns: two steps and their "
        f"validations, one thread, {total:.1f} CPU s under Python's profiler.", "",
        "| work | CPU s | share |", "|---|---|---|",
        *[f"| {kind} | {seconds:.1f} | {seconds / total:.0%} |" for kind, seconds in rows], "",
        f"Measured {where['date']}: `{where['command']}`. Machine: {json.dumps(where)}.", "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="agent_step_profile", help="of the result files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    where = machine()
    total, kinds = profiled()
    write(options.name, {"machine": where, "total": total, "kinds": kinds}, markdown(total, kinds, where))


if __name__ == "__main__":
    main()
