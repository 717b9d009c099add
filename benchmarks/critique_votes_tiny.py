"""Part `votes` of the study of critique-in-the-loop: what tokens buy at test time, with a critic and without.

A seed's run trains a critic as `make train` does; the actor that answers is the one that it was trained against. Every
strategy spends the same budgets on the same test questions with the same samples (`whet eval --strategy`), with the
critic after both stages; at the smaller budgets also with the one after its warm start, with the actor in the critic's
seat, and with a coin in it. A
budget is exceeded by the last thing that was begun, so strategies are held against the majority where it has really
spent as many tokens: on a line, over the logarithm of the tokens, between the two budgets around.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

from study import cell, minus, train, whet

BUDGETS = (48, 96, 192, 384, 768)
"""The majority's last point stands for what others spend beyond it: a few per cent more, where its line is flat."""
CRITICS = {"critic_stage2": "stage2", "critic_sft": "sft_critic", "self": "self", "random": "random"}
"""What `whet eval` calls them, and what its record does."""
TITLES = {
    "critic_stage2": "Critique-RL's critic", "critic_sft": "the critic after its warm start",
    "self": "the actor itself", "random": "a coin",
}  # fmt: skip
FIRST = "critic_stage2"
MAJORITY = "majority"
ALONE = ("single", MAJORITY, "ceiling")
"""They need no critic."""
CRITICISED = (
    "parallel", "verdict_gated", "sequential", "sequential:gate=verdict", "critic_filtered", "critic_weighted",
    "best_of_n:by=probability", "self_check",
)  # fmt: skip
SETTINGS = ("data.num_test=300",)
SHOWN = (48, 192)
"""Budgets at which critics are held beside each other."""


def run_seed(place: Path, seed: int, extra: Sequence[str]) -> None:
    train("critique_rl", [f"seed={seed}", "num_threads=1", *SETTINGS, *extra], place / "votes")
    log, run, names = place / "votes.eval.log", place / "votes", ",".join((*ALONE, *CRITICISED))
    for critic in CRITICS:
        if record(run, critic) is None:
            budgets = ",".join(map(str, BUDGETS if critic == FIRST else BUDGETS[: BUDGETS.index(SHOWN[-1]) + 1]))
            whet(log, "eval", str(run), "--strategy", names, "--budget", budgets, "--critic", critic)


def record(run: Path, critic: str) -> Mapping[str, Any] | None:
    for file in (run / "eval").glob("strategies-*.json"):
        found: Mapping[str, Any] = json.loads(file.read_text())
        if found["critic"] == CRITICS[critic]:
            return found
    return None


def collect(places: Sequence[Path]) -> dict[str, Any]:
    """By critic and strategy, the points of each seed."""
    found: dict[str, Any] = {}
    for critic in CRITICS:
        records = [record(place / "votes", critic) for place in places]
        found[critic] = {
            name: [told(of_seed["strategies"][name]["points"]) for of_seed in records if of_seed is not None]
            for name in (*ALONE, *CRITICISED)
        }
    return found


def told(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: point[key] for key in ("budget", "n", "accuracy", "tokens")} for point in points]


def on_line(points: Sequence[Mapping[str, Any]], tokens: float) -> float:
    """Accuracy on the line through the points, over the logarithm of the tokens; of the nearest point beyond them."""
    line = sorted((log(point["tokens"]), point["accuracy"]) for point in points)
    place = log(tokens)
    for (left, low), (right, high) in pairwise(line):
        if left <= place <= right:
            return float(low + (high - low) * (place - left) / (right - left)) if right > left else float(high)
    return float(line[0][1] if place < line[0][0] else line[-1][1])


# --- text -------------------------------------------------------------------------------------------------------------


def text(found: Mapping[str, Any]) -> list[str]:
    """Its lines of the results."""
    head, every = header([f"{budget} tokens" for budget in BUDGETS]), range(len(BUDGETS))
    lines = [*head]
    for name in (*ALONE, *CRITICISED):
        shown = [cell([of_seed[at]["accuracy"] for of_seed in found[FIRST][name]]) for at in every]
        lines.append(f"| `{name}` | {' | '.join(shown)} |")
    lines += ["", f"Lead over the majority at equal tokens, paired by seed, with {TITLES[FIRST]}; in brackets what was "
              "really spent.", "", *head]  # fmt: skip
    for name in CRITICISED:
        leads = [cell(lead(found, FIRST, name, at), sign=True) for at in every]
        shown = [f"{each} ({spent(found, FIRST, name, at)})" for at, each in enumerate(leads)]
        lines.append(f"| `{name}` | {' | '.join(shown)} |")
    for budget in SHOWN:
        lines += ["", f"The same at a budget of {budget} tokens, by who sits in the critic's seat.", ""]
        lines += header([TITLES[critic] for critic in CRITICS])
        for name in CRITICISED:
            shown = [cell(lead(found, critic, name, BUDGETS.index(budget)), sign=True) for critic in CRITICS]
            lines.append(f"| `{name}` | {' | '.join(shown)} |")
    return lines


def header(columns: Sequence[str]) -> list[str]:
    return ["| strategy | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]


def lead(found: Mapping[str, Any], critic: str, name: str, at: int) -> list[float | None]:
    """A strategy's accuracy at a budget, less the majority's where that has spent as many tokens; one value a seed."""
    pairs = zip(found[critic][name], found[FIRST][MAJORITY], strict=True)
    rows = [(points[at], majority) for points, majority in pairs]
    ours = [point["accuracy"] for point, _ in rows]
    return minus(ours, [on_line(majority, point["tokens"]) for point, majority in rows])


def spent(found: Mapping[str, Any], critic: str, name: str, at: int) -> str:
    return f"{fmean(of_seed[at]['tokens'] for of_seed in found[critic][name]):.0f}"
