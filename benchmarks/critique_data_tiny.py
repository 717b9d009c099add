"""Part `data` of the study of critique-in-the-loop: each way of building critiques, by the critic that learns them.

Every way makes as many solutions of the same questions, three each, and gives the same number of critiques, drawn from
those that it kept, a third of them of right solutions; all critics learn them in as many updates, and are measured with
the same actor on the same test questions. The numbers are small on purpose: with some hundred critiques every critic is
as good as its annotator, and the ways cannot be told apart.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from study import cell, minus, rows_of, train, whet

NUM_CRITIQUES, NUM_RIGHT = 102, 34
MIXED = ("rg1.num_samples=1", "rg2.num_samples=1", "rg3.num_samples=1")
BUILT = ("num_questions=180",)
TRAINED = (
    "warm_start.actor_steps=0", "warm_start.critic_steps=50", "stage1.num_steps=0", "stage2.num_steps=0",
    "data.num_test=500",
)  # fmt: skip
UNFILTERED = (
    *(f"filters.{name}=false" for name in ("format", "verdict", "location", "hint_leak")), "filters.num_refinements=0",
)  # fmt: skip
WAYS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "mixed": ("RG1, RG2, RG3 in equal parts", MIXED),
    "rg1": ("RG1, from scratch", ("rg1.num_samples=3", "rg2.num_samples=0", "rg3.num_samples=0", "ratio={rg1: 1}")),
    "rg2": ("RG2, pushed off", ("rg1.num_samples=0", "rg2.num_samples=3", "rg3.num_samples=0", "ratio={rg2: 1}")),
    "rg3": (
        "RG3, planted; right ones from scratch",
        ("rg1.num_samples=1", "rg2.num_samples=0", "rg3.num_samples=2", "ratio={rg3: 1}"),
    ),
    "wrong_only": ("in equal parts, wrong solutions alone", (*MIXED, "right_share=0")),
    "unfiltered": ("in equal parts, no filter", (*MIXED, *UNFILTERED)),
    "judge": ("in equal parts, an annotator that says where, not what", (*MIXED, "annotator.name=judge", *UNFILTERED)),
    "judge_filtered": ("the same, filtered", (*MIXED, "annotator.name=judge")),
}  # fmt: skip
"""Title, and settings of `whet data critiques`."""
KEYS = ("acc_refine", "acc_dis", "acc_dis_correct", "acc_dis_incorrect", "i2c_of_incorrect", "c2i_of_correct")


def run_seed(place: Path, seed: int, extra: Sequence[str]) -> None:
    for name, (_, settings) in WAYS.items():
        built, learnt = place / f"data_{name}", place / f"data_{name}_critic"
        if not (built / "summary.json").exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            asked = [f"seed={seed}", "num_threads=1", *BUILT, *settings]
            whet(built.with_suffix(".log"), "data", "critiques", *asked, "--out", str(built))
        file = place / f"data_{name}.jsonl"
        if not file.exists():
            file.write_text("".join(drawn(built / "critiques.jsonl", seed, only_wrong=name == "wrong_only")))
        train("critique_rl", [f"seed={seed}", "num_threads=1", f"warm_start.file={file}", *TRAINED, *extra], learnt)


def drawn(file: Path, seed: int, *, only_wrong: bool) -> list[str]:
    """Of the critiques in a file, as many as all ways have, of right and of wrong solutions; all, where there are
    fewer."""
    lines = file.read_text().splitlines(keepends=True)
    right = [line for line in lines if json.loads(line)["correct"]]
    wrong = [line for line in lines if not json.loads(line)["correct"]]
    num_right = 0 if only_wrong else NUM_RIGHT
    rng = random.Random(seed)
    found = [
        *rng.sample(right, min(num_right, len(right))),
        *rng.sample(wrong, min(NUM_CRITIQUES - num_right, len(wrong))),
    ]
    return rng.sample(found, len(found))


def collect(places: Sequence[Path]) -> dict[str, Any]:
    return {
        name: {
            "rows": [rows_of(place / f"data_{name}_critic")["sft_critic"] for place in places],
            "before": [rows_of(place / f"data_{name}_critic")["no_critic"] for place in places],
            "built": [counts(place, name) for place in places],
        }
        for name in WAYS
    }


def counts(place: Path, name: str) -> dict[str, int]:
    kept = (place / f"data_{name}" / "critiques.jsonl").read_text().splitlines()
    learnt = [json.loads(line) for line in (place / f"data_{name}.jsonl").read_text().splitlines()]
    return {"kept": len(kept), "learnt": len(learnt), "right": sum(bool(each["correct"]) for each in learnt)}


# --- text -------------------------------------------------------------------------------------------------------------


def text(found: Mapping[str, Any]) -> list[str]:
    """Its lines of the results."""
    first = next(iter(WAYS))
    ours = [row["acc_refine"] for row in found[first]["rows"]]
    alone = cell([row["acc"] for row in found[first]["before"]])
    lines = [
        f"The actor alone: {alone}. Acc@Refine: right after critique and refinement. Lead: of the first way over this "
        "one. Of a judgment: as the answer is, of right answers, of wrong ones.",
        "", "| critiques of | Acc@Refine | lead, paired | Acc@Dis | on right | on wrong | wrong mended | "
        "right spoilt | kept | of those learnt: right |", "|---" * 10 + "|",
    ]  # fmt: skip
    for name, each in found.items():
        values = {key: [row[key] for row in each["rows"]] for key in KEYS}
        lead = cell(minus(ours, values["acc_refine"]), sign=True) if name != first else "–"
        shown = [cell(values["acc_refine"]), lead, *(cell(values[key]) for key in KEYS[1:])]
        kept = f"{fmean(one['kept'] for one in each['built']):.0f}"
        learnt = f"{sum(one['right'] for one in each['built'])} of {sum(one['learnt'] for one in each['built'])}"
        lines.append(f"| {WAYS[name][0]} | {' | '.join(shown)} | {kept} | {learnt} |")
    return lines
