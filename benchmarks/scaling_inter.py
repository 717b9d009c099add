"""Does a horizon that grows beat fixed ones at equal steps in environments? TextCraft of all depths.

    .venv/bin/python benchmarks/scaling_inter.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/scaling_inter.py --collect  # only reads what is there
    .venv/bin/python benchmarks/scaling_inter.py --seeds 400 401

Each seed raises its own agent: `tiny_agent`, which has learnt the game with thoughts, clones careless episodes without
thoughts, of goals of depth 1 to 4, in 500 updates whose rate falls to a twentieth. More cloning would raise it further;
what the arms differ by is the horizon alone. From there three arms train by RL at one constant rate: a short horizon, a
long one, and one that grows. Each ends with the step that reaches `ENV_STEPS` steps in environments. All are measured
at the limit of the long horizon, by their last weights, on test items that no model has seen. Nothing is chosen by
validation, since `tiny_agent` has seen the items of validation.

The premises are measured beside it: what the start does within each horizon, by depth; the share of episodes that the
horizon cuts; and the share of groups that have a signal. The settings were chosen with the seeds and runs of
`results/horizon_tuning.txt`. Each run uses one thread, and two run side by side. A run that was killed goes on from its
last checkpoint, and a finished one is read. Settings after the command go to every run of RL (to see that all of it
works: `--seeds 7 --root /tmp/try --name try max_env_steps=3000 data.num_test=4`).

One seed takes about 32 CPU minutes of one thread, as `results/horizon_tuning.txt` reckons: 4 for the clone, 6 to 9 for
each arm, 5 to measure. Seeds of earlier sittings stay in the result file (`study.accumulate`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

from study import (
    arguments,
    cell,
    machine,
    made_with,
    minus,
    policies_of,
    rows_of,
    run_study,
    seconds_of,
    train,
    validated_success,
    whet,
)

SEEDS = tuple(range(400, 405))
DEPTHS = ("depth 1", "depth 2", "depth 3", "depth 4")
ENV_STEPS = 70_000
"""Steps in environments that an arm may train for."""
SHORT, MIDDLE, LONG = 6, 12, 20
"""Turns. The expert needs 2.5, 5.2, 10.1 and 14.6 of them at depth 1 to 4."""
STAGE = 12
"""Steps of each horizon but the last, where it grows."""
DATA = (f"data.groups={json.dumps(DEPTHS)}", f"evaluation.max_turns={LONG}")
PLAY = (f"expert.max_turns={LONG}", "expert.wrong_count=0.1", "expert.wrong_action=0.1", "expert.stuck=0.3")
START = (
    "policy.path=tiny_agent", "policy.random_weights=null", "num_steps=500", "validate_every=100",
    "learning.learning_rate=2e-3", "learning.warmup_steps=50", "evaluation.num_samples=1",
    "evaluation.validation_samples=2",
)  # fmt: skip
"""Of the clone. Its table is not read: every arm measures it again."""
RL = ("num_steps=1000", "validate_every=1000", f"max_env_steps={ENV_STEPS}", "evaluation.num_samples=4",
      "evaluation.validation_samples=1")  # fmt: skip
"""The rest is the preset's: 32 items of 8 episodes a step in four updates, at a constant rate of 2e-4."""
ARMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "short": (f"fixed, {SHORT} turns", (f"max_turns={SHORT}",)),
    "long": (f"fixed, {LONG} turns", (f"max_turns={LONG}",)),
    "growing": (
        f"growing: {SHORT}, {MIDDLE}, {LONG} turns",
        (f"schedule.max_turns={{kind: steps, values: [{SHORT}, {MIDDLE}, {LONG}], every: {STAGE}}}",),
    ),
}
"""Title and settings of each."""
LEADS = (("growing", "short"), ("growing", "long"), ("short", "long"))
EDGE = 5
"""Steps at either end over which a training run is averaged."""
TRAINED = ("reward/success", "turns/mean", "turns/invalid", "episodes/cut_by_horizon", "group/no_signal",
           "group/all_wrong")  # fmt: skip


def run_one(root: Path, seed: int, extra: Sequence[str]) -> None:
    """All runs of one seed, or what is missing of them."""
    folder = root / f"seed{seed}"
    shared = (f"seed={seed}", "num_threads=1", *DATA)
    start = folder / "start"
    train("agent_clone_careless", [*shared, *PLAY, *START], start)
    for turns in (SHORT, MIDDLE):
        measured(start, f"evaluation.max_turns={turns}", samples=4)
    cloned = policies_of(start) / "policy"
    for name, (_, settings) in ARMS.items():
        run = folder / name
        train("agent_grpo_tiny", [*shared, *RL, *settings, f"policy.path={cloned}", *extra], run)
        measured(run)


def is_whole(root: Path, seed: int) -> bool:
    return all((root / f"seed{seed}" / run / "summary.json").exists() for run in ("start", *ARMS))


def measured(run: Path, *settings: str, samples: int = 1) -> Mapping[str, float | None]:
    """What `whet eval` says of a run's last weights on the test items; measured now, unless it was before.

    Args:
        settings: other than the run's.
        samples: episodes an item. 1: greedy.
    Raises: RuntimeError where it stopped.
    """
    place = f"last-test-n*-k{samples}{'-t*' if samples > 1 else ''}"
    place += f"-{sha256(' '.join(sorted(settings)).encode()).hexdigest()[:8]}" if settings else ""

    def files() -> list[Path]:
        return sorted((run / "eval").glob(f"{place}.json"))

    if not files():
        whet(run.with_suffix(".eval.log"), "eval", str(run), *settings, "--critic", "last", "--samples", str(samples))
    metrics: Mapping[str, float | None] = json.loads(files()[0].read_text())["metrics"]
    return metrics


