r"""GRPO on SmolLM2-135M-Instruct: is the trained model better on problems that it was not trained on?

    .venv/bin/whet get smollm2 models/smollm2
    .venv/bin/python benchmarks/smollm2_grpo.py             # three seeds, one after the other (two hours on two cores)
    .venv/bin/python benchmarks/smollm2_grpo.py --collect   # only reads what is there
    .venv/bin/python benchmarks/smollm2_grpo.py --name smollm2_grpo_bfloat16 engine.products=bfloat16 \
        learning.products=bfloat16   # the same with other products, beside the float32 result

Settings: `examples/smollm2.yaml`. Each seed draws 300 held-out problems, whose facts are in no training problem of any
seed (of sums, products and sequences so few facts are held out that all seeds have the same problems), and one greedy
reply to each before and after training. A model that learns to end its replies looks better
without knowing more, so the success is counted three times: of all replies (a cut one is wrong), of those that ended,
and of the problems whose replies ended before and after. Seeds 100 to 102 were kept for this. Runs that were
stopped go on. Each has as many threads as OMP_NUM_THREADS says, or two.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from study import arguments, lines_of, machine, paired_lead, read_result, train, write
from whet.config.parts import BasicsData
from whet.config.yaml_text import read_file
from whet.evaluation.critique import mean_interval
from whet.tasks.basics import make_basics

SETTINGS = Path(__file__).parents[1] / "examples" / "smollm2.yaml"
NAME = "smollm2_grpo"
"""Of the result in the example's own settings, with which others are compared."""
SEEDS = (100, 101, 102)
AFTER = {"best": "chosen on validation problems", "last": "after the last step"}
TITLES = {
    "all": "right, of all replies", "ended": "replies that ended", "of_ended": "right, of those that ended",
    "of_both": "right, of problems with replies that ended before and after",
}  # fmt: skip


def main() -> None:
    chosen = arguments(__doc__, NAME, seeds=SEEDS)
    seeds = tuple(chosen.seeds)
    runs = {seed: chosen.root / f"seed_{seed}" for seed in seeds}
    if not chosen.collect:
        threads = int(os.environ.get("OMP_NUM_THREADS", "2"))
        for seed, out in runs.items():
            train("grpo", [str(SETTINGS), f"seed={seed}", f"data.seed={seed}", *chosen.settings], out, threads=threads)
    found = {seed: compared(run) for seed, run in runs.items()}
    result = {
        "command": chosen.command, "seeds": list(seeds), "settings": chosen.settings,
        "machine": machine(next(iter(runs.values()))),
        "seconds": [json.loads((run / "summary.json").read_text())["seconds"] for run in runs.values()],
        "by_seed": found,
    }  # fmt: skip
    beside = read_result(NAME).get("by_seed", {})
    if chosen.name != NAME and all(str(seed) in beside for seed in seeds):
        result["beside"] = {str(seed): {row: beside[str(seed)][row]["gain"] for row in AFTER} for seed in seeds}
    write(chosen.name, result, _text(result, list(found.values())))


def compared(run: Path) -> dict[str, Any]:
    """By row of the table (`best`, `last`): shares before and after, their difference, and both by kind of problem."""
    before = _replies(run, "before", "before")
    kinds = _kinds(run)
    gaps = [line["kl/sampler"] for line in lines_of(run) if "kl/sampler" in line]
    found: dict[str, Any] = {"num_problems": len(before), "kl/sampler": {"mean": fmean(gaps), "most": max(gaps)}}
    for row in AFTER:
        after = _replies(run, "after", row)
        both = [task for task in before if before[task]["ended"] and after[task]["ended"]]
        sides = {"before": _shares(before, both), "after": _shares(after, both)}
        gain = {name: _less(sides["after"][name], sides["before"][name]) for name in TITLES}
        of_kinds = defaultdict(list)
        for task in before:
            of_kinds[kinds[task]].append(task)
        found[row] = {
            **sides, "gain": gain, "num_both": len(both),
            "by_kind": {
                kind: {side: fmean(replies[task]["right"] for task in tasks) for side, replies in
                       (("before", before), ("after", after))} | {"n": len(tasks)}
                for kind, tasks in sorted(of_kinds.items())
            },
        }  # fmt: skip
    return found


