"""Do RL with tools and AgentEvol in four environments improve the tiny agent that has cloned careless episodes in them?

    .venv/bin/python benchmarks/new_worlds.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/new_worlds.py --collect  # only reads what is there
    .venv/bin/python benchmarks/new_worlds.py --seeds 400 401

Each seed raises its own start: `tiny_agent_worlds`, which ships, clones careless episodes in TextCraft, maze, academia
(an environment of tools) and cookingworld (long episodes) until its rate has fallen to a twentieth. All begin with the
one agent that ships, so they differ less than agents raised from nothing. Three arms learn from the start. AgentEvol
explores all four environments in rounds, and learns what succeeds beside careless demonstrations of half of the items.
More cloning learns the careless episodes for as many updates. RL learns in academia alone, by the preset.

Test items are those of no arm, four sampled episodes each, at the best validated weights and at the last ones. RL and
more cloning are measured on the same items of academia, in one table. Premises are in the result: the start's success
by environment, its pass@4, and the share of RL's groups that have a signal.

The settings were chosen with seeds below 100 and the runs of `results/new_worlds_tuning.txt`. Each run uses one thread,
and runs follow one another. A run that was killed goes on from its last checkpoint, and a finished one is read.
Settings after the command go to every run (to see that all of it works: `--seeds 7 --root /tmp/try --name try
data.num_test=4`).

Cookingworld needs `make setup EXTRAS=household` and Java. Seeds of earlier sittings stay in the result file
(`study.accumulate`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from study import (
    arguments,
    cell,
    lines_of,
    machine,
    made_with,
    paired_lead,
    policies_of,
    rows_of,
    run_study,
    seconds_of,
    train,
    updates_of,
    validated_success,
)

SEEDS = tuple(range(400, 405))
WORLDS = ("textcraft", "maze", "academia", "cookingworld")
NUM_TOOLS = 100
"""Test items of academia where RL is measured."""
RATE = "learning.learning_rate=3e-4"
"""Of AgentEvol, and of more cloning beside it. The preset's 1e-3 cost a converged start 6.5 points at first."""
MORE: tuple[str, ...] = (RATE, "evaluation.validation_samples=2")
"""What differs from the preset `agent_clone_worlds` where more cloning stands beside AgentEvol."""
EVOL: tuple[str, ...] = (*MORE, "num_explored=null", "num_rounds=3")
"""What differs from the preset `agent_evol_worlds`. All training items are explored."""
RL: tuple[str, ...] = (
    *(f"data.num_test={NUM_TOOLS}", "data.num_validation=60", "evaluation.validation_samples=2"),
    *("num_steps=40", "validate_every=10"),
)
"""What differs from the preset `agent_grpo_academia`."""
START = ("num_steps=1500", "validate_every=500", "data.num_test=2", "evaluation.num_samples=1")
"""What differs from the preset `agent_clone_worlds` where a seed raises its start. AgentEvol's run measures it."""
RUNS = ("evol", "more", "rl")
EDGE = 5
"""Steps at either end over which a training run is averaged."""
TRAINED = ("reward/success", "turns/mean", "group/no_signal", "group/all_wrong")
EVOL_ROWS = {
    "before": "before: the careless clone",
    "more": "more cloning, as many updates as AgentEvol",
    "evol": "AgentEvol in all four environments",
}
RL_ROWS = {
    "before": "before: the careless clone",
    "more_cloning": "more cloning, in all four environments",
    "after": "RL in academia, best validated",
    "last": "RL in academia, last weights",
}
EVOL_LEADS = (("evol", "before"), ("evol", "more"), ("more", "before"))
RL_LEADS = (("after", "before"), ("after", "more_cloning"), ("last", "before"))


