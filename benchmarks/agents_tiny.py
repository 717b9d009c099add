"""What reinforcement learning adds to a tiny agent that was cloned and stopped early: five seeds, six questions.

    .venv/bin/python benchmarks/agents_tiny.py              # runs or goes on, part by part, then writes the results
    .venv/bin/python benchmarks/agents_tiny.py --only a b   # of these parts; the others are read as they are
    .venv/bin/python benchmarks/agents_tiny.py --collect    # only reads what has finished, and says what has not; of
                                                            # runs whose folders are gone, the results that are there

a  RL from the early agent, against as many further updates of cloning it on the experts' episodes of the same training
   items, as many rows in each, and against the agent that was cloned to the end. TextCraft and BabyAI, a run each: in
   one run for both, the two worlds would share the updates, and neither comparison would be of that world alone.
   BabyAI's is shorter: its observations are long, and a step costs twice as much.
b  A short, a long and a growing horizon at an equal number of steps in environments. Runs are as long as takes each to
   about the same number, and are held against each other where the shortest of a seed ends: the greedy validation
   successes, on a line between two validations, there and on average up to there.
c  AgentEvol's rounds, which explore items that nobody demonstrated, against cloning the same demonstrations for as many
   updates as AgentEvol makes in all.
d  More turns and more samples at test time.
f  GRPO, RLOO, REINFORCE++ and PPO, each by its preset (but PPO's value model learns alone in 2 of 16 updates, not 5).
g  One credit an episode, or one a turn.

With and without a critic, (e), is `agent_critic_tiny.py`'s.

The seeds were set aside for this and used for nothing before. Two runs at a time, in one thread each; those that were
stopped go on, those that have finished are read. Settings after the command go to every run whose method has such a key
(to see that all of it works, in minutes: `--seeds 7 --root /tmp/try --name try num_steps=3 prompts_per_step=4
group_size=2 rows_per_step=8 num_explored=4 num_epochs=1 data.num_test=4 data.num_validation=4 validate_every=1`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import whet.methods  # noqa: F401 - registers them
from agents_tiny_text import TABLES, text
from study import RESULTS, arguments, machine, policies_of, rows_of, train, write
from whet.envs import ENVIRONMENTS
from whet.methods.agent.evolution import item_of, some_of
from whet.methods.environment_tasks import load_environment_tasks, rules_of
from whet.methods.registry import config_of, preset_of
from whet.trajectories.experts import expert_trajectories
from whet.trajectories.files import write_trajectories

# --- settings: all that a result depends on ---------------------------------------------------------------------------

SEEDS = range(300, 305)
TEXTCRAFT = ("data.env=textcraft", "data.num_validation=64")
EASY = (*TEXTCRAFT, "data.num_train=220")
"""The shallow items, which come first: of deeper ones the early agent has next to none right, and learns nothing."""
BABYAI = ("data.env=babyai", "data.num_validation=64")
GROWING = (
    "scaling_inter",
    "num_steps=24",
    "validate_every=4",
    "schedule.max_turns={kind: steps, values: [5, 10], every: 16}",
)
SLOW = (
    "prompts_per_step=16",
    "learning.minibatch_rows=128",
    "schedule.max_turns={kind: steps, values: [8, 12], every: 16}",
)
"""In BabyAI: an update a step, and room for a walk."""
CLONE = ("agent_clone", "num_steps=96", "validate_every=16")
"""As many updates as `GROWING` makes, four a step, each of as many rows. The learning rate is the method's own."""
COMPARED = (*EASY, "num_steps=20", "max_turns=5", "validate_every=5", "prompts_per_step=16",
            "aggregation=sequence_mean", "learning.minibatch_rows=32")  # fmt: skip
