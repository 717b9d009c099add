"""What do AgentEvol's rounds add to a converged clone, beyond more cloning of it? TextCraft, four arms.

    .venv/bin/python benchmarks/agent_evol_worlds.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/agent_evol_worlds.py --collect  # only reads what is there
    .venv/bin/python benchmarks/agent_evol_worlds.py --seeds 400 401

Each seed draws half of the training items, of goals of depth 1 and 2. The expert plays them, and an agent of random
weights clones these demonstrations until its success rises no more: the base. From there four arms learn. AgentEvol
explores the items of the other half, keeps what succeeds, and learns it beside the demonstrations, in three rounds of
hundreds of updates. Two controls clone the same demonstrations: for as many updates as AgentEvol's last round, and for
as many as all of its phases. The ceiling clones the expert's play of all items, and asks it for twice as many episodes.

AgentEvol and both controls ask the expert for the same episodes, so expert calls are equal. Every arm is measured by
its best validated weights, on test items that no arm has seen, with eight sampled episodes an item. Items of validation
are neither demonstrated nor explored. Success on the explored items is measured too, by AgentEvol's own episodes.

The settings were chosen with the seeds and runs of `results/horizon_tuning.txt`. Each run uses one thread, and two run
side by side. A run that was killed goes on from its last checkpoint, and a finished one is read. Settings after the
command go to every run but the base (to see that all of it works: `--seeds 7 --root /tmp/try --name try
data.num_test=4`).

One seed takes about 32 CPU minutes of one thread, as `results/horizon_tuning.txt` reckons: 5 for the base, 10 for
AgentEvol, 17 for the three clones. Seeds of earlier sittings stay in the result file (`study.accumulate`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from study import (
    arguments,
    cell,
    greedy_metrics,
    lines_of,
    machine,
    made_with,
    paired_lead,
    rows_of,
    run_study,
    seconds_of,
    train,
    updates_of,
    validated_success,
)
from whet.envs import ENVIRONMENTS
from whet.methods.agent.clone_presets import NUM_EXPERT_EPISODES, SHALLOW
from whet.methods.agent.evolution import item_of, some_of
from whet.methods.environment_tasks import load_environment_tasks, rules_of
from whet.trajectories.experts import expert_trajectories
from whet.trajectories.files import write_trajectories

SEEDS = tuple(range(400, 405))
BASE_SHARE = 0.5
"""Of the training items, which the expert demonstrates."""
NUM_ROUNDS, NUM_EPISODES = 3, 8
"""Of exploring, and of each item in a round."""
LIMIT = 10
"""Turns."""
RATE = ("learning.learning_rate=1e-3", "learning.final_share=0.05", "learning.warmup_steps=20")
"""Of every arm: a rate that falls, so that its last weights have settled."""
PLAIN = (
    'data.groups=["depth 1","depth 2"]', "data.settings={textcraft: {max_distractors: 4}}", "data.num_validation=48",
    "format=plain", "sampling.max_new_tokens=24", f"evaluation.max_turns={LIMIT}", "evaluation.num_samples=8",
    "evaluation.validation_samples=4", "rows_per_step=8", "learning.minibatch_rows=8",
)  # fmt: skip
"""The environment of the presets of careless episodes, and how it is measured."""
BASE = (
    "num_steps=1500", "validate_every=250", "learning.learning_rate=2e-3", "learning.final_share=0.05",
    "learning.warmup_steps=100", "evaluation.num_samples=1",
)  # fmt: skip
"""Its table is not read: AgentEvol measures the base again. The later of two settings of one key holds."""
EVOL = (
    f"max_turns={LIMIT}", "explore=beyond", f"group_size={NUM_EPISODES}", f"num_rounds={NUM_ROUNDS}", "num_epochs=4",
    "start=initial", "merge=base", "validate_every=200", *RATE,
)  # fmt: skip
"""A round learns from the base, and from the demonstrations beside what it has kept."""
CLONE = ("validate_every=200", *RATE)
ROWS = {
    "before": "before: converged clone of half of the items",
    "evol": "AgentEvol, best validated",
    "last_round": "more cloning, as many updates as the last round, best validated",
    "all_phases": "more cloning, as many updates as all phases, best validated",
    "ceiling": "cloned on the expert's play of all items, best validated",
}
ARMS = ("evol", "last_round", "all_phases", "ceiling")
LEADS = (
    ("evol", "before"), ("evol", "last_round"), ("evol", "all_phases"), ("last_round", "before"), ("ceiling", "evol"),
)  # fmt: skip
RUNS = ("base", *ARMS)


def demonstrations(file: Path, seed: int, share: float) -> Path:
    """The expert's episodes of a part of the training items, `NUM_EXPERT_EPISODES` of each, written once a seed."""
    if not file.exists():
        items = [
            item_of(task)[1] for task in some_of(load_environment_tasks(SHALLOW).tasks["train"], share, seed, "base")
        ]
        settings = SHALLOW.settings["textcraft"]
        info = ENVIRONMENTS.get("textcraft").settled(settings)
        episodes = (
            expert_trajectories(
                info, items, rules=rules_of(info, "plain").text, seed=seed * NUM_EXPERT_EPISODES + roll_out,
                settings=settings, max_turns=LIMIT, format="plain",
            )
            for roll_out in range(NUM_EXPERT_EPISODES)
        )  # fmt: skip
        file.parent.mkdir(parents=True, exist_ok=True)
        write_trajectories(file, chain.from_iterable(episodes))
    return file