def run_one(root: Path, seed: int, extra: Sequence[str]) -> None:
    """All runs of one seed, or what is missing of them."""
    folder = root / f"seed{seed}"
    alike = (f"seed={seed}", "num_threads=1")
    train("agent_clone_worlds", [*alike, *START, *extra], folder / "start")
    shared = (*alike, f"policy.path={policies_of(folder / 'start') / 'policy'}", *extra)
    train("agent_evol_worlds", [*EVOL, *shared], folder / "evol")
    updates = sum(updates_of(folder / "evol").values())
    train("agent_clone_worlds", [*MORE, f"num_steps={updates}", *shared], folder / "more")
    beside = f"beside={{more_cloning: {{path: {folder / 'more' / 'best'}}}}}"
    train("agent_grpo_academia", [*RL, beside, *shared], folder / "rl")


def is_whole(root: Path, seed: int) -> bool:
    return all((root / f"seed{seed}" / run / "summary.json").exists() for run in ("start", *RUNS))


def by_world(row: Mapping[str, float | None]) -> dict[str, float | None]:
    """Success in each environment, and their mean, in which each counts alike."""
    success = {world: row[f"success[{world}]"] for world in WORLDS}
    known = [value for value in success.values() if value is not None]
    return {"mean": fmean(known) if known else None, **success}


def rounds_of(run: Path) -> dict[str, dict[str, float | None]]:
    """What each round of AgentEvol explored and kept."""
    lines, rounds = lines_of(run), {}
    for merge in (line for line in lines if line["phase"].startswith("merge_")):
        number = merge["phase"].removeprefix("merge_")
        explored = [line for line in lines if line["phase"] == f"explore_{number}"]
        kept = {f"kept in {world}": merge.get(f"round/kept[{world}]") for world in WORLDS}
        rounds[number] = {
            "explored": fmean(line["reward/success"] for line in explored),
            "kept": merge["round/kept"],
            "learnt": merge["round/merged"],
            **kept,
        }
    return rounds


def training_of(run: Path) -> dict[str, float | None]:
    """What RL's episodes were like in `EDGE` steps at either end, and its steps in environments."""
    steps = [line for line in lines_of(run) if line["phase"] == "train" and line["step"]]
    training: dict[str, float | None] = {"env_steps": sum(step["turns/env_steps"] for step in steps)}
    for part, some in (("first", steps[:EDGE]), ("last", steps[-EDGE:])):
        for metric in TRAINED:
            values = [step[metric] for step in some if step.get(metric) is not None]
            training[f"{part} {metric}"] = fmean(values) if values else None
    return training


def measure(folder: Path) -> dict[str, Any]:
    """A seed's numbers: shares in [0, 1], turns an episode, counts as they are."""
    evol, more, rl = (rows_of(folder / run) for run in RUNS)
    validated = validated_success(folder / "start")
    return {
        "machine": machine(folder / "rl"),
        "start_last_rise": validated[-1] - validated[-2],
        "start": {key: evol["before"].get(key) for key in ("pass@1", "pass@2", "pass@4", "turns")},
        "worlds": {
            "before": by_world(evol["before"]),
            "more": by_world(more["after"]),
            "evol": by_world(evol["after"]),
        },
        "worlds_last": {"more": by_world(more["last"]), "evol": by_world(evol["last"])},
        "tools": {row: rl[row]["success"] for row in RL_ROWS},
        "tools_pass": {key: rl["before"].get(key) for key in ("pass@1", "pass@2", "pass@4")},
        "rounds": rounds_of(folder / "evol"),
        "training": training_of(folder / "rl"),
        "updates": {"evol": sum(updates_of(folder / "evol").values())},
        "seconds": {run: seconds_of(folder / run) for run in ("start", *RUNS)},
    }


def markdown(result: Mapping[str, Any]) -> str:
    """The premises, the arms, and their leads as paired differences."""
    found = result["found"]
    seeds = ", ".join(map(str, found["seeds"]))
    lines = [
        "# A tiny agent in two older environments and two newer ones: RL with tools, and AgentEvol in all four",
        "",
    ]
    lines += [
        f"In percent: mean ± half width of a 95 % t interval over seeds {seeds}. Each seed raises its own start, by "
        "further cloning of the one agent that ships. Four sampled episodes of each test item.",
        "",
        *_premises(found),
        *_evol(found),
        *_rl(found),
    ]
    return "\n".join([*lines, "", *made_with(found), "", f"Command: `{result['command']}`.", ""])