"""Of what differs in one thing only, in f and g."""
SAMPLED = ("data.env=textcraft", "data.num_test=42", "evaluation.num_samples=8")
EARLY, CLONED = "tiny_agent_early", "tiny_agent"
RUNS: dict[str, tuple[str, ...]] = {
    "textcraft": (*GROWING, *EASY, f"cloned.path={CLONED}"),
    "textcraft_clone": (*CLONE, *EASY, "rows_per_step=64", "learning.minibatch_rows=64"),
    "babyai": (*GROWING, *BABYAI, *SLOW, f"cloned.path={CLONED}"),
    "babyai_clone": (*CLONE, *BABYAI, "num_steps=24", "validate_every=4", "rows_per_step=128",
                     "learning.minibatch_rows=128"),
    "short": (
        "scaling_inter", *EASY, "num_steps=31", "validate_every=5",
        "schedule.max_turns={kind: steps, values: [5], every: 1}",
    ),
    "long": (
        "scaling_inter", *EASY, "num_steps=18", "validate_every=3",
        "schedule.max_turns={kind: steps, values: [10], every: 1}",
    ),
    "evol": ("agent_evol", *TEXTCRAFT, "explore=beyond", "num_rounds=2", "num_explored=196"),
    "evol_clone": ("agent_clone", *TEXTCRAFT, "rows_per_step=16"),
    "sampled_before": ("agent", *SAMPLED, f"policy.path={EARLY}"),
    "sampled_after": ("agent", *SAMPLED),
    "sampled_cloned": ("agent", *SAMPLED, f"policy.path={CLONED}"),
    "grpo": ("agent_grpo", *COMPARED),
    "rloo": ("agent_rloo", *COMPARED),
    "reinforce_pp": ("agent_reinforce_pp", *COMPARED),
    "ppo": ("agent_ppo", *COMPARED, "value.warmup_updates=2"),
    "per_turn": ("agent_grpo", *COMPARED, "credit.per=turn"),
    "gigpo": ("agent_gigpo", *COMPARED),
}  # fmt: skip
"""Method and settings of each; all start from the early agent."""
BASE_SHARE = 0.25
"""Of the training items that experts demonstrate, in c."""
PARTS: dict[str, tuple[str, ...]] = {
    "a": ("textcraft", "textcraft_clone", "babyai", "babyai_clone"),
    "b": ("textcraft", "short", "long"),
    "c": ("evol", "evol_clone"),
    "d": ("textcraft", "sampled_before", "sampled_after", "sampled_cloned"),
    "f": ("grpo", "rloo", "reinforce_pp", "ppo"),
    "g": ("grpo", "per_turn", "gigpo"),
}
"""In their order; several parts may read one run."""
NEEDS = {"evol_clone": "evol", "sampled_after": "textcraft"}
"""The run of the same seed that another one is made of."""

# --- running ----------------------------------------------------------------------------------------------------------


def settings_of(place: Path, seed: int, name: str, extra: Sequence[str]) -> list[str]:
    """All settings of a run.

    Args:
        place: of the seed's runs; what the run needs has finished there.
    """
    method, *own = RUNS[name]
    known = type(preset_of(method).config).model_fields
    own = [f"seed={seed}", "num_threads=1", *own, *(e for e in extra if e.split("=")[0].split(".")[0] in known)]
    if name == "sampled_after":
        own.append(f"policy.path={policies_of(place / NEEDS[name]) / 'policy_best'}")
    if name in ("evol", "evol_clone"):
        own.append(f"trajectories=[{demonstrations(place / 'demonstrated.json', seed, method, own)}]")
    if name == "evol_clone":
        own.append(f"num_steps={num_updates(place / NEEDS[name])}")
    return own


def demonstrations(file: Path, seed: int, method: str, settings: Sequence[str]) -> Path:
    """The experts' episodes of a part of the training items, written once a seed."""
    if not file.exists():
        tasks = load_environment_tasks(config_of(method, None, settings).data).tasks["train"]
        items = [item_of(task)[1] for task in some_of(tasks, BASE_SHARE, seed, "base")]
        info = ENVIRONMENTS.get("textcraft")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_trajectories(file, expert_trajectories(info, items, rules=rules_of(info).text, seed=seed))
    return file


def num_updates(evol: Path) -> int:
    """Updates of a run of AgentEvol, in all of its phases."""
    return sum("loss/nll" in row and row["step"] > 0 for row in metrics_of(evol))


def run_one(root: Path, seed: int, name: str, extra: Sequence[str], needed: Future[None] | None) -> None:
    """Train, or go on; a run that stops does not stop the others."""
    place = root / f"seed{seed}"
    if needed is not None:
        needed.result()
    if name in NEEDS and not (place / NEEDS[name] / "summary.json").exists():
        print(f"seed {seed} {name} waits for {NEEDS[name]}, which has not finished", flush=True)
        return
    try:
        train(RUNS[name][0], settings_of(place, seed, name, extra), place / name)
    except RuntimeError as error:
        print(f"{error}; the others go on", flush=True)


def run_part(root: Path, part: str, seeds: Sequence[int], extra: Sequence[str]) -> None:
    """Two runs at a time, seed by seed, so that a part cut short has whole seeds."""
    jobs: dict[tuple[int, str], Future[None]] = {}
    with ThreadPoolExecutor(2) as pool:
        for seed in seeds:
            for name in PARTS[part]:
                needed = jobs.get((seed, NEEDS.get(name, "")))
                jobs[seed, name] = pool.submit(run_one, root, seed, name, extra, needed)
        for job in jobs.values():
            job.result()


# --- reading ----------------------------------------------------------------------------------------------------------


