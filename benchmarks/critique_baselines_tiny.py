"""Critique-RL and its paper's baselines on the tiny world, at equal rollouts: five seeds, as it came out.

    .venv/bin/python benchmarks/critique_baselines_tiny.py             # runs or goes on, then writes the results
    .venv/bin/python benchmarks/critique_baselines_tiny.py --collect   # only reads what is there

A rollout is a text that the policy in training samples and may learn from: a critique, or where the actor is
trained an answer. Every method gets 128 a step, `--steps` (80) of them: 10,240. What frozen seats write meanwhile
(answers to be critiqued, refinements that are rewarded) is counted beside it, and not made equal: Critique-RL's stage I
needs no refinement, and training the actor needs nothing of the kind. Updates are each method's own.

All of a seed start from one warm start, that of its run of Critique-RL: critics from its SFT critic, with its actor;
the two that train the actor from that actor. Seeds 200 to 204 are for the claim, and were not looked at while the
methods were written. Settings after the command go to every run (data.*) or to the critics' runs (all others). Runs and
measurements that were stopped go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study import arguments, cell, evaluated, machine, minus, policies_of, rows_of, train, whet, write

CHAINS, REFINEMENTS, WEAK_STEPS = 4, 16, 600
ROLLOUTS, ANSWERS = 128, 32
"""Of a step: texts of the policy in training, and answers that are critiqued."""
Row = Mapping[str, float | None]


@dataclass(frozen=True)
class LoadedRun:
    """A method of the table."""

    title: str
    method: str
    row: str
    """Of its summary."""
    settings: Callable[[int], tuple[str, ...]]
    """Of the number of steps in all."""
    frozen: Callable[[int], int]
    """Texts of frozen seats, likewise."""
    is_actor: bool = False


def staged(steps: int, times: int) -> tuple[str, ...]:
    return (*(f"stage{n}.num_steps={steps // (2 * times)}" for n in (1, 2)), f"iterations={times}")


def both_stages(steps: int) -> int:
    return steps * ANSWERS + steps // 2 * ROLLOUTS


def refined(steps: int) -> int:
    return steps * (ANSWERS + ROLLOUTS)


FULL = LoadedRun("Critique-RL", "critique_rl", "stage2", lambda steps: staged(steps, 1), both_stages)
OTHERS = {
    "twice": LoadedRun(
        "Critique-RL, both stages twice, each half as long", "critique_rl", "stage2_2",
        lambda steps: staged(steps, 2), both_stages,
    ),
    "star": LoadedRun("STaR", "star_critic", "star", lambda steps: (f"num_steps={steps // 4}",), refined),
    "retroformer": LoadedRun(
        "Retroformer (PPO, indirect)", "retroformer", "helpful", lambda steps: (f"num_steps={steps}",), refined
    ),
    "ctrl": LoadedRun("CTRL (GRPO, indirect)", "ctrl", "helpful", lambda steps: (f"num_steps={steps}",), refined),
    "direct": LoadedRun(
        "RL of the actor (GRPO)", "grpo", "best", lambda steps: (f"num_steps={steps}",), lambda steps: 0, is_actor=True
    ),
    "score": LoadedRun(
        "SCoRe, second attempt", "score_rl", "best",
        lambda steps: (f"num_steps={steps}", f"first_stage={steps // 2}"), lambda steps: 0, is_actor=True,
    ),
}  # fmt: skip
TITLES = {
    "no_critic": "No critic", "self_1": "Self-Refine, one round", "self_2": "Self-Refine, two rounds",
    "sft": "SFT critic", **{name: each.title for name, each in OTHERS.items()}, "full": FULL.title,
}  # fmt: skip
"""Of the table's rows, in its order."""


def train_full(place: Path, seed: int, steps: int, extra: Sequence[str]) -> None:
    train("critique_rl", [f"seed={seed}", "num_threads=1", *extra, *FULL.settings(steps)], place / "full")