def run_one(root: Path, seed: int, extra: Sequence[str]) -> None:
    """All runs of one seed, or what is missing of them."""
    folder = root / f"seed{seed}"
    shown = demonstrations(folder / "demonstrated.json", seed, BASE_SHARE)
    every = demonstrations(folder / "demonstrated_all.json", seed, 1.0)
    shared = (f"seed={seed}", "num_threads=1", *PLAIN)
    random = ("policy.path=tiny_agent", f"policy.random_weights={seed}")
    train("agent_clone", [*shared, *BASE, *random, f"trajectories=[{shown}]"], folder / "base")
    from_base = (*shared, f"policy.path={folder / 'base' / 'best'}")
    train("agent_evol", [*from_base, *EVOL, f"trajectories=[{shown}]", *extra], folder / "evol")
    updates = updates_of(folder / "evol")
    last, total = updates[f"learn_{NUM_ROUNDS}"], sum(updates.values())
    for name, file, steps in (("last_round", shown, last), ("all_phases", shown, total), ("ceiling", every, total)):
        settings = [*from_base, *CLONE, f"trajectories=[{file}]", f"num_steps={steps}", *extra]
        train("agent_clone", settings, folder / name)


def is_whole(root: Path, seed: int) -> bool:
    return all((root / f"seed{seed}" / run / "summary.json").exists() for run in RUNS)


def premise_of(folder: Path) -> dict[str, float | None]:
    """Whether the base had converged, and what it finds on items that nobody has shown it; what is kept, by round."""
    base = validated_success(folder / "base")
    found: dict[str, float | None] = {"base_last_rise": base[-1] - base[-2], "base_validation": base[-1]}
    lines = lines_of(folder / "evol")
    for number in range(1, NUM_ROUNDS + 1):
        steps = [line for line in lines if line["phase"] == f"explore_{number}"]
        found[f"round {number} explored"] = fmean(line["reward/success"] for line in steps)
        [merge] = [line for line in lines if line["phase"] == f"merge_{number}"]
        found[f"round {number} kept"] = merge["round/kept"]
        found[f"round {number} learnt"] = merge["round/merged"]
    return found


def row_of(folder: Path, row: str) -> Mapping[str, float | None]:
    return rows_of(folder / "evol")["before"] if row == "before" else rows_of(folder / row)["after"]


def measure(folder: Path) -> dict[str, Any]:
    """A seed's numbers: shares in [0, 1], turns an episode, counts as they are."""
    rounds = ("base", *(f"round_{number}" for number in range(1, NUM_ROUNDS + 1)))
    return {
        "machine": machine(folder / "evol"),
        "premise": premise_of(folder),
        "success": {row: row_of(folder, row)["success"] for row in ROWS},
        "turns": {row: row_of(folder, row)["turns"] for row in ROWS},
        "last": {arm: rows_of(folder / arm)["last"]["success"] for arm in ARMS},
        "rounds": {name: rows_of(folder / "evol")[name]["success"] for name in rounds},
        "greedy": {run: greedy_metrics(folder / run, "after")["success"] for run in RUNS},
        "updates": updates_of(folder / "evol"),
        "seconds": {run: seconds_of(folder / run) for run in RUNS},
    }


def markdown(result: Mapping[str, Any]) -> str:
    """The premises, the arms, and their leads as paired differences."""
    found = result["found"]
    premise, success = found["premise"], found["success"]
    lines = ["# AgentEvol from a converged base, beside more cloning of its demonstrations", ""]
    lines += [
        "In percent: mean ± half width of a 95 % t interval over seeds "
        f"{', '.join(map(str, found['seeds']))}. TextCraft, goals of depth 1 and 2, at most {LIMIT} turns, eight "
        "sampled episodes of each of the test items.",
        "",
        "## Premises: a converged base that sometimes succeeds where nobody has shown it how",
        "",
        f"The base's last rise in validation: {cell(premise['base_last_rise'], sign=True)}.",
        "",
        "| round | success on explored items | episodes kept | episodes learnt | updates |",
        "|---" * 5 + "|",
    ]
    for number in range(1, NUM_ROUNDS + 1):
        cells = [str(number), cell(premise[f"round {number} explored"])]
        cells += [cell(premise[f"round {number} {what}"], scale=1) for what in ("kept", "learnt")]
        cells.append(cell(found["updates"][f"learn_{number}"], scale=1))
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Test items", ""]
    lines += ["| arm | success | its last weights | turns | greedy | seconds |", "|---" * 6 + "|"]
    for row, title in ROWS.items():
        run = "base" if row == "before" else row
        last = cell(found["last"][row]) if row in ARMS else "–"
        cells = [cell(success[row]), last, cell(found["turns"][row], scale=1), cell(found["greedy"][run])]
        lines.append(f"| {title} | {' | '.join(cells)} | {cell(found['seconds'][run], scale=1)} |")
    lines += ["", "AgentEvol's own phases, by their last weights:", "", "| after | success |", "|---|---|"]
    lines += [f"| {name} | {cell(values)} |" for name, values in found["rounds"].items()]
    for how, values in (("sampled", success), ("greedy", {**found["greedy"], "before": found["greedy"]["base"]})):
        lines += ["", f"## Leads, {how}, paired by seed", "", "| left − right | points | by seed |", "|---|---|---|"]
        lines += [paired_lead(f"{left} − {right}", values[left], values[right]) for left, right in LEADS]
    return "\n".join([*lines, "", *made_with(found), "", f"Command: `{result['command']}`.", ""])


def main() -> None:
    options = arguments(__doc__, "agent_evol_worlds", seeds=SEEDS, processes=2)
    runs = {"data": PLAIN, "base": BASE, "evol": EVOL, "clone": CLONE}
    settings = {"share": BASE_SHARE, "plays": NUM_EXPERT_EPISODES, **runs}
    run_study(options, settings, run_one, is_whole, measure, markdown)


if __name__ == "__main__":
    main()
