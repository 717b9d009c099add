"""Where does a critic in the loop pay at equal tokens? Worlds from mild to stubborn, three critics, five seeds.

    .venv/bin/python benchmarks/critique_loop_worlds.py                    # runs or goes on, then writes the results
    .venv/bin/python benchmarks/critique_loop_worlds.py --collect          # only reads what is there
    .venv/bin/python benchmarks/critique_loop_worlds.py --only stubborn --seeds 400 401
    .venv/bin/python benchmarks/critique_loop_worlds.py --root runs/premises --seeds 20 num_rounds=1   # premises alone

The worlds differ in how often the tiny world's author writes what it misconceives (`data.misconceptions`), and in what
is learnt beside a round's own finds: nothing, or 1,000 right solutions (`stubborn_gold`). The actor is warm-started on
its world's textbook, and every round starts from there. Critics: the one that a warm start makes, the same one after
Critique-RL with the same actor, and a rule that knows the solution. The two models of a world and a seed come from one
run of `critique_rl`, whose table has their Acc@Refine.

Each of the three loops has its own vanilla run, which answers again and again until it has written, round by round, as
many tokens as that loop. `landed` and the two stubborn worlds have five seeds; the levels between have the first three.
Each run uses one thread, and two run side by side. A run that was killed goes on from its last checkpoint, and a
finished one is read.

One seed of a world takes about 11 CPU minutes of one thread, reckoned from one round with the critic that knows the
solution (0.5 minutes) and one run of Critique-RL (2.3 minutes). Seeds of earlier sittings stay in the result file
(`study.accumulate`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from study import Part, accumulate, arguments, cell, evaluated, machine, made_with, minus, policies_of, rows_of, train

SEEDS = tuple(range(400, 405))
NUM_CROSSOVER_SEEDS = 3
NONE, GOLD = ("merge=none",), ("merge=base", "gold_share=1")
STUBBORN = ("data.misconceptions=[0.9,0.98]",)
WORLDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "landed": ((), NONE),
    "mild": (("data.misconceptions=[0.6,0.9]",), NONE),
    "firm": (("data.misconceptions=[0.8,0.95]",), NONE),
    "stubborn": (STUBBORN, NONE),
    "fixed": (("data.misconceptions=[0.97,0.995]",), NONE),
    "stubborn_gold": (STUBBORN, GOLD),
}
"""Settings of the data, and of what is learnt beside a round's finds. All but the last are the crossover."""
CROSSOVER = tuple(world for world in WORLDS if world != "stubborn_gold")
BETWEEN = ("mild", "firm", "fixed")
"""Those with fewer seeds."""
CRITICS: Mapping[str, tuple[str, str, str]] = {
    "warm": ("critic after a warm start", "critique_loop", "critic_sft"),
    "trained": ("critic trained by Critique-RL in this world", "critique_loop", "best"),
    "oracle": ("critic that knows the solution", "loop_oracle", ""),
}
"""Title, preset, and where the `critique_rl` run has the critic."""
TEST = ("data.num_test=300",)
"""Of the run that raises the critics."""
LOOP = ("start=warm_start", "num_rounds=3")
Rounds = Sequence[Mapping[str, float]]


def rounds_of(run: Path) -> Rounds:
    rounds: Rounds = json.loads((run / "rounds.json").read_text())
    return rounds


def critics_run(root: Path, world: str, seed: int) -> Path:
    """Where the critics of a world and a seed are raised. Originals are no part of that."""
    return root / world.removesuffix("_gold") / f"seed{seed}" / "critique_rl"


def seeds_of(world: str, seeds: Sequence[int]) -> Sequence[int]:
    """Those of a world: all of them, or the first few."""
    return seeds[:NUM_CROSSOVER_SEEDS] if world in BETWEEN else seeds


def run_one(root: Path, world: str, seed: int, extra: Sequence[str]) -> None:
    """All runs of one world and seed, or what is missing of them.

    Args:
        extra: settings of every loop.
    """
    data, originals = WORLDS[world]
    folder, critics = root / world / f"seed{seed}", critics_run(root, world, seed)
    shared = [f"seed={seed}", "num_threads=1", *data]
    train("critique_rl", [*shared, *TEST], critics)
    evaluated(critics, "oracle")
    for name, (_, preset, policy) in CRITICS.items():
        settings = [*shared, *LOOP, *originals, *extra]
        if policy:
            path = critics / "best" if policy == "best" else policies_of(critics) / policy
            settings += [f"critic.path={path}", "warm_start.critic_steps=0"]
        train(preset, settings, folder / name)
        budget = json.dumps([int(found["tokens"]) for found in rounds_of(folder / name)], separators=(",", ":"))
        equal = [*shared, *LOOP, *originals, f"token_budget={budget}", *extra]
        train("self_improve_equal", equal, folder / f"equal_{name}")


def is_whole(root: Path, world: str, seed: int) -> bool:
    folder = root / world / f"seed{seed}"
    runs = [folder / f"{kind}{name}" for name in CRITICS for kind in ("", "equal_")]
    return all((run / "summary.json").exists() for run in (*runs, critics_run(root, world, seed)))