def train_other(place: Path, seed: int, steps: int, extra: Sequence[str], name: str) -> None:
    """From the full run's warm start."""
    each, start = OTHERS[name], policies_of(place / "full")
    settings = [f"seed={seed}", "num_threads=1"]
    if each.is_actor:
        settings += [*(e for e in extra if e.startswith("data.")), f"policy.path={start / 'actor'}",
                     "sampling.max_new_tokens=48", "evaluation.num_samples=0"]  # fmt: skip
    else:
        settings += [*extra, f"actor.path={start / 'actor'}", f"critic.path={start / 'critic_sft'}",
                     "warm_start.actor_steps=0", "warm_start.critic_steps=0"]  # fmt: skip
    train(each.method, [*settings, *each.settings(steps)], place / name)


def measure(place: Path, weak: Path) -> dict[str, Any]:
    """What `whet eval` says of a seed's runs; made once, and read after that."""
    full, direct = place / "full", policies_of(place / "direct") / "policy_best"
    plain, of_direct = (
        evaluated(full, "no_critic", samples=3 * CHAINS, changed=changed)["scaling"]["majority_answer"]
        for changed in ((), (f"actor.path={direct}",))
    )
    ours = evaluated(full, "critic_stage2", samples=CHAINS)["scaling"]["majority_refine"]
    critics = {"sft": (full, "critic_sft"), "retroformer": (place / "retroformer", "critic_helpful"),
               "ctrl": (place / "ctrl", "critic_helpful"), "full": (full, "critic_stage2")}  # fmt: skip
    return {
        "table": {f"self_{rounds}": evaluated(full, "self", rounds=rounds)["metrics"] for rounds in (1, 2)},
        "majority": {"plain answers": plain, "RL of the actor": of_direct, "Critique-RL": ours},
        "refinements": {
            name: pass_at(evaluated(full, critic, refinements=REFINEMENTS)["metrics"])
            for name, critic in (("sft", "critic_sft"), ("full", "critic_stage2"))
        },
        "other_actor": {
            name: evaluated(run, critic, changed=(f"actor.path={weak}",))["metrics"]
            for name, (run, critic) in critics.items()
        },
    }


def pass_at(metrics: Row) -> dict[str, float | None]:
    return {name.removeprefix("pass@"): value for name, value in metrics.items() if name.startswith("pass@")}


def run_all(root: Path, seeds: Sequence[int], steps: int, extra: Sequence[str]) -> None:
    """Two processes at a time."""
    places = {seed: root / f"seed{seed}" for seed in seeds}
    root.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        if not (root / "weak" / "config.json").exists():
            whet(root / "weak.log", "tiny", "build", "--steps", str(WEAK_STEPS), "--out", str(root / "weak"))
        list(pool.map(lambda seed: train_full(places[seed], seed, steps, extra), seeds))
        pairs = [(seed, name) for seed in seeds for name in OTHERS]
        list(pool.map(lambda pair: train_other(places[pair[0]], pair[0], steps, extra, pair[1]), pairs))
        list(pool.map(lambda seed: measure(places[seed], root / "weak"), seeds))


def collect(root: Path, seeds: Sequence[int], steps: int, command: str) -> dict[str, Any]:
    """Every seed's numbers: the table's rows, and what `whet eval` found."""
    tables: dict[str, list[Row]] = {name: [] for name in TITLES}
    found = [measure(root / f"seed{seed}", root / "weak") for seed in seeds]
    for seed, each in zip(seeds, found, strict=True):
        full = rows_of(root / f"seed{seed}" / "full")
        own = {"no_critic": full["no_critic"], "sft": full["sft_critic"], "full": full[FULL.row], **each["table"]}
        for name, other in OTHERS.items():
            row = rows_of(root / f"seed{seed}" / name)[other.row]
            own[name] = {"acc_refine": row["acc"], **row} if other.is_actor else row
        for name, row in own.items():
            tables[name].append(row)
    return {
        "command": command, "seeds": list(seeds), "machine": machine(root / f"seed{seeds[0]}" / "full"),
        "rollouts": steps * ROLLOUTS, "tables": tables,
        "frozen": {"full": FULL.frozen(steps), **{name: each.frozen(steps) for name, each in OTHERS.items()}},
        **{key: [each[key] for each in found] for key in ("majority", "refinements", "other_actor")},
    }  # fmt: skip


