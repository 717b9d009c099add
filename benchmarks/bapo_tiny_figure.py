"""Draws results/bapo_tiny.json: curves over training, a column a regime. Needs `make setup EXTRAS=benchmarks`.

.venv/bin/python benchmarks/bapo_tiny_figure.py   # results/bapo_tiny_1e-4.svg, results/bapo_tiny_3e-4.svg
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bapo_tiny import BINS, RATES, REGIME_TITLES, REGIMES_OF, TITLES
from study import RESULTS

COLORS = {
    "fixed": "#000000", "clip_higher": "#e69f00", "cispo": "#d55e00", "m2po": "#cc79a7",
    "bapo": "#0072b2", "bapo_code": "#56b4e9", "bapo_gradient": "#009e73",
}  # fmt: skip
"""Okabe and Ito's, which the colour-blind can tell apart."""
PANELS = (
    ("validation/acc", "validation\naccuracy, %", 100, "linear"), ("entropy/sampled", "entropy, nats", 1, "log"),
    ("optim/grad_norm", "gradient norm", 1, "log"), ("balance/share", "positive\nshare, %", 100, "linear"),
)  # fmt: skip


def draw(result: dict[str, Any], rate: str) -> Figure:
    """One rate: metrics down, regimes across; means over seeds and 95 % intervals."""
    regimes = REGIMES_OF[rate]
    figure = Figure(figsize=(2.5 * len(regimes), 7.6), layout="constrained")
    axes = figure.subplots(len(PANELS), len(regimes), sharex=True, sharey="row", squeeze=False)
    for column, regime in enumerate(regimes):
        axes[0, column].set_title(REGIME_TITLES[regime], fontsize=10)
        for row, (metric, title, factor, scale) in enumerate(PANELS):
            axis = axes[row, column]
            axis.set_yscale(scale)
            axis.grid(alpha=0.25)
            if column == 0:
                axis.set_ylabel(title, fontsize=9)
            for method, color in COLORS.items():
                cell = result["cells"].get(f"{rate}/{method}/{regime}")
                if cell is not None:
                    _curve(axis, cell["curves"][metric], factor, scale, color, TITLES[method])
        axes[-1, column].set_xlabel("part of training, %", fontsize=9)
    axes[-1, 0].set_ylim(30, 70)
    handles, labels = axes[0, -1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(f"learning rate {RATES[rate]:g}, {len(result['seeds'])} seeds", fontsize=11)
    return figure


def _curve(axis: Any, points: list[Any], factor: float, scale: str, color: str, label: str) -> None:
    known = [(100 * (i + 1) / BINS, factor * p[0], factor * (p[1] or 0)) for i, p in enumerate(points) if p]
    at, mean, half = zip(*known, strict=True)
    axis.plot(at, mean, color=color, lw=1.3, label=label)
    floor = min(mean) / 10 if scale == "log" else 0.0  # an interval that reaches below 0 has no place on a log axis
    low = [max(m - h, floor) for m, h in zip(mean, half, strict=True)]
    high = [m + h for m, h in zip(mean, half, strict=True)]
    if scale == "linear":
        high = [min(h, 100.0) for h in high]
    axis.fill_between(at, low, high, color=color, alpha=0.1, lw=0)


def main() -> None:
    mpl.rcParams["svg.hashsalt"] = "whet"  # the same file for the same numbers
    result = json.loads((RESULTS / "bapo_tiny.json").read_text())
    for rate, value in RATES.items():
        path = RESULTS / f"bapo_tiny_{value:.0e}.svg".replace("e-0", "e-")
        draw(result, rate).savefig(path, metadata={"Date": None})
        print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


if __name__ == "__main__":
    main()
