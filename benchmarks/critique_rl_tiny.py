"""Does Critique-RL show its paper's shape on the tiny world? Five seeds, nine settings, four questions.

    .venv/bin/python benchmarks/critique_rl_tiny.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/critique_rl_tiny.py --collect  # only reads what is there

Each run uses one thread, two run side by side. Settings that share their beginning share it on disk: the ablations
start from the full run's warm-started critic, or from its stage I critic. Everything is resumable: a run that was
killed goes on from its last checkpoint, a finished one is read.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from study import arguments, machine, policies_of, train, write
from whet.evaluation.critique import mean_interval

METRICS = (
    "acc", "acc_refine", "delta", "c2i", "i2c", "acc_dis", "acc_dis_correct", "acc_dis_incorrect", "unparsed",
)  # fmt: skip


CURVES = ("acc_refine", "acc_dis", "acc_dis_correct", "acc_dis_incorrect")


@dataclass(frozen=True)
class Variant:
    """One row of the study's table."""

    title: str
    run: str
    """Folder name of the run that it is read from."""
    row: str
    """Row of that run's summary."""
    settings: tuple[str, ...] = ()
    start: str | None = None
    """Policy of the full run that the critic starts from. None: this is the full run."""


NO_WARM_START = ("warm_start.actor_steps=0", "warm_start.critic_steps=0", "stage1.num_steps=0")
ALONE = ("stage2.discrimination=false",)
VARIANTS = {
    "sft": Variant("SFT critic", "full", "sft_critic"),
    "full": Variant("Critique-RL (stage I + II)", "full", "stage2"),
    "no_stage2": Variant("without stage II", "full", "stage1"),
    "no_stage1": Variant("without stage I", "no_stage1", "stage2", NO_WARM_START, "critic_sft"),
    "no_stage1_long": Variant(
        "without stage I, stage II twice as long", "no_stage1_long", "stage2",
        (*NO_WARM_START, "stage2.num_steps=80"), "critic_sft",
    ),
    "no_dis_kl": Variant(
        "stage II without discrimination and KL", "no_dis_kl", "stage2",
        (*NO_WARM_START, *ALONE, "stage2.kl_coef=0"), "critic_stage1",
    ),
    **{
        f"indirect_{name}": Variant(
            f"indirect only, r_{name}", f"indirect_{name}", "stage2",
            (*NO_WARM_START, *ALONE, f"stage2.indirect={name}"), "critic_sft",
        )
        for name in ("refine", "delta", "correction")
    },
}  # fmt: skip


def run_one(root: Path, seed: int, variant: Variant, extra: list[str]) -> None:
    """Train one setting with one seed, or go on with it."""
    full, out = root / f"seed{seed}" / "full", root / f"seed{seed}" / variant.run
    settings = [f"seed={seed}", "num_threads=1", *variant.settings, *extra]
    if variant.start is not None:
        latest = policies_of(full)
        settings += [f"actor.path={latest / 'actor'}", f"critic.path={latest / variant.start}"]
    train("critique_rl", settings, out)


def run_all(root: Path, seeds: list[int], extra: list[str]) -> None:
    """Two runs at a time: every seed's full run first, then what starts from them, in order."""
    ablations = {v.run: v for v in VARIANTS.values() if v.start is not None}.values()
    with ThreadPoolExecutor(2) as pool:
        full = {seed: pool.submit(run_one, root, seed, VARIANTS["full"], extra) for seed in seeds}

        def after_full(seed: int, variant: Variant) -> None:
            full[seed].result()
            run_one(root, seed, variant, extra)

        for job in [pool.submit(after_full, seed, variant) for seed in seeds for variant in ablations]:
            job.result()


def collect(root: Path, seeds: list[int], command: str) -> dict[str, object]:
    """Every seed's numbers, means with 95 % t intervals, and the four questions as paired differences."""
    values: dict[str, dict[str, list[float]]] = {}
    seconds = 0.0
    for name, variant in VARIANTS.items():
        summaries = [json.loads((root / f"seed{s}" / variant.run / "summary.json").read_text()) for s in seeds]
        rows = [summary["rows"][variant.row] for summary in summaries]
        values[name] = {metric: [row[metric] for row in rows] for metric in METRICS}
        seconds += sum(s["seconds"] for s in summaries) if variant.row == "stage2" else 0.0
    return {
        "command": command,
        "seeds": seeds,
        "machine": machine(root / f"seed{seeds[0]}" / "full"),
        "run_seconds": round(seconds),
        "n_test": json.loads((root / f"seed{seeds[0]}" / "full" / "summary.json").read_text())["rows"]["stage1"]["n"],
        "values": values,
        "mean_and_interval": {
            name: {metric: mean_interval(found[metric]) for metric in METRICS} for name, found in values.items()
        },
        "questions": questions(values),
        "validation": curves(root, seeds),
    }


