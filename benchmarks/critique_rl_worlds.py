"""Which of Critique-RL's shapes appear in which world? Ten seeds, nine arms of equal steps, three worlds.

    .venv/bin/python benchmarks/critique_rl_worlds.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/critique_rl_worlds.py --collect  # only reads what is there
    .venv/bin/python benchmarks/critique_rl_worlds.py --only cheap dear --seeds 400 401

The worlds differ in what a verdict does to the actor. `landed` has the tiny model as its actor. In `cheap` and `dear`
a rule answers and refines by the verdict alone: a false alarm costs little in the one and much in the other. Every arm
trains for 80 steps in all. Each run uses one thread, and two run side by side. A run that was killed goes on from its
last checkpoint, and a finished one is read.

One seed of `landed` takes about 13 CPU minutes of one thread, reckoned from one run of both stages (2.3 minutes); rules
as actors take less. Seeds of earlier sittings stay in the result file (`study.accumulate`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study import Part, accumulate, arguments, cell, evaluated, machine, made_with, minus, policies_of, rows_of, train

SEEDS = tuple(range(400, 410))
WORLDS: Mapping[str, tuple[str, ...]] = {
    "landed": (),
    "cheap": ("actor.kind=rule", "actor.mend=0.5", "actor.spoil=0.08"),
    "dear": ("actor.kind=rule", "actor.mend=0.1", "actor.spoil=0.5"),
}
RULES = ("judge", "alarmist")
"""Critics by rule that measure a world's premise: what a right verdict is worth, and what a false alarm costs."""
METRICS = ("acc", "acc_refine", "c2i", "i2c", "acc_dis", "acc_dis_correct", "acc_dis_incorrect")
TITLES = ("Acc", "Acc@Refine", "c->i", "i->c", "Acc@Dis", "on right", "on wrong")


@dataclass(frozen=True)
class Arm:
    """One way to spend the 80 steps."""

    title: str
    run: str
    """Folder of the run."""
    row: str
    """Row of its table."""
    start: str | None = None
    """Policy of the full run that the critic starts from. None: this is the full run."""
    settings: tuple[str, ...] = ()


NO_STAGE_1, NO_STAGE_2 = ("stage1.num_steps=0",), ("stage2.num_steps=0",)
LONG = (*NO_STAGE_1, "stage2.num_steps=80")
ARMS = {
    "sft": Arm("SFT critic (no steps)", "full", "sft_critic"),
    "full": Arm("Critique-RL, both stages", "full", "stage2"),
    "stage1": Arm("stage I alone", "stage1", "stage1", "critic_sft", (*NO_STAGE_2, "stage1.num_steps=80")),
    "stage2": Arm("stage II alone", "stage2", "stage2", "critic_sft", LONG),
    "additive": Arm(
        "stage II with additive rewards, after stage I", "additive", "stage2", "critic_stage1",
        (*NO_STAGE_1, "stage2.combine=additive"),
    ),
    "additive_alone": Arm(
        "stage II with additive rewards, alone", "additive_alone", "stage2", "critic_sft",
        (*LONG, "stage2.combine=additive"),
    ),
    "no_dis_kl": Arm(
        "stage II without discrimination and KL, after stage I", "no_dis_kl", "stage2", "critic_stage1",
        (*NO_STAGE_1, "stage2.discrimination=false", "stage2.kl_coef=0"),
    ),
    **{
        f"indirect_{name}": Arm(
            f"indirect only, r_{name}", f"indirect_{name}", "stage2", "critic_sft",
            (*LONG, "stage2.discrimination=false", f"stage2.indirect={name}"),
        )
        for name in ("refine", "correction")
    },
}  # fmt: skip
QUESTIONS = (
    ("(i) stage I judges better than the SFT critic, on right answers", "stage1", "sft", "acc_dis_correct"),
    ("(i) ... and on wrong ones", "stage1", "sft", "acc_dis_incorrect"),
    ("(ii) both stages refine better than stage I alone", "full", "stage1", "acc_refine"),
    ("(ii) ... and judge no worse", "full", "stage1", "acc_dis"),
    ("(iii) both stages judge better than stage II alone", "full", "stage2", "acc_dis"),
    ("(iii) ... and refine better", "full", "stage2", "acc_refine"),
    ("(iii) without discrimination and KL, stage II forgets to judge", "no_dis_kl", "full", "acc_dis"),
    ("(iii) gated rewards judge better than additive ones", "full", "additive", "acc_dis"),
    ("(iv) indirect only (r_refine) beside the SFT critic: right answers", "indirect_refine", "sft", "acc_dis_correct"),
    ("(iv) indirect only (r_refine): on wrong ones", "indirect_refine", "sft", "acc_dis_incorrect"),
    ("(iv) indirect only (r_correction): on right answers", "indirect_correction", "sft", "acc_dis_correct"),
    ("(iv) indirect only (r_correction): on wrong ones", "indirect_correction", "sft", "acc_dis_incorrect"),
    ("both stages refine better than indirect only", "full", "indirect_refine", "acc_refine"),
)  # fmt: skip