def metrics_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def read_run(run: Path) -> dict[str, Any] | None:
    """Its table, and validations over steps and steps in environments (of cloning None); None: it has not finished."""
    if not (run / "summary.json").exists():
        return None
    train = [row for row in metrics_of(run) if row["phase"] == "train"]
    plays = any("turns/env_steps" in row for row in train)
    so_far = accumulate(row.get("turns/env_steps", 0) for row in train)
    curve = [
        (row["step"], count if plays else None, row["validation/success"])
        for row, count in zip(train, so_far, strict=True)
        if "validation/success" in row
    ]
    seconds = json.loads((run / "summary.json").read_text())["seconds"]
    return {"rows": rows_of(run), "curve": curve, "seconds": seconds}


def collect(root: Path, seeds: Sequence[int], command: str, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What has finished, by run and seed, and what has not.

    Args:
        before: an earlier result, of which runs with the same settings are kept where their folders are gone.
    """
    found: dict[str, dict[str, Any]] = {}
    missing: dict[str, list[int]] = {}
    before = before or {"settings": {}, "runs": {}, "machine": {}}
    where: dict[str, Any] = before["machine"]
    commits = set(where.get("commit", "").split(", ")) - {""}
    for name, settings in RUNS.items():
        same = before["settings"].get(name) == list(settings)
        kept = before["runs"].get(name, {}) if same else {}
        runs = {seed: read_run(root / f"seed{seed}" / name) for seed in seeds}
        for seed in [seed for seed, run in runs.items() if run is not None]:
            where = machine(root / f"seed{seed}" / name)
            commits.add(str(where["commit"]))
        runs = {seed: run or kept.get(str(seed)) for seed, run in runs.items()}
        found[name] = {str(seed): run for seed, run in runs.items() if run is not None}
        if lacking := [seed for seed, run in runs.items() if run is None]:
            missing[name] = lacking
    hours = {part: _hours(found, names, part) for part, names in PARTS.items()}
    return {
        "command": command, "seeds": list(seeds), "settings": RUNS | {"base_share": BASE_SHARE}, "missing": missing,
        "machine": where | {"commit": ", ".join(sorted(commits))}, "hours": hours, "runs": found,
        "horizons": horizons({name: found[name] for name in ("short", "long", "textcraft")}),
    }  # fmt: skip


def _hours(found: Mapping[str, Mapping[str, Any]], names: Sequence[str], part: str) -> float:
    """Of the runs that no earlier part has."""
    before = [name for earlier, own in PARTS.items() if earlier < part for name in own]
    return sum(run["seconds"] for name in names if name not in before for run in found[name].values()) / 3600


def horizons(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """By run and seed: steps in environments of the whole run, success where the shortest run of the seed ends, and its
    mean up to there. Seeds that lack a run are left out."""
    seeds = [seed for seed in next(iter(found.values())) if all(seed in runs for runs in found.values())]
    told: dict[str, dict[str, dict[str, float]]] = {name: {} for name in found}
    for seed in seeds:
        curves = {name: [point[1:] for point in runs[seed]["curve"]] for name, runs in found.items()}
        budget = min(curve[-1][0] for curve in curves.values())
        for name, curve in curves.items():
            told[name][seed] = {
                "env_steps": curve[-1][0], "budget": budget, "at": at(curve, budget), "mean": mean_until(curve, budget),
            }  # fmt: skip
    return told


Curve = Sequence[tuple[float, float]]
"""Places and values, places rising."""


def at(curve: Curve, place: float) -> float:
    """The value on the line between the two points around a place; of the last point beyond it."""
    for (left, low), (right, high) in pairwise(curve):
        if left <= place <= right:
            return low + (high - low) * (place - left) / (right - left) if right > left else high
    return curve[-1][1]


def mean_until(curve: Curve, place: float) -> float:
    """The mean height of the line from its first point to a place."""
    points = [*(point for point in curve if point[0] < place), (place, at(curve, place))]
    pieces = list(pairwise(points))
    if not pieces:
        return points[0][1]
    return sum(fmean((a[1], b[1])) * (b[0] - a[0]) for a, b in pieces) / (points[-1][0] - points[0][0])


def main() -> None:
    chosen = arguments(__doc__, "agents_tiny", tuple(PARTS), seeds=SEEDS)
    for part in PARTS:
        if part in chosen.only and not chosen.collect:
            run_part(chosen.root, part, chosen.seeds, chosen.settings)
    file = RESULTS / f"{chosen.name}.json"
    result = collect(chosen.root, chosen.seeds, chosen.command, json.loads(file.read_text()) if file.exists() else None)
    write(chosen.name, result, text(result, TABLES))


if __name__ == "__main__":
    main()