def curves(root: Path, seeds: list[int]) -> dict[str, dict[str, dict[str, tuple[float, float | None]]]]:
    """Validation values over the steps of each stage, by setting: where they part before they meet at the top."""
    found: dict[str, dict[str, dict[str, tuple[float, float | None]]]] = {}
    for name, variant in VARIANTS.items():
        if name == "sft":
            continue
        steps: dict[str, dict[str, list[float]]] = {}
        for seed in seeds:
            path = root / f"seed{seed}" / variant.run / "metrics.jsonl"
            for row in map(json.loads, path.read_text().splitlines()):
                if row["phase"] == variant.row and "validation/acc_dis" in row:
                    at = steps.setdefault(str(row["step"]), {})
                    for metric in CURVES:
                        at.setdefault(metric, []).append(row[f"validation/{metric}"])
        found[name] = {step: {m: mean_interval(v) for m, v in at.items()} for step, at in steps.items()}
    return found


def questions(values: dict[str, dict[str, list[float]]]) -> list[dict[str, object]]:
    """The paper's shape, as differences of runs with the same seed (points of percent; 95 % t interval)."""

    def differ(question: str, left: str, right: str, metric: str) -> dict[str, object]:
        pairs = zip(values[left][metric], values[right][metric], strict=True)
        mean, half = mean_interval([100 * (a - b) for a, b in pairs])
        return {"question": question, "left": left, "right": right, "metric": metric, "mean": mean, "half": half}

    dis = ("acc_dis", "acc_dis_correct", "acc_dis_incorrect")
    rows = [differ("(i) stage I raises Acc@Dis on both classes", "no_stage2", "sft", metric) for metric in dis]
    rows.append(differ("(i) ... with Acc@Refine nearly flat", "no_stage2", "sft", "acc_refine"))
    rows.append(differ("(ii) stage II raises Acc@Refine", "full", "no_stage2", "acc_refine"))
    rows.append(differ("(ii) ... without losing Acc@Dis", "full", "no_stage2", "acc_dis"))
    rows.append(differ("(iii) dropping stage I lowers Acc@Dis", "no_stage1", "full", "acc_dis"))
    rows.append(differ("(iii) ... also with as many steps in all", "no_stage1_long", "full", "acc_dis"))
    rows.append(differ("(iii) dropping discrimination and KL lowers it", "no_dis_kl", "full", "acc_dis"))
    for name in ("refine", "delta", "correction"):
        rows += [differ(f"(iv) indirect only, r_{name}: one class at the other's expense", f"indirect_{name}", "sft", m)
                 for m in dis[1:]]  # fmt: skip
    others = [name for name in values if name != "full"]
    rows += [differ("full Critique-RL is first in Acc@Refine", "full", name, "acc_refine") for name in others]
    return rows


def markdown(result: dict[str, object]) -> str:
    """The table and the answers, as they are."""
    means: dict[str, dict[str, tuple[float, float]]] = result["mean_and_interval"]  # type: ignore[assignment]
    columns = ("acc_refine", "delta", "c2i", "i2c", "acc_dis", "acc_dis_correct", "acc_dis_incorrect")
    titles = ("Acc@Refine", "Delta", "c->i", "i->c", "Acc@Dis", "on right", "on wrong")
    lines = [
        "# Critique-RL on the tiny world",
        "",
        f"{len(result['seeds'])} seeds ({', '.join(map(str, result['seeds']))}), "  # type: ignore[arg-type, call-overload]
        f"{result['n_test']:.0f} test problems, greedy; mean ± half width of a 95 % t interval over seeds, in percent. "
        f"Acc without a critic: {_cell(means['full']['acc'])}.",
        "",
        "| critic | " + " | ".join(titles) + " |",
        "|---" * (len(titles) + 1) + "|",
    ]
    for name, variant in VARIANTS.items():
        lines.append(f"| {variant.title} | " + " | ".join(_cell(means[name][c]) for c in columns) + " |")
    lines += ["", "## The questions, as differences of runs with one seed (points)", ""]
    lines += ["| question | left − right | metric | difference | beyond the interval |", "|---|---|---|---|---|"]
    for row in result["questions"]:  # type: ignore[attr-defined]
        half = float("nan") if row["half"] is None else row["half"]
        beyond = "yes" if abs(row["mean"]) > half else "no"
        lines.append(
            f"| {row['question']} | {row['left']} − {row['right']} | {row['metric']} | "
            f"{row['mean']:+.1f} ± {half:.1f} | {beyond} |"
        )
    lines += ["", "## On the way: validation problems, over the steps of the stage", ""]
    lines += ["| critic | step | Acc@Refine | Acc@Dis | on right | on wrong |", "|---" * 6 + "|"]
    for name, steps in result["validation"].items():  # type: ignore[attr-defined]
        stage = "I" if VARIANTS[name].row == "stage1" else "II"
        for step, at in steps.items():
            cells = " | ".join(_cell(at[metric]) for metric in CURVES)
            lines.append(f"| {VARIANTS[name].title} | {stage}, {step} | {cells} |")
    lines += ["", f"Command: `{result['command']}`. Machine: {json.dumps(result['machine'])}. "
              f"Sum of run times: {result['run_seconds']} s, one thread a run.", ""]  # fmt: skip
    return "\n".join(lines)


def _cell(value: tuple[float, float | None]) -> str:
    mean, half = value
    return f"{100 * mean:.1f}" + (f" ± {100 * half:.1f}" if half is not None else "")


def main() -> None:
    options = arguments(__doc__, "critique_rl_tiny")
    if not options.collect:
        run_all(options.root, options.seeds, options.settings)
    result = collect(options.root, options.seeds, options.command)
    write(options.name, result, markdown(result))


if __name__ == "__main__":
    main()
