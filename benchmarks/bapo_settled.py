"""Does BAPO's search earn anything on old data? The best fixed bounds, clip-higher, the paper's search, its gradient
form and DPPO at staleness 8 with eight updates a batch, in two worlds that have the premise.

    .venv/bin/python benchmarks/bapo_settled.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/bapo_settled.py --collect  # only reads what is there
    .venv/bin/python benchmarks/bapo_settled.py --only rambling --seeds 400 401

**Rates by one rule.** Each rule trains with seeds 60 and 61 at each of `RATES`. Its rate is the one whose last eight
steps have the highest sampled success in the mean of both seeds; the lower rate where two are equal. The best fixed
bounds are chosen in the same way, pair and rate together, so they have three times as many tries as the other rules.

**What is compared.** A batch waits eight steps, so the replies of a run's last eight steps are to problems that no
update of the run has seen. Their sampled success is the outcome. The replies of the first eight steps are the untrained
policy's. All rules meet the same problems in the same order, so differences are paired by seed.

**Budget.** One process of one thread at a time. A run takes about 70 s of CPU time among the chains and 135 s among the
agents, a writer 75 s: 42 tuning runs and 25 others a world are about 4.0 machine-hours. A tuning seed is 26 CPU minutes
among the chains and 47 among the agents; another seed is 7 and 11. The chains come first, whole, then the agents. A run
that was killed goes on from its last checkpoint; a finished one is read. Tuning and seeds of earlier sittings stay in
the result file (`study.accumulate`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from study import Part, accumulate, arguments, cell, machine, made_with, minus, policies_of, read_result, train

SEEDS = (400, 401, 402, 403, 404)
TUNING_SEEDS = (60, 61)
RATES = (3e-5, 1e-4, 3e-4)
STALENESS, NUM_STEPS = 8, 32
SEARCH = "loss.bounds.kind=bapo"
FIXED = {
    "fixed 0.8, 1.2": ("loss.bounds.low=0.8", "loss.bounds.high=1.2"),
    "fixed 0.6, 1.2": ("loss.bounds.low=0.6", "loss.bounds.high=1.2"),
    "fixed 0.9, 3": ("loss.bounds.low=0.9", "loss.bounds.high=3"),
}
"""PPO's pair, and both end states of the paper's search."""
RULES = {
    **FIXED,
    "clip-higher 0.8, 1.28": ("loss.bounds.low=0.8", "loss.bounds.high=1.28"),
    "BAPO, paper": (SEARCH,),
    "BAPO, gradient": (SEARCH, "loss.bounds.contribution=gradient"),
    "DPPO 0.2": ("loss.kind=dppo",),
}
BEST = "best fixed"
ARMS = (BEST, *(rule for rule in RULES if rule not in FIXED))
COMMON = (
    "num_threads=1", f"num_steps={NUM_STEPS}", "off_policy.kind=replay", f"off_policy.staleness={STALENESS}",
    "learning.num_epochs=2", "learning.final_share=1", "group_size=8", "traces_per_step=0", "checkpoint_every=8",
    "probe_every=0", "data.num_test=1", "data.num_validation=1", "validate_every=1000",
)  # fmt: skip
RAMBLE = 12
CHAINS = ("data.min_steps=5", "data.max_steps=6", "sampling.max_new_tokens=400")
WRITER = (*CHAINS, f"ramble={RAMBLE}", "num_steps=200", "num_threads=1", "data.num_test=1", "data.num_validation=1",
          "validate_every=1000", "evaluation.num_samples=0")  # fmt: skip
"""Raises the policy that the chains start from, a new one a seed."""


@dataclass(frozen=True)
class World:
    """What every rule trains in."""

    title: str
    method: str
    settings: tuple[str, ...]
    success: str
    """Metric of a step: the sampled success of its replies."""


WORLDS = {
    "rambling": World(
        f"Chains whose wrong replies are long: imitation with ramble={RAMBLE}", "grpo",
        (*CHAINS, "prompts_per_step=16", "learning.minibatch_rows=32", "evaluation.num_samples=0"), "reward/correct",
    ),
    "agents": World(
        "Agents: TextCraft, tiny_agent_early, five turns", "agent_grpo",
        ("data.env=textcraft", "policy.path=tiny_agent_early", "prompts_per_step=8", "learning.minibatch_rows=16",
         "max_turns=5", "evaluation.num_samples=1"), "reward/success",
    ),
}  # fmt: skip
PREMISE = {
    "share": ("balance/share_raw", "share of good tokens", 100),
    "positive": ("balance/tokens_positive", "good tokens", 100),
    "start": ("bounds/reach_start", "reach: at starts", 100),
    "most": ("bounds/reach_most", "at most", 100),
    "settled": ("bounds/settled", "searches that settled between", 100),
    "exhausted": ("bounds/exhausted", "ran out", 100),
    "rows": ("ratio/effective_rows", "effective rows", 100),
    "low_ratio": ("ratio/q01", "ratio, 1 %", 1),
    "high_ratio": ("ratio/q99", "99 %", 1),
    "age": ("staleness/mean", "age, updates", 1),
    "good_length": ("length/good", "tokens of right replies", 1),
    "bad_length": ("length/bad", "of wrong ones", 1),
}
"""Metric of a step, its title, and its scale in the table: means over the steps that trained."""


# --- running ----------------------------------------------------------------------------------------------------------


def run_one(root: Path, name: str, seed: int, rule: str, rate: float, extra: Sequence[str]) -> Path:
    """The folder of one run, trained now unless it was before."""
    world = WORLDS[name]
    out = folder_of(root, name, seed, rule, rate)
    settings = [f"seed={seed}", *COMMON, *world.settings, *RULES[rule], f"learning.learning_rate={rate:g}", *extra]
    if name == "rambling":
        writer = root / name / f"seed{seed}" / "writer"
        train("imitation", [*WRITER, f"seed={seed}"], writer)
        settings.append(f"policy.path={policies_of(writer) / 'policy'}")
    train(world.method, settings, out)
    return out


def run_tuning(root: Path, name: str, seed: int, extra: Sequence[str]) -> None:
    """Every rule at every rate, with one seed."""
    for rule in RULES:
        for rate in RATES:
            run_one(root, name, seed, rule, rate, extra)


def tuned_by(table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By rule: its rate, and what each rate came to in the mean over the tuning seeds."""
    tuned = {}
    for rule in RULES:
        tried = {rate: fmean(table["after"][rule][f"{rate:g}"]) for rate in RATES}
        tuned[rule] = {"rate": max(RATES, key=lambda rate, tried=tried: (tried[rate], -rate)), "tried": tried}
    return tuned