# --- text -------------------------------------------------------------------------------------------------------------


def text(result: Mapping[str, Any]) -> str:
    tables, frozen, count = result["tables"], result["frozen"], len(result["seeds"])
    n = tables["no_critic"][0]["n"]
    lines = [
        "# Critique-RL and its baselines on the tiny world", "",
        f"{count} seeds ({', '.join(map(str, result['seeds']))}), {n:.0f} test problems, greedy; mean ± half width of "
        "a 95 % t interval over seeds, in percent. Right: the final answer, after critique and refinement where there "
        f"are any. Rollouts: texts of the policy in training, {result['rollouts']:,} for each; frozen: texts of other "
        "seats while it trained.", "",
        "| method | right | gain over no critic | Acc@Dis | rollouts | frozen | Critique-RL's lead, paired |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    plain = [row["acc"] for row in tables["no_critic"]]
    ours = [row["acc_refine"] for row in tables["full"]]
    for name, title in TITLES.items():
        right = [row["acc_refine"] for row in tables[name]]
        rolled = (f"{result['rollouts']:,}", f"{frozen[name]:,}") if name in frozen else ("0", "0")
        cells = [cell(right), cell(minus(right, plain), sign=True), cell([row.get("acc_dis") for row in tables[name]])]
        lines.append(f"| {title} | {' | '.join((*cells, *rolled))} | {cell(minus(ours, right), sign=True)} |")
    lines += ["", f"## Majority votes ({CHAINS} chains of Critique-RL are {3 * CHAINS} texts)", ""]
    lines += curves(result["majority"], "votes")
    lines += ["", "## Several refinements after one critique: pass@k", "", *curves(result["refinements"], "k")]
    lines += ["", f"## Another actor, built with {WEAK_STEPS} steps", ""]
    lines += ["| critic | Acc | Acc@Refine | Acc@Dis |", "|---|---|---|---|"]
    for name in result["other_actor"][0]:
        found = [each[name] for each in result["other_actor"]]
        cells = [cell([row[key] for row in found]) for key in ("acc", "acc_refine", "acc_dis")]
        lines.append(f"| {TITLES[name]} | {' | '.join(cells)} |")
    lines += ["", f"`{result['command']}`. Machine: {json.dumps(result['machine'])}.", ""]
    return "\n".join(lines)


def curves(found: Sequence[Mapping[str, Mapping[str, float | None]]], head: str) -> list[str]:
    """A row a name, a column a number of samples."""
    ks = sorted({int(k) for curve in found[0].values() for k in curve})
    lines = [f"| {head} | " + " | ".join(map(str, ks)) + " |", "|---" * (len(ks) + 1) + "|"]
    for name in found[0]:
        cells = [cell([each[name].get(str(k)) for each in found]) for k in ks]
        lines.append(f"| {TITLES.get(name, name)} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    chosen = arguments(__doc__, "critique_baselines_tiny", seeds=range(200, 205), steps=80)
    if chosen.steps % 4:
        raise SystemExit(f"--steps {chosen.steps} has to be a multiple of 4: two stages, twice, and four rounds")
    if not chosen.collect:
        run_all(chosen.root, chosen.seeds, chosen.steps, chosen.settings)
    result = collect(chosen.root, chosen.seeds, chosen.steps, chosen.command)
    write(chosen.name, result, text(result))


if __name__ == "__main__":
    main()