def run_one(root: Path, world: str, seed: int, arm: Arm, extra: Sequence[str]) -> None:
    """Train one arm with one seed in one world, or go on with it."""
    folder = root / world / f"seed{seed}"
    settings = [f"seed={seed}", "num_threads=1", *WORLDS[world], *arm.settings, *extra]
    if arm.start is not None:
        policies = policies_of(folder / "full")
        settings += [f"critic.path={policies / arm.start}", "warm_start.critic_steps=0"]
        if world == "landed":
            settings += [f"actor.path={policies / 'actor'}", "warm_start.actor_steps=0"]
    train("critique_rl", settings, folder / arm.run)


def run_seed(root: Path, world: str, seed: int, extra: Sequence[str]) -> None:
    """All arms of one seed in one world, or what is missing of them."""
    for arm in {arm.run: arm for arm in ARMS.values()}.values():
        run_one(root, world, seed, ARMS["full"] if arm.run == "full" else arm, extra)


def is_whole(root: Path, world: str, seed: int) -> bool:
    folder = root / world / f"seed{seed}"
    return all((folder / arm.run / "summary.json").exists() for arm in ARMS.values())


def measure(folder: Path) -> dict[str, Any]:
    """A seed's numbers in one world, and what the rules' critiques came to there."""
    full = folder / "full"
    values = {
        name: {metric: rows_of(folder / arm.run)[arm.row][metric] for metric in METRICS} for name, arm in ARMS.items()
    }
    rules = {critic: evaluated(full, critic)["metrics"]["acc_refine"] for critic in RULES}
    return {"machine": machine(full), "values": values, "rules": rules}


def markdown(result: Mapping[str, Any]) -> str:
    """A table for each world, and the paper's shapes as paired differences."""
    lines = ["# Critique-RL in three worlds", ""]
    lines += [
        "In percent: mean ± half width of a 95 % t interval over seeds. Every arm but the SFT critic trains for 80 "
        "steps. r_delta is not listed: within a group it differs from r_refine by a constant, so it gives the same "
        "credit.",
        "",
    ]
    for world, found in result["worlds"].items():
        settings = " ".join(WORLDS[world]) or "the tiny model as the actor"
        rules = ", ".join(f"`{name}` {cell(values)}" for name, values in found["rules"].items())
        lines += [f"## {world}: {settings}", ""]
        lines += [f"Seeds {', '.join(map(str, found['seeds']))}. Acc@Refine of critics by rule: {rules}.", ""]
        lines += ["| critic | " + " | ".join(TITLES) + " |", "|---" * (len(TITLES) + 1) + "|"]
        for name, arm in ARMS.items():
            cells = (cell(found["values"][name][metric]) for metric in METRICS)
            lines.append(f"| {arm.title} | " + " | ".join(cells) + " |")
        lines += ["", "| question | left − right | metric | difference |", "|---|---|---|---|"]
        for question, left, right, metric in QUESTIONS:
            difference = minus(found["values"][left][metric], found["values"][right][metric])
            lines.append(f"| {question} | {left} − {right} | {metric} | {cell(difference, sign=True)} |")
        lines += ["", *made_with(found), ""]
    lines += [f"Command: `{result['command']}`.", ""]
    return "\n".join(lines)


def part_of(root: Path, world: str, seeds: Sequence[int], extra: Sequence[str]) -> Part:
    """The table of one world."""
    arms = {arm.run: [arm.start, *arm.settings] for arm in ARMS.values() if arm.start is not None}
    return Part(
        place=("worlds", world),
        settings={"world": WORLDS[world], "arms": arms, "extra": extra},
        seeds=seeds,
        run=lambda seed: run_seed(root, world, seed, extra),
        folder=lambda seed: root / world / f"seed{seed}",
        is_whole=lambda seed: is_whole(root, world, seed),
        measure=lambda seed: measure(root / world / f"seed{seed}"),
    )


def main() -> None:
    options = arguments(__doc__, "critique_rl_worlds", tuple(WORLDS), seeds=SEEDS, processes=2)
    parts = [part_of(options.root, world, options.seeds, options.settings) for world in options.only]
    print(markdown(accumulate(options, parts, markdown)))


if __name__ == "__main__":
    main()