def arms_of(tuned: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, float]]:
    """By arm: its rule and rate."""
    pair = max(FIXED, key=lambda rule: tuned[rule]["tried"][tuned[rule]["rate"]])
    return {arm: (rule := pair if arm == BEST else arm, tuned[rule]["rate"]) for arm in ARMS}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_run(run: Path, name: str) -> dict[str, float | None]:
    """Success before any update and at the end, on the way, and the premise over the steps that trained."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["phase"] == "train" and row["step"] > 0]
    success = [row[WORLDS[name].success] for row in steps]
    values: dict[str, float | None] = {
        "before": fmean(success[:STALENESS]), "after": fmean(success[-STALENESS:]), "way": fmean(success[STALENESS:]),
        "signal": 1 - fmean(row["group/no_signal"] for row in steps),
    }  # fmt: skip
    for key, (metric, _, _) in PREMISE.items():
        known = [row[metric] for row in steps if row.get(metric) is not None]
        values[key] = fmean(known) if known else None
    return values


def tuning_part(root: Path, name: str, extra: Sequence[str]) -> Part:
    """The table that rates and fixed bounds are chosen by."""

    def measure(seed: int) -> dict[str, Any]:
        folders = {rule: {f"{rate:g}": folder_of(root, name, seed, rule, rate) for rate in RATES} for rule in RULES}
        after = {
            rule: {rate: read_run(run, name)["after"] for rate, run in runs.items()} for rule, runs in folders.items()
        }
        return {"machine": machine(folders["BAPO, paper"][f"{RATES[0]:g}"]), "after": after}

    return Part(
        place=("worlds", name, "tuning"),
        settings={**settings_of(name), "rates": RATES, "rules": RULES, "extra": extra},
        seeds=TUNING_SEEDS,
        run=lambda seed: run_tuning(root, name, seed, extra),
        folder=lambda seed: root / name / f"seed{seed}",
        is_whole=lambda seed: all(is_done(root, name, seed, rule, rate) for rule in RULES for rate in RATES),
        measure=measure,
    )


def arms_part(
    root: Path, name: str, arms: Mapping[str, tuple[str, float]], seeds: Sequence[int], extra: Sequence[str]
) -> Part:
    """The table of the arms, each at its own rate."""

    def run(seed: int) -> None:
        for rule, rate in arms.values():
            run_one(root, name, seed, rule, rate, extra)

    def measure(seed: int) -> dict[str, Any]:
        runs = {arm: folder_of(root, name, seed, *of) for arm, of in arms.items()}
        values = {arm: read_run(run, name) for arm, run in runs.items()}
        return {"machine": machine(runs[BEST]), "values": values}

    settings = {arm: {"rule": rule, "rate": rate, "settings": RULES[rule]} for arm, (rule, rate) in arms.items()}
    return Part(
        place=("worlds", name, "arms"),
        settings={**settings_of(name), "arms": settings, "extra": extra},
        seeds=seeds,
        run=run,
        folder=lambda seed: root / name / f"seed{seed}",
        is_whole=lambda seed: all(is_done(root, name, seed, *of) for of in arms.values()),
        measure=measure,
    )


def settings_of(name: str) -> dict[str, Any]:
    """What every run of a world shares."""
    writer = WRITER if name == "rambling" else ()
    return {"common": COMMON, "world": WORLDS[name].settings, "writer": writer}


def arms_in(world: Mapping[str, Any]) -> dict[str, tuple[str, float]] | None:
    """By arm: rule and rate. None: not all tuning seeds are measured."""
    table = world.get("tuning", {"seeds": []})
    return arms_of(tuned_by(table)) if set(TUNING_SEEDS) <= set(table["seeds"]) else None


def is_done(root: Path, name: str, seed: int, rule: str, rate: float) -> bool:
    return (folder_of(root, name, seed, rule, rate) / "summary.json").exists()


def folder_of(root: Path, name: str, seed: int, rule: str, rate: float) -> Path:
    """Without a dot: what follows one would be cut off for the name of its log."""
    words = rule.replace(",", "").replace(".", "").split()
    return root / name / f"seed{seed}" / "-".join([*words, f"{rate:.0e}"])


def markdown(result: Mapping[str, Any]) -> str:
    """Three tables a world: outcomes, premise, rates."""
    lines = ["# BAPO settled: five rules on data eight steps old", ""]
    lines += [
        f"In percent, mean ± half width of a 95 % t interval over seeds. Every batch waits {STALENESS} steps and makes "
        f"eight updates; {NUM_STEPS} steps, of which the last {NUM_STEPS - STALENESS} train. *Before*: sampled success "
        f"of the first {STALENESS} steps' replies, by the untrained policy. *After*: of the last {STALENESS} steps', "
        "on problems that no update of the run has seen. *On the way*: over all steps that train. Differences are "
        "paired by seed. "
        f"Rates are chosen on seeds {' and '.join(map(str, TUNING_SEEDS))}, by the highest *after*.",
        "",
    ]
    for name, found in result["worlds"].items():
        lines += [f"## {WORLDS[name].title}", ""]
        if "arms" in found:
            lines += arms_tables(found)
        lines += ["*After* on the tuning seeds, by rate:", ""]
        lines += ["| rule | " + " | ".join(f"{rate:g}" for rate in RATES) + " |", "|---" * (len(RATES) + 1) + "|"]
        for rule, tuned in tuned_by(found["tuning"]).items():
            lines.append(f"| {rule} | " + " | ".join(f"{100 * tuned['tried'][rate]:.1f}" for rate in RATES) + " |")
        lines += ["", *made_with(found["tuning"]), ""]
    lines += [f"Command: `{result['command']}`.", ""]
    return "\n".join(lines)


def arms_tables(world: Mapping[str, Any]) -> list[str]:
    """Lines of a world's outcomes and premise."""
    table = world["arms"]
    arms = {arm: (of["rule"], of["rate"]) for arm, of in table["settings"]["arms"].items()}

    def values(arm: str, key: str) -> list[float | None]:
        column: list[float | None] = table["values"][arm][key]
        return column

    lines = [f"Seeds {', '.join(map(str, table['seeds']))}.", ""]
    lines += ["| rule | rate | before | after | after − best fixed | after − BAPO, paper | on the way |"]
    lines += ["|---" * 7 + "|"]
    for arm, (rule, rate) in arms.items():
        title = f"{arm} ({rule})" if arm == BEST else arm
        after = values(arm, "after")
        differences = [
            "–" if arm == other else cell(minus(after, values(other, "after")), sign=True)
            for other in (BEST, "BAPO, paper")
        ]
        cells = [f"{rate:g}", cell(values(arm, "before")), cell(after), *differences, cell(values(arm, "way"))]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    lines += ["", "Premise, over the steps that trained; groups with a signal over all steps:", ""]
    lines += ["| rule | groups with a signal | " + " | ".join(title for _, title, _ in PREMISE.values()) + " |"]
    lines += ["|---" * (len(PREMISE) + 2) + "|"]
    for arm in ARMS:
        cells = [cell(values(arm, "signal"))]
        cells += [cell(values(arm, key), scale=scale) for key, (_, _, scale) in PREMISE.items()]
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return [*lines, "", *made_with(table), ""]


def main() -> None:
    options = arguments(__doc__, "bapo_settled", tuple(WORLDS), seeds=SEEDS, processes=1)
    root, extra = options.root, options.settings
    for name in options.only:
        accumulate(options, [tuning_part(root, name, extra)], markdown)
        arms = arms_in(read_result(options.name)["worlds"][name])
        if arms is None:
            raise SystemExit(f"{name}: not all runs of seeds {TUNING_SEEDS} have finished: run without --collect")
        accumulate(options, [arms_part(root, name, arms, options.seeds, extra)], markdown)
    print(markdown(read_result(options.name)))


if __name__ == "__main__":
    main()
