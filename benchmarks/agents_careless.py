"""What does RL add to a converged clone of careless episodes, beyond more cloning of it? TextCraft, four arms.

    .venv/bin/python benchmarks/agents_careless.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/agents_careless.py --collect  # only reads what is there
    .venv/bin/python benchmarks/agents_careless.py --seeds 400 401

Each seed raises its own agent from random weights on careless episodes, until its success rises no more. From there
three arms train: RL on the same items; more cloning of the same episodes, as long as it likes; and cloning of the
expert without mistakes, the ceiling. Every arm is measured by its best validated weights, on test items that no arm has
seen, with eight sampled episodes an item. RL asks the expert for nothing.

The settings are those of the presets `agent_clone_careless`, `agent_clone_more`, `agent_clone_expert` and
`agent_grpo_tiny`, chosen on seed 0. Cloning for longer has 600 updates here, where `make agents` has 300. Each run uses
one thread, and two run side by side. A run that was killed goes on from its last checkpoint, and a finished one is
read. Settings after the command go to every run (to see that all of it works:
`--seeds 7 --root /tmp/try --name try num_steps=2 validate_every=1 data.num_test=4 data.num_validation=4`).

One seed takes about 30 CPU minutes of one thread: 17 to clone, 12 for RL, 1 to measure. Seeds of earlier sittings
stay in the result file (`study.accumulate`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from study import (
    arguments,
    cell,
    greedy_metrics,
    machine,
    made_with,
    minus,
    paired_lead,
    rows_of,
    run_study,
    seconds_of,
    train,
    validated_success,
)

SEEDS = tuple(range(400, 405))
CLONES = {
    "more_cloning": ("agent_clone_more", ("num_steps=600", "validate_every=100")),
    "cloned_expert": ("agent_clone_expert", ()),
}
"""The arms that only clone, in the order of their rows: preset, and settings beside it."""
PRESETS = {"start": "agent_clone_careless", "rl": "agent_grpo_tiny"}
"""Of the other runs."""
ROWS = {
    "before": "before: converged clone of careless episodes",
    "after": "RL, best validated",
    "last": "RL, last weights",
    "more_cloning": "more cloning of the same play, best validated",
    "cloned_expert": "cloned on the expert, best validated",
}
LEADS = (("after", "before"), ("after", "more_cloning"), ("more_cloning", "before"), ("cloned_expert", "after"))
RUNS = ("start", *CLONES, "rl")
EDGE = 5
"""Steps of RL at either end over which premises are averaged."""


def run_one(root: Path, seed: int, extra: Sequence[str]) -> None:
    """All runs of one seed, or what is missing of them."""
    folder = root / f"seed{seed}"
    shared = (f"seed={seed}", "num_threads=1")
    start = folder / "start"
    train(PRESETS["start"], [*shared, f"policy.random_weights={seed}", *extra], start)
    from_start = (*shared, f"policy.path={start / 'best'}")
    for name, (preset, settings) in CLONES.items():
        train(preset, [*from_start, *settings, *extra], folder / name)
    beside = {name: {"path": str(folder / name / "best")} for name in CLONES}
    train(PRESETS["rl"], [*from_start, f"beside={json.dumps(beside)}", *extra], folder / "rl")


def is_whole(root: Path, seed: int) -> bool:
    return all((root / f"seed{seed}" / run / "summary.json").exists() for run in RUNS)


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The lines of the phase that trains."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["phase"] == "train"]


def premise_of(folder: Path) -> dict[str, float | None]:
    """What RL began with, and what it came to, over `EDGE` steps at either end; whether cloning had converged."""
    steps = [line for line in metrics_of(folder / "rl") if "reward/success" in line]
    validated = validated_success(folder / "start")
    found: dict[str, float | None] = {"start_last_rise": validated[-1] - validated[-2]}
    for edge, lines in (("first", steps[:EDGE]), ("last", steps[-EDGE:])):
        found[f"{edge}_sampled"] = fmean(line["reward/success"] for line in lines)
        found[f"{edge}_signal"] = 1 - fmean(line["group/no_signal"] for line in lines)
        found[f"{edge}_turns"] = fmean(line["turns/mean"] for line in lines)
        entropies = [line["entropy"] for line in lines if "entropy" in line]  # a step without signal learns nothing
        found[f"{edge}_entropy"] = fmean(entropies) if entropies else None
    return found


def measure(folder: Path) -> dict[str, Any]:
    """A seed's numbers: shares in [0, 1], entropies in nats a token, turns an episode.

    Greedy success is read beside sampled success, which also rises where an agent only grows surer of what it would do.
    """
    table = rows_of(folder / "rl")
    return {
        "machine": machine(folder / "rl"),
        "success": {row: table[row]["success"] for row in ROWS},
        "greedy": {run: greedy_metrics(folder / run, "after")["success"] for run in RUNS},
        "turns": {row: table[row]["turns"] for row in ROWS},
        "invalid": {row: table[row]["invalid"] for row in ROWS},
        "premise": premise_of(folder),
        "seconds": {run: seconds_of(folder / run) for run in RUNS},
    }


def markdown(result: Mapping[str, Any]) -> str:
    """The premise, the arms, and their leads as paired differences."""
    found = result["found"]
    premise, success = found["premise"], found["success"]
    lines = ["# RL from a clone of careless episodes, beside more cloning of it", ""]
    lines += [
        "In percent: mean ± half width of a 95 % t interval over seeds "
        f"{', '.join(map(str, found['seeds']))}. TextCraft, goals of depth 1 and 2, at most 10 turns, eight sampled "
        "episodes of each of the test items.",
        "",
        "## Premise: a converged clone, wrong often and not always, with entropy left",
        "",
        f"The clone's last rise in validation: {cell(premise['start_last_rise'], sign=True)}.",
        "",
        f"| over {EDGE} steps of RL | sampled success | groups with signal | entropy, nats a token | turns |",
        "|---|---|---|---|---|",
    ]
    for edge in ("first", "last"):
        cells = [cell(premise[f"{edge}_{key}"]) for key in ("sampled", "signal")]
        cells += [cell(premise[f"{edge}_{key}"], scale=1) for key in ("entropy", "turns")]
        lines.append(f"| the {edge} ones | {' | '.join(cells)} |")
    lines += ["", "## Test items", "", "| arm | success | turns | invalid | seconds |", "|---|---|---|---|---|"]
    runs = {"before": "start", "after": "rl", "more_cloning": "more_cloning", "cloned_expert": "cloned_expert"}
    for row, title in ROWS.items():
        seconds = cell(found["seconds"][runs[row]], scale=1) if row in runs else "–"
        cells = [cell(success[row]), cell(found["turns"][row], scale=1), cell(found["invalid"][row]), seconds]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += ["", "## Greedy success of the best validated weights, on the same items", ""]
    lines += ["| run | success | RL's lead |", "|---|---|---|"]
    for run in RUNS:
        lead = minus(found["greedy"]["rl"], found["greedy"][run])
        lines.append(f"| {run} | {cell(found['greedy'][run])} | {cell(lead, sign=True)} |")
    lines += ["", "## Leads, paired by seed", "", "| left − right | points | by seed |", "|---|---|---|"]
    lines += [paired_lead(f"{left} − {right}", success[left], success[right]) for left, right in LEADS]
    return "\n".join([*lines, "", *made_with(found), "", f"Command: `{result['command']}`.", ""])


def main() -> None:
    options = arguments(__doc__, "agents_careless", seeds=SEEDS, processes=2)
    settings = {"clones": CLONES, "presets": PRESETS}
    run_study(options, settings, run_one, is_whole, measure, markdown)


if __name__ == "__main__":
    main()
