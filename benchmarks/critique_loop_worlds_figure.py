"""Draws results/critique_loop_worlds.json: where a critic pays. Needs `make setup EXTRAS=benchmarks`.

.venv/bin/python benchmarks/critique_loop_worlds_figure.py   # results/critique_loop_worlds.svg
"""

from __future__ import annotations

import json
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from critique_loop_worlds import CRITICS, CROSSOVER, leads
from study import RESULTS, minus
from whet.evaluation.critique import mean_interval

COLORS = {"warm": "#e69f00", "trained": "#0072b2", "oracle": "#009e73"}
"""Okabe and Ito's, which the colour-blind can tell apart."""


def draw(worlds: dict[str, Any]) -> Figure:
    """The lead over vanilla at equal tokens, by world, and by how much the critic's critiques mend."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    by_env, by_critic = figure.subplots(1, 2, sharey=True)
    names = [world for world in CROSSOVER if world in worlds]
    for critic, color in COLORS.items():
        points = [mean_interval([100 * (lead or 0) for lead in leads(worlds[world], critic)]) for world in names]
        means, halves = [mean for mean, _ in points], [half or 0.0 for _, half in points]
        gains = [
            fmean(100 * (gain or 0) for gain in minus(worlds[world]["acc_refine"][critic], worlds[world]["no_critic"]))
            for world in names
        ]
        bars = {"color": color, "marker": "o", "capsize": 3, "label": CRITICS[critic][0]}
        by_env.errorbar(range(len(names)), means, yerr=halves, **bars)
        by_critic.errorbar(gains, means, yerr=halves, linestyle="none", **bars)
    by_env.set_xticks(range(len(names)), names)
    by_env.set_xlabel("how stubborn the misconceptions are")
    by_env.set_ylabel("lead at equal tokens, points")
    by_critic.set_xlabel("what one critique mends: Acc@Refine − Acc, points")
    for axis in (by_env, by_critic):
        axis.axhline(0, color="#888888", linewidth=0.8)
        axis.grid(alpha=0.25)
    by_env.legend(fontsize=8)
    return figure


def main() -> None:
    mpl.rcParams["svg.hashsalt"] = "whet"  # the same file for the same numbers
    result = json.loads((RESULTS / "critique_loop_worlds.json").read_text())
    path = RESULTS / "critique_loop_worlds.svg"
    draw(result["worlds"]).savefig(path, metadata={"Date": None})
    print(path)


if __name__ == "__main__":
    main()