def _replies(run: Path, phase: str, policy: str) -> dict[str, dict[str, bool]]:
    """By problem, whether its greedy reply is right and whether it ended."""
    rows = [json.loads(line) for line in (run / "traces" / f"{phase}.jsonl").read_text().splitlines()]
    return {
        row["task"]: {"right": row["answer_score"] == 1.0, "ended": row["stop"]["answer"] != "length"}
        for row in rows
        if row["policy"] == policy
    }


def _shares(replies: Mapping[str, Mapping[str, bool]], both: Sequence[str]) -> dict[str, float | None]:
    every, ended = list(replies.values()), [reply for reply in replies.values() if reply["ended"]]
    return {
        "all": fmean(reply["right"] for reply in every),
        "ended": len(ended) / len(every),
        "of_ended": fmean(reply["right"] for reply in ended) if ended else None,
        "of_both": fmean(replies[task]["right"] for task in both) if both else None,
    }


def _less(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _kinds(run: Path) -> dict[str, str]:
    """Of the problems, made again from the run's settings."""
    data = BasicsData(**read_file(run / "config.yaml")["data"])
    tasks, _ = make_basics(data, {"test": data.num_test})
    return {task.id: task.info["of"] for task in tasks["test"]}


def _text(result: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> str:
    seconds = result["seconds"]
    lines = [
        "# GRPO on SmolLM2-135M-Instruct", "",
        f"{len(found)} seeds, each with {found[0]['num_problems']} held-out problems (the sums, products and sequences "
        "among them are the same in all, as no more are held out), one greedy reply to each; means with the half width "
        "of a 95 % Student t interval over seeds, in percent (gains in points). "
        f"Settings: `examples/smollm2.yaml`. A run takes {min(seconds) / 60:.0f} to {max(seconds) / 60:.0f} min.", "",
        f"`{result['command']}`", "",
    ]  # fmt: skip
    for row, title in AFTER.items():
        tables = [seed[row] for seed in found]
        lines += [f"## {row}: {title}", "", "| | before | after | gain |", "|---|---|---|---|"]
        for name, shown in TITLES.items():
            cells = [_cell([table[side][name] for table in tables]) for side in ("before", "after", "gain")]
            lines.append(f"| {shown} | " + " | ".join(cells) + " |")
        lines += ["", f"Of both: {', '.join(str(table['num_both']) for table in tables)} problems.", ""]
        lines += ["| right, of all replies | before | after | problems a seed |", "|---|---|---|---|"]
        for kind in tables[0]["by_kind"]:
            sides = [[table["by_kind"][kind][side] for table in tables if kind in table["by_kind"]] for side in
                     ("before", "after")]  # fmt: skip
            numbers = ", ".join(str(table["by_kind"][kind]["n"]) for table in tables if kind in table["by_kind"])
            lines.append(f"| {kind} | {_cell(sides[0])} | {_cell(sides[1])} | {numbers} |")
        lines.append("")
    if beside := result.get("beside"):
        gaps = [seed["kl/sampler"] for seed in found]
        lines += ["## Beside the example's own settings, in points", "", "| gain, less theirs | mean | by seed |"]
        lines += ["|---|---|---|"]
        for row, title in AFTER.items():
            theirs = [gains[row]["all"] for gains in beside.values()]
            lines.append(paired_lead(f"{title}, of all replies", [seed[row]["gain"]["all"] for seed in found], theirs))
        lines += ["", f"kl/sampler, nats a token: on average {fmean(gap['mean'] for gap in gaps):.4f}, in a step "
                  f"{max(gap['most'] for gap in gaps):.4f} at most.", ""]  # fmt: skip
    lines += [f"Machine: {', '.join(f'{k} {v}' for k, v in result['machine'].items() if v)}."]
    return "\n".join(lines) + "\n"


def _cell(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean, half = mean_interval(known)
    return f"{100 * mean:.1f}" if half is None else f"{100 * mean:.1f} ± {100 * half:.1f}"


if __name__ == "__main__":
    main()