def measure(root: Path, world: str, seed: int) -> dict[str, Any]:
    """A seed's numbers in one world: accuracies in [0, 1], tokens as counted."""
    folder, critics = root / world / f"seed{seed}", critics_run(root, world, seed)
    table = rows_of(critics)
    refine = {
        "warm": table["sft_critic"]["acc_refine"],
        "trained": table["stage2"]["acc_refine"],
        "oracle": evaluated(critics, "oracle")["metrics"]["acc_refine"],
    }
    arms = {
        name: {"acc": rows_of(folder / name)["last"]["acc"], "rounds": rounds_of(folder / name)}
        for critic in CRITICS
        for name in (critic, f"equal_{critic}")
    }
    return {
        "machine": machine(critics),
        "before": rows_of(folder / "warm")["before"]["acc"],
        "no_critic": table["no_critic"]["acc"],
        "acc_refine": refine,
        "arms": arms,
    }


def _first(arm: Mapping[str, Any], key: str) -> list[float | None]:
    return [rounds[0].get(key) for rounds in arm["rounds"]]


def _tokens(arm: Mapping[str, Any]) -> list[float | None]:
    """Of all rounds, in thousands."""
    return [sum(found["tokens"] for found in rounds) / 1000 for rounds in arm["rounds"]]


def leads(found: Mapping[str, Any], critic: str) -> list[float | None]:
    """Test accuracy of a loop minus that of its vanilla run at equal tokens, seed by seed."""
    return minus(found["arms"][critic]["acc"], found["arms"][f"equal_{critic}"]["acc"])


def markdown(result: Mapping[str, Any]) -> str:
    """The premises of every world, the arms of each, and the crossover."""
    lines = ["# A critic in the loop, from mild to stubborn worlds", ""]
    lines += [
        "In percent: mean ± half width of a 95 % t interval over seeds. Greedy answers to 300 test questions, with the "
        "weights of the last round. Tokens: written while exploring, critiques included, in thousands. Each loop is "
        "paired with its own vanilla run of as many tokens, round by round.",
        "",
    ]
    lines += ["## Premises: before anything is learnt", ""]
    lines += ["| world | settings | right before | 5 answers cover | " + " | ".join(
        f"{name}: Acc@Refine | covers | answers at equal tokens" for name in CRITICS
    ) + " |", "|---" * (4 + 3 * len(CRITICS)) + "|"]  # fmt: skip
    for world, found in result["worlds"].items():
        arms = found["arms"]
        cells = [world, f"`{' '.join(sum(WORLDS[world], ()))}`", cell(found["before"])]
        cells.append(cell(_first(arms["warm"], "coverage_answers")))
        for name in CRITICS:
            cells += [cell(found["acc_refine"][name]), cell(_first(arms[name], "coverage"))]
            cells.append(cell(_first(arms[f"equal_{name}"], "coverage")))
        lines.append(f"| {' | '.join(cells)} |")
    for world, found in result["worlds"].items():
        lines += ["", f"## {world}: seeds {', '.join(map(str, found['seeds']))}", ""]
        lines += ["| critic | loop | vanilla, equal tokens | lead, paired | tokens | vanilla's |", "|---" * 6 + "|"]
        for name, (title, _, _) in CRITICS.items():
            loop, equal = found["arms"][name], found["arms"][f"equal_{name}"]
            cells = [title, cell(loop["acc"]), cell(equal["acc"]), cell(leads(found, name), sign=True)]
            cells += [cell(_tokens(arm), scale=1) for arm in (loop, equal)]
            lines.append(f"| {' | '.join(cells)} |")
        for left, right in (("trained", "warm"), ("oracle", "trained")):
            difference = minus(found["arms"][left]["acc"], found["arms"][right]["acc"])
            lines += ["", f"`{left}` − `{right}`, paired, at their own tokens: {cell(difference, sign=True)}."]
        lines += ["", *made_with(found)]
    crossover = [world for world in CROSSOVER if world in result["worlds"]]
    lines += ["", "## The crossover", "", "Lead over vanilla at equal tokens, by world and by critic:", ""]
    lines += ["| world | " + " | ".join(CRITICS) + " |", "|---" * (len(CRITICS) + 1) + "|"]
    for world in crossover:
        cells = [cell(leads(result["worlds"][world], name), sign=True) for name in CRITICS]
        lines.append(f"| {world} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Command: `{result['command']}`.", ""])


def part_of(root: Path, world: str, seeds: Sequence[int], extra: Sequence[str]) -> Part:
    """The table of one world. Worlds that share their critics are run one after the other."""
    data, originals = WORLDS[world]
    presets = {name: preset for name, (_, preset, _) in CRITICS.items()}
    settings = {"data": data, "originals": originals, "test": TEST, "loop": LOOP, "presets": presets}
    return Part(
        place=("worlds", world),
        settings={**settings, "extra": extra},
        seeds=seeds_of(world, seeds),
        run=lambda seed: run_one(root, world, seed, extra),
        folder=lambda seed: root / world / f"seed{seed}",
        is_whole=lambda seed: is_whole(root, world, seed),
        measure=lambda seed: measure(root, world, seed),
        queue=world.removesuffix("_gold"),
    )


def main() -> None:
    options = arguments(__doc__, "critique_loop_worlds", tuple(WORLDS), seeds=SEEDS, processes=2)
    parts = [part_of(options.root, world, options.seeds, options.settings) for world in options.only]
    print(markdown(accumulate(options, parts, markdown)))


if __name__ == "__main__":
    main()