def by_depth(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Success over all test items, and of each depth."""
    return {"all": metrics["success"], **{depth: metrics.get(f"success[textcraft, {depth}]") for depth in DEPTHS}}


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The steps of the phase that trains."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["phase"] == "train" and line["step"]]


def training_of(run: Path) -> dict[str, float | None]:
    """What an arm spent, and what its episodes were like in all of it and in `EDGE` steps at either end."""
    steps = metrics_of(run)
    found: dict[str, float | None] = {
        "env_steps": sum(step["turns/env_steps"] for step in steps),
        "steps": len(steps),
        "updates": sum(step.get("optim/updates", 0) for step in steps),
        "seconds": seconds_of(run),
    }
    for part, lines in (("whole", steps), ("first", steps[:EDGE]), ("last", steps[-EDGE:])):
        for metric in TRAINED:
            values = [line[metric] for line in lines if line.get(metric) is not None]
            found[f"{part} {metric}"] = fmean(values) if values else None
    return found


def measure(folder: Path) -> dict[str, Any]:
    """A seed's numbers: shares in [0, 1], turns an episode, steps in environments as counted."""
    start = folder / "start"
    validated = validated_success(start)
    tables = {arm: rows_of(folder / arm) for arm in ARMS}
    limits = {str(turns): measured(start, f"evaluation.max_turns={turns}", samples=4) for turns in (SHORT, MIDDLE)}
    limits[str(LONG)] = tables["long"]["before"]
    return {
        "machine": machine(folder / "long"),
        "start_last_rise": validated[-1] - validated[-2],
        "start": {turns: by_depth(metrics) for turns, metrics in limits.items()},
        "start_cut": {turns: metrics["truncated"] for turns, metrics in limits.items()},
        "sampled": {arm: by_depth(table["last"]) for arm, table in tables.items()},
        "greedy": {arm: by_depth(measured(folder / arm)) for arm in ARMS},
        "turns": {arm: table["last"]["turns"] for arm, table in tables.items()},
        "training": {arm: training_of(folder / arm) for arm in ARMS},
    }


def markdown(result: Mapping[str, Any]) -> str:
    """The premises, the arms, and their leads as paired differences."""
    found = result["found"]
    columns = ("all", *DEPTHS)
    lines = ["# A horizon that grows, beside fixed ones, at equal steps in environments", ""]
    lines += [
        "In percent: mean ± half width of a 95 % t interval over seeds "
        f"{', '.join(map(str, found['seeds']))}. TextCraft, goals of depth 1 to 4, measured at {LONG} turns by the "
        "last weights, with four sampled episodes of each test item, and greedily.",
        "",
        "## Premises: what the clone does within each horizon, before anything is learnt",
        "",
        f"The clone's last rise in validation: {cell(found['start_last_rise'], sign=True)}.",
        "",
        f"| the clone, sampled, within | {' | '.join(columns)} | episodes cut |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for turns, success in found["start"].items():
        cells = [f"{turns} turns", *(cell(success[column]) for column in columns), cell(found["start_cut"][turns])]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## What training spent, and what its episodes were like", ""]
    lines += ["| arm | steps in environments | steps | updates | seconds |", "|---" * 5 + "|"]
    for arm, (title, _) in ARMS.items():
        spent = found["training"][arm]
        cells = [cell(spent[key], scale=1) for key in ("env_steps", "steps", "updates", "seconds")]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += ["", f"`first`, `last`: {EDGE} steps at either end.", ""]
    lines += ["| arm | steps | success | turns | cut by the horizon | groups without signal | all wrong |"]
    lines += ["|---" * 7 + "|"]
    for arm, (title, _) in ARMS.items():
        for part in ("first", "last", "whole"):
            of_part = {metric: found["training"][arm][f"{part} {metric}"] for metric in TRAINED}
            cells = [cell(of_part["reward/success"]), cell(of_part["turns/mean"], scale=1)]
            cells += [cell(of_part[key]) for key in ("episodes/cut_by_horizon", "group/no_signal", "group/all_wrong")]
            lines.append(f"| {title} | {part} | {' | '.join(cells)} |")
    start = found["start"][str(LONG)]
    for how in ("sampled", "greedy"):
        lines += ["", f"## Test items, {how}", "", f"| arm | {' | '.join(columns)} |"]
        lines += ["|---" * (len(columns) + 1) + "|"]
        if how == "sampled":
            lines.append(f"| start | {' | '.join(cell(start[column]) for column in columns)} |")
        for arm, (title, _) in ARMS.items():
            lines.append(f"| {title} | {' | '.join(cell(found[how][arm][column]) for column in columns)} |")
        lines += ["", "Leads, paired by seed:", "", f"| left − right | {' | '.join(columns)} | all, by seed |"]
        lines += ["|---" * (len(columns) + 2) + "|"]
        for left, right in LEADS:
            leads = [minus(found[how][left][column], found[how][right][column]) for column in columns]
            each = ", ".join("–" if value is None else f"{100 * value:+.1f}" for value in leads[0])
            shown = " | ".join(cell(lead, sign=True) for lead in leads)
            lines.append(f"| {left} − {right} | {shown} | {each} |")
    return "\n".join([*lines, "", *made_with(found), "", f"Command: `{result['command']}`.", ""])


def main() -> None:
    options = arguments(__doc__, "scaling_inter", seeds=SEEDS, processes=2)
    arms = {arm: settings for arm, (_, settings) in ARMS.items()}
    settings = {"data": DATA, "play": PLAY, "start": START, "rl": RL, "arms": arms}
    run_study(options, settings, run_one, is_whole, measure, markdown)


if __name__ == "__main__":
    main()