def _premises(found: Mapping[str, Any]) -> list[str]:
    training = found["training"]
    lines = ["## Premises: the start is right sometimes, in each environment, and more episodes find more", ""]
    lines += [f"| the start | {' | '.join(WORLDS)} |", "|---" * (len(WORLDS) + 1) + "|"]
    lines.append(f"| success | {' | '.join(cell(found['worlds']['before'][world]) for world in WORLDS)} |")
    lines += ["", f"The start's last rise in validation: {cell(found['start_last_rise'], sign=True)}."]
    lines += ["", "| of one item, right in at least one of | 1 | 2 | 4 episodes |", "|---" * 4 + "|"]
    for title, values in (("all four", found["start"]), (f"academia, {NUM_TOOLS} items", found["tools_pass"])):
        lines.append(f"| {title} | {' | '.join(cell(values[f'pass@{k}']) for k in (1, 2, 4))} |")
    lines += ["", f"RL's training episodes in {EDGE} steps at either end:", ""]
    lines += ["| steps | success | turns | groups without signal | all wrong |", "|---" * 5 + "|"]
    for part in ("first", "last"):
        success, turns, flat, wrong = (training[f"{part} {metric}"] for metric in TRAINED)
        lines.append(f"| {part} | {cell(success)} | {cell(turns, scale=1)} | {cell(flat)} | {cell(wrong)} |")
    return [*lines, "", f"Steps in environments: {cell(training['env_steps'], scale=1)}.", ""]


def _evol(found: Mapping[str, Any]) -> list[str]:
    lines = ["## AgentEvol in four environments at once, best validated", ""]
    lines += [f"| arm | mean of the four | {' | '.join(WORLDS)} |", "|---" * (len(WORLDS) + 2) + "|"]
    for arm, title in EVOL_ROWS.items():
        cells = [cell(found["worlds"][arm][column]) for column in ("mean", *WORLDS)]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    for arm, values in found["worlds_last"].items():
        cells = [cell(values[column]) for column in ("mean", *WORLDS)]
        lines.append(f"| {EVOL_ROWS[arm]}, last weights | {' | '.join(cells)} |")
    lines += ["", "Leads, paired by seed:", "", "| left − right | points | by seed |", "|---|---|---|"]
    for left, right in EVOL_LEADS:
        for column in ("mean", *WORLDS):
            one, other = found["worlds"][left][column], found["worlds"][right][column]
            lines.append(paired_lead(f"{left} − {right}, {column}", one, other))
    lines += ["", f"| round | explored | kept | learnt | {' | '.join(f'kept, {world}' for world in WORLDS)} |"]
    lines += ["|---" * (len(WORLDS) + 4) + "|"]
    for number, counts in found["rounds"].items():
        cells = [cell(counts["explored"]), cell(counts["kept"], scale=1), cell(counts["learnt"], scale=1)]
        cells += [cell(counts[f"kept in {world}"], scale=1) for world in WORLDS]
        lines.append(f"| {number} | {' | '.join(cells)} |")
    return [*lines, "", f"Updates: {cell(found['updates']['evol'], scale=1)}.", ""]


def _rl(found: Mapping[str, Any]) -> list[str]:
    lines = [f"## RL in academia, {NUM_TOOLS} test items", "", "| arm | success |", "|---|---|"]
    lines += [f"| {title} | {cell(found['tools'][row])} |" for row, title in RL_ROWS.items()]
    lines += ["", "Leads, paired by seed:", "", "| left − right | points | by seed |", "|---|---|---|"]
    for left, right in RL_LEADS:
        lines.append(paired_lead(f"{left} − {right}", found["tools"][left], found["tools"][right]))
    seconds = ", ".join(f"{run} {cell(values, scale=1)}" for run, values in found["seconds"].items())
    return [*lines, "", f"Seconds of wall time: {seconds}."]


def main() -> None:
    options = arguments(__doc__, "new_worlds", seeds=SEEDS, processes=1)
    run_study(options, {"start": START, "evol": EVOL, "more": MORE, "rl": RL}, run_one, is_whole, measure, markdown)


if __name__ == "__main__":
    main()
