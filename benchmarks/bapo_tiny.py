"""Does a fixed clip lose entropy or collapse as data get older, and does BAPO hold? Five seeds on the tiny world.

    .venv/bin/python benchmarks/bapo_tiny.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/bapo_tiny.py --collect  # only reads what is there

Seven ways to bound the ratio (GRPO's fixed clip, clip-higher, CISPO, M2PO, BAPO's three presets), each where every
batch waits 1, 2, 4 or 8 steps before it is trained on in two updates, with partial rollout, and where a batch that
waited 4 steps is used for eight updates; and the fixed clip on fresh batches, for reference. Everything but the loss,
the regime and the learning rate is the same in all runs. The world's difficulty and the rates were chosen before, on
other seeds and on validation problems, for the fixed clip's benefit (see `RATES`).

Each run uses one thread, two run side by side. A run that was killed goes on from its last checkpoint, a finished one
is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

import whet.methods  # noqa: F401 - registers them
from study import arguments, machine, train, write
from whet.config.losses import BalancedBounds
from whet.evaluation.critique import mean_interval
from whet.methods.registry import preset_of
from whet.trainer.losses import bounds_rule

METHODS = {
    "fixed": ("grpo", ()),
    "clip_higher": ("grpo", ("loss.bounds.high=1.28",)),
    "cispo": ("cispo", ()),
    "m2po": ("m2po", ()),
    "bapo": ("bapo", ()),
    "bapo_code": ("bapo_code", ()),
    "bapo_gradient": ("bapo_gradient", ()),
}
TITLES = {
    "fixed": "fixed clip 0.8, 1.2", "clip_higher": "clip-higher 0.8, 1.28", "cispo": "CISPO 0, 5", "m2po": "M2PO 0.04",
    "bapo": "BAPO, paper", "bapo_code": "BAPO, code", "bapo_gradient": "BAPO, gradient",
}  # fmt: skip
REGIMES = {
    "fresh": (),
    **{f"stale{k}": ("off_policy.kind=replay", f"off_policy.staleness={k}") for k in (1, 2, 4, 8)},
    "partial": ("off_policy.kind=partial", "off_policy.budget=8"),
    "reuse": (
        "off_policy.kind=replay",
        "off_policy.staleness=4",
        "learning.num_epochs=2",
        "learning.minibatch_rows=32",
    ),
}
REGIME_TITLES = {
    "fresh": "fresh",
    **{f"stale{k}": f"staleness {k}" for k in (1, 2, 4, 8)},
    "partial": "partial rollout",
    "reuse": "staleness 4, 8 updates a batch",
}
COMMON = (
    "num_threads=1", "num_steps=80", "data.min_steps=5", "data.max_steps=6", "prompts_per_step=16", "group_size=8",
    "learning.minibatch_rows=64", "learning.num_epochs=1", "learning.final_share=1", "validate_every=10",
    "data.num_validation=256", "data.num_test=500", "evaluation.num_samples=4", "traces_per_step=0",
    "checkpoint_every=50", "probe_every=5",
)  # fmt: skip
RATES = {"tuned": 1e-4, "high": 3e-4}
"""Constant learning rates. Tried with the fixed clip, seeds 100 and 101, 100 steps, staleness 0, 4 and 8, on chains of
5 to 6 operations: `tuned` has the best last validation at every staleness (100 % each), and `high` is the highest of
1e-4, 2e-4, 3e-4 and 1e-3 at which the fixed clip learns from fresh batches (on chains of 3 to 6, 1e-3 ends at 10 %).
Chains of 6 to 9 operations were beyond the model. What was printed then: results/bapo_tiny_tuning.txt."""
REGIMES_OF = {
    "tuned": ("fresh", "stale1", "stale2", "stale4", "stale8", "partial"),
    "high": ("fresh", "stale4", "stale8", "partial", "reuse"),
}
"""Reuse, the oldest data, was added when the other results were known, to see the rules where ratios have spread
further."""
CURVES = {
    "validation/acc": "accuracy",
    "entropy/sampled": "entropy",
    "optim/grad_norm": "gradient norm",
    "balance/share": "positive share",
}
"""Metric of a step, and what it is called here."""
BINS = 10
"""Parts of a run over which its steps are averaged."""


Cell = tuple[str, str, str]
"""A rate, a method, a regime."""


def cells() -> list[Cell]:
    """All of the study."""
    return [(rate, m, regime) for rate, regime in settings() for m in METHODS if regime != "fresh" or m == "fixed"]


def settings() -> list[tuple[str, str]]:
    """Rates and regimes, as the tables show them."""
    return [(rate, regime) for rate in RATES for regime in REGIMES_OF[rate]]


def run_one(root: Path, seed: int, cell: Cell, extra: Sequence[str]) -> None:
    """Train one setting with one seed, or go on with it."""
    rate, method, regime = cell
    preset, options = METHODS[method]
    settings = [f"seed={seed}", *COMMON, f"learning.learning_rate={RATES[rate]}", *options, *REGIMES[regime], *extra]
    try:
        train(preset, settings, root / f"seed{seed}" / "-".join(cell))
    except RuntimeError as error:
        print(f"{error}; the others go on", flush=True)


def run_all(root: Path, seeds: Sequence[int], extra: Sequence[str]) -> None:
    """Two runs at a time, seed by seed, so that a study cut short has whole seeds."""
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(run_one, root, seed, cell, extra) for seed in seeds for cell in cells()]
        for job in jobs:
            job.result()


# --- reading ----------------------------------------------------------------------------------------------------------


def read_run(folder: Path, method: str) -> dict[str, Any] | None:
    """One run's numbers; None where it has not finished."""
    if not (folder / "summary.json").exists():
        return None
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    train = [row for row in rows if row["phase"] == "train"]
    summary = json.loads((folder / "summary.json").read_text())
    steps = [row for row in train if row["step"] > 0]
    accuracy = [row["validation/acc"] for row in train if "validation/acc" in row]
    norms = [row["optim/grad_norm"] for row in steps if "optim/grad_norm" in row]
    late = steps[-len(steps) // 4 :]
    agreed = [row["entropy/rule_agrees"] for row in steps if "entropy/rule_agrees" in row]
    return {
        "last": summary["rows"]["last"]["acc"],
        "best": summary["rows"]["best"]["acc"],
        "average": summary["rows"]["last"]["average"],
        "pass": summary["rows"]["last"]["pass"],
        "mean_accuracy": fmean(accuracy),
        "drop": max(accuracy) - accuracy[-1],
        "entropy": _mean(late, "entropy/sampled"),
        "first_entropy": next(row["entropy/sampled"] for row in steps if "entropy/sampled" in row),
        "largest_norm": max(norms),
        "share": _mean(steps, "balance/share"),
        "share_raw": _mean(steps, "balance/share_raw"),
        "clipped": _mean(steps, "clip/low") + _mean(steps, "clip/high"),
        "low": _mean(steps, "bounds/low"),
        "high": _mean(steps, "bounds/high"),
        "moves": _mean(steps, "bounds/moves"),
        "exhausted": _mean(steps, "bounds/exhausted"),
        "between": _between(steps, method),
        "kl": _mean(steps, "kl/sampler"),
        "age": _mean(steps, "staleness/mean"),
        "rule_agrees": fmean(agreed) if agreed else float("nan"),
        "falls": fmean(row["entropy/measured"] < 0 for row in steps if "entropy/measured" in row),
        "seconds": summary["seconds"],
        "curves": {name: _binned(train, name) for name in CURVES},
    }


def _mean(rows: Sequence[dict[str, Any]], name: str) -> float:
    values = [row[name] for row in rows if row.get(name) is not None]
    return fmean(values) if values else float("nan")


def _between(rows: Sequence[dict[str, Any]], method: str) -> float:
    """Share of the steps with searches in which one of them moved and met the target: more moves than by those alone
    that ran out, which make all there are."""
    bounds = getattr(preset_of(METHODS[method][0]).config.loss, "bounds", None)
    searched = [row for row in rows if "bounds/moves" in row]
    if not isinstance(bounds, BalancedBounds) or not searched:
        return float("nan")
    rule = bounds_rule(bounds)
    every = len(rule.low.values) + len(rule.high.values) - 2
    return fmean(row["bounds/moves"] > every * row["bounds/exhausted"] + 1e-9 for row in searched)


def _binned(rows: Sequence[dict[str, Any]], name: str) -> list[float | None]:
    """Means over each tenth of the run (of validation: the value at its end)."""
    total = max(row["step"] for row in rows)
    bins: list[float | None] = []
    for number in range(BINS):
        inside = [r[name] for r in rows if name in r and number * total < r["step"] * BINS <= (number + 1) * total]
        bins.append(fmean(inside) if inside else None)
    return bins


def collect(root: Path, seeds: Sequence[int], command: str) -> dict[str, Any]:
    """Every cell's numbers by seed, and means with 95 % t intervals over seeds."""
    found: dict[str, dict[str, Any]] = {}
    missing: list[str] = []
    where: dict[str, Any] = {}
    commits = set()
    for cell in cells():
        runs = {}
        for seed in seeds:
            folder = root / f"seed{seed}" / "-".join(cell)
            run = read_run(folder, cell[1])
            if run is None:
                missing.append(f"seed {seed} {' '.join(cell)}")
            else:
                runs[seed] = run
                where = where or machine(folder)
                commits.add(machine(folder)["commit"])
        if runs:
            found["/".join(cell)] = _cell(runs)
    return {
        "command": command,
        "seeds": list(seeds),
        "settings": list(COMMON),
        "rates": RATES,
        "machine": where | {"commit": ", ".join(sorted(map(str, commits)))},
        "missing": missing,
        "run_seconds": round(sum(sum(each["values"]["seconds"]) for each in found.values())),
        "cells": found,
        "questions": questions(found),
    }


def _cell(runs: dict[int, dict[str, Any]]) -> dict[str, Any]:
    names = [name for name in next(iter(runs.values())) if name != "curves"]
    values = {name: [run[name] for run in runs.values()] for name in names}
    curves = {}
    for name in CURVES:
        columns = zip(*(run["curves"][name] for run in runs.values()), strict=True)
        curves[name] = [mean_interval(whole) if (whole := [v for v in c if v is not None]) else None for c in columns]
    finite = {n: v for n, v in values.items() if all(x == x for x in v)}
    return {
        "seeds": list(runs),
        "values": finite,
        "mean": {name: mean_interval(found) for name, found in finite.items()},
        "curves": curves,
    }


def questions(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """What the study asks, as differences of runs with the same seed (95 % t interval)."""
    asked = []

    def differ(question: str, left: str, right: str, metric: str, scale: float) -> None:
        if left not in found or right not in found:
            return
        by_seed = [dict(zip(found[c]["seeds"], found[c]["values"][metric], strict=True)) for c in (left, right)]
        both = [seed for seed in by_seed[0] if seed in by_seed[1]]
        if both:
            mean, half = mean_interval([scale * (by_seed[0][s] - by_seed[1][s]) for s in both])
            asked.append(
                {"question": question, "left": left, "right": right, "metric": metric, "mean": mean, "half": half}
            )

    for rate in RATES:
        for regime in REGIMES_OF[rate][1:]:
            told = f"{_rate(rate)}, fixed clip, {REGIME_TITLES[regime]} against fresh"
            left, right = f"{rate}/fixed/{regime}", f"{rate}/fixed/fresh"
            differ(f"{told}: last accuracy", left, right, "last", 100)
            differ(f"{told}: entropy x 1000", left, right, "entropy", 1000)
        for regime in REGIMES_OF[rate][1:]:
            for method in list(METHODS)[1:]:
                told = f"{_rate(rate)}, {REGIME_TITLES[regime]}, {TITLES[method]} against the fixed clip"
                left, right = f"{rate}/{method}/{regime}", f"{rate}/fixed/{regime}"
                differ(f"{told}: last accuracy", left, right, "last", 100)
                differ(f"{told}: accuracy on the way", left, right, "mean_accuracy", 100)
                differ(f"{told}: entropy x 1000", left, right, "entropy", 1000)
    return asked


def _rate(name: str) -> str:
    return f"rate {RATES[name]:g}"


# --- writing ----------------------------------------------------------------------------------------------------------

COLUMNS = (
    ("last", "accuracy, last", 100, 1), ("average", "mean of 4 samples", 100, 1),
    ("mean_accuracy", "accuracy on the way", 100, 1), ("drop", "lost since the best validation", 100, 1),
    ("entropy", "entropy x 1000, last quarter", 1000, 1), ("largest_norm", "largest gradient norm of a step", 1, 1),
    ("share", "positive share", 100, 1), ("clipped", "clipped tokens", 100, 2), ("kl", "KL x 1000", 1000, 1),
)  # fmt: skip


def markdown(result: dict[str, Any]) -> str:
    """The tables and the answers, as they are."""
    found = result["cells"]
    lines = [
        "# Clip rules on stale data: the tiny world",
        "",
        f"Seeds {', '.join(map(str, result['seeds']))}; mean ± half width of a 95 % t interval over seeds. Accuracies, "
        "shares and clipped tokens in percent; greedy accuracy on 500 test problems, *on the way* the mean of the "
        "validations every 10 steps; entropy in nats a token, of the replies sampled in the last quarter of the run; "
        "positive share P / (P + N) after clipping (of CISPO and M2PO: of what they push with), and KL from sampler to "
        "trainer a token, over the whole run. A step's gradient norm is the mean of its updates. With staleness k "
        "the first k of the 80 steps only fill the queue, so older data also mean fewer updates.",
        "",
        f"Settings of every run: `{' '.join(result['settings'])}`.",
        "",
    ]
    if result["missing"]:
        lines += [f"Not finished, so not in here: {'; '.join(result['missing'])}.", ""]
    for rate, regime in settings():
        those = [m for m in METHODS if f"{rate}/{m}/{regime}" in found]
        if not those:
            continue
        age = found[f"{rate}/{those[0]}/{regime}"]["mean"].get("age")
        told = f" (tokens are {age[0]:.1f} updates old on average)" if age else ""
        lines += [f"## {_rate(rate).capitalize()}, {REGIME_TITLES[regime]}{told}", ""]
        lines += ["| method | " + " | ".join(title for _, title, _, _ in COLUMNS) + " |"]
        lines += ["|---" * (len(COLUMNS) + 1) + "|"]
        for method in those:
            mean = found[f"{rate}/{method}/{regime}"]["mean"]
            shown = [_shown(mean.get(name), scale, digits) for name, _, scale, digits in COLUMNS]
            lines.append(f"| {TITLES[method]} | " + " | ".join(shown) + " |")
        lines.append("")
    lines += [
        "## BAPO's bounds",
        "",
        "Means over the searches; *ran out*: of the searches, the share that ended short of the target, with both "
        "bounds at their ends; *in between*: of the steps, the share in which a search moved and met it. Else the "
        "starts met it.",
        "",
        "| rate | regime | preset | lower | upper | moves | ran out, % | in between, % |",
    ]
    lines += ["|---" * 8 + "|"]
    for name, cell in found.items():
        rate, method, regime = name.split("/")
        if "low" in cell["mean"]:
            columns = (("low", 1, 3), ("high", 1, 2), ("moves", 1, 1), ("exhausted", 100, 1), ("between", 100, 1))
            told = " | ".join(_shown(cell["mean"][n], s, d) for n, s, d in columns)
            lines.append(f"| {RATES[rate]:g} | {REGIME_TITLES[regime]} | {TITLES[method]} | {told} |")
    lines += ["", "## Entropy-Clip Rule", ""]
    lines += [
        "Percent of the probed updates in which the sign of the predicted change of entropy was the measured one; in "
        "brackets of those in which the entropy fell, which is how often 'it falls' would have been right:",
        "",
    ]
    lines += ["| rate | regime | " + " | ".join(TITLES.values()) + " |", "|---" * (len(METHODS) + 2) + "|"]
    for rate, regime in settings():
        agreed = [found.get(f"{rate}/{m}/{regime}", {}).get("mean", {}).get("rule_agrees") for m in METHODS]
        fell = [found.get(f"{rate}/{m}/{regime}", {}).get("mean", {}).get("falls") for m in METHODS]
        if any(agreed):
            pairs = zip(agreed, fell, strict=True)
            told = " | ".join(f"{_shown(a, 100, 0)} ({_shown(f and (f[0], None), 100, 0)})" for a, f in pairs)
            lines.append(f"| {RATES[rate]:g} | {REGIME_TITLES[regime]} | {told} |")
    lines += ["", "## The questions, as differences of runs with one seed", ""]
    lines += ["| question | difference | beyond the interval |", "|---|---|---|"]
    for row in result["questions"]:
        half = float("nan") if row["half"] is None else row["half"]
        beyond = "yes" if abs(row["mean"]) > half else "no"
        lines.append(f"| {row['question']} | {row['mean']:+.1f} ± {half:.1f} | {beyond} |")
    lines += ["", "## On the way: means over tenths of the run", ""]
    for name, title in CURVES.items():
        scale = {"validation/acc": 100, "entropy/sampled": 1000, "balance/share": 100}.get(name, 1)
        unit = {"validation/acc": ", %", "entropy/sampled": " x 1000", "balance/share": ", %"}.get(name, "")
        bins = " | ".join(map(str, range(1, BINS + 1)))
        lines += [f"### {title.capitalize()}{unit}", "", f"| rate | regime | method | {bins} |"]
        lines += ["|---" * (BINS + 3) + "|"]
        for rate, method, regime in cells():
            if f"{rate}/{method}/{regime}" in found:
                points = found[f"{rate}/{method}/{regime}"]["curves"][name]
                told = " | ".join(_point(p, scale) for p in points)
                lines.append(f"| {RATES[rate]:g} | {REGIME_TITLES[regime]} | {TITLES[method]} | {told} |")
        lines.append("")
    lines += [f"Command: `{result['command']}`. Machine: {json.dumps(result['machine'])}. Sum of run times: "
              f"{result['run_seconds']} s, one thread a run.", ""]  # fmt: skip
    return "\n".join(lines)


def _shown(value: Sequence[float | None] | None, scale: float, digits: int) -> str:
    if not value or value[0] is None:
        return "–"
    half = value[1]
    return f"{scale * value[0]:.{digits}f}" + (f" ± {scale * half:.{digits}f}" if half is not None else "")


def _point(value: Sequence[float | None] | None, scale: float) -> str:
    if not value or value[0] is None:
        return "–"
    return f"{scale * value[0]:.3g}" + (f" ± {scale * value[1]:.2g}" if value[1] is not None else "")


def main() -> None:
    options = arguments(__doc__, "bapo_tiny")
    if not options.collect:
        run_all(options.root, options.seeds, options.settings)
    result = collect(options.root, options.seeds, options.command)
    write(options.name, result, markdown(result))


if __name__ == "__main__":
    main()
