"""Draws results/agents_tiny.json: validation success over training. Needs `make setup EXTRAS=benchmarks`.

.venv/bin/python benchmarks/agents_tiny_figure.py [NAME]   # results/agents_tiny.svg, or NAME.json to NAME.svg
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from study import RESULTS
from whet.evaluation.critique import mean_interval

STEPS, ENV_STEPS = 0, 1
"""What lies across: a place of a curve's points."""
PANELS: tuple[tuple[str, int, dict[str, str]], ...] = (
    ("RL and cloning, TextCraft", STEPS, {"textcraft": "RL", "textcraft_clone": "cloning"}),
    ("RL and cloning, BabyAI", STEPS, {"babyai": "RL", "babyai_clone": "cloning"}),
    ("horizons", ENV_STEPS, {"textcraft": "5, 10, 15 turns", "short": "5 turns", "long": "15 turns"}),
    ("ways to credit", STEPS, {"grpo": "GRPO", "rloo": "RLOO", "reinforce_pp": "REINFORCE++", "ppo": "PPO"}),
    ("credit of turns", STEPS, {"grpo": "an episode", "per_turn": "a turn", "gigpo": "GiGPO"}),
)
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Of Okabe and Ito's, which the colour-blind can tell apart."""


def draw(result: Mapping[str, Any]) -> Figure:
    """A panel a question; means over seeds and 95 % intervals."""
    figure = Figure(figsize=(3.1 * len(PANELS), 3.4), layout="constrained")
    for axis, (title, across, runs) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("updates" if across == STEPS else "steps in environments, thousands", fontsize=9)
        axis.grid(alpha=0.25)
        for color, (name, label) in zip(COLORS, runs.items(), strict=False):
            _curve(axis, result["runs"].get(name, {}), across, color, label)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, fontsize=8)
    figure.axes[0].set_ylabel("validation success, %", fontsize=9)
    return figure


def _curve(axis: Any, by_seed: Mapping[str, Any], across: int, color: str, label: str) -> None:
    """Points by step; where steps in environments lie across, each at its seeds' mean."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for run in by_seed.values():
        for point in run["curve"]:
            found[point[0]].append((point[across] / (1 if across == STEPS else 1000), 100 * point[2]))
    if not found:
        return
    places = [mean_interval([x for x, _ in points])[0] for points in found.values()]
    values = [mean_interval([y for _, y in points]) for points in found.values()]
    axis.plot(places, [mean for mean, _ in values], color=color, lw=1.3, label=label)
    low, high = ([max(0, min(100, mean + side * (half or 0))) for mean, half in values] for side in (-1, 1))
    axis.fill_between(places, low, high, color=color, alpha=0.12, lw=0)


def main() -> None:
    mpl.rcParams["svg.hashsalt"] = "whet"  # the same file for the same numbers
    name = sys.argv[1] if len(sys.argv) > 1 else "agents_tiny"
    path = RESULTS / f"{name}.svg"
    draw(json.loads((RESULTS / f"{name}.json").read_text())).savefig(path, metadata={"Date": None})
    print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


if __name__ == "__main__":
    main()
