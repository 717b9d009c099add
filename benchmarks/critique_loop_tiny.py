"""Critique in the loop, at test time, in data and inside a reply, on the tiny world: five seeds, as it came out.

    .venv/bin/python benchmarks/critique_loop_tiny.py             # runs or goes on, part by part; writes the results
    .venv/bin/python benchmarks/critique_loop_tiny.py --only loop # of these parts; the others are read as they are
    .venv/bin/python benchmarks/critique_loop_tiny.py --collect   # only reads what has finished, and says what has not

loop   Self-improvement with and without a critic, at an equal number of sampled tokens, by difficulty, beside every
       baseline.
votes  Majority vote against votes, choices and refinements with a critic, at equal tokens (`critique_votes_tiny.py`).
data   Each way of building critique data, by the critic that it trains (`critique_data_tiny.py`).
talk   Self-talk against the actor alone and whole-response self-correction (`self_talk_tiny.py`).

In `loop` all runs of a seed have the same questions, the same model to begin with and the same demonstrations. What
exploring writes is counted in tokens, critiques included. The loop with its critic comes first; "at equal tokens" is
vanilla self-improvement that answers again and again until it has written, round by round, as many tokens as the loop
did, and rejection sampling (RFT), in its one round, as many as the loop in all of its rounds. The other baselines have
their own number of samples, and their tokens stand beside them. Test questions are told apart by how hard they are for
the model before the first round (ten samples each, which serve for nothing else).

The seeds are for the claims, and nothing was chosen on them. Two runs at a time, in one thread each; those that were
stopped go on, those that have finished are read. Settings after the command go to every run.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import critique_data_tiny
import critique_votes_tiny
import self_talk_tiny
from study import RESULTS, arguments, cell, machine_now, minus, rows_of, train, write

Row = Mapping[str, float | None]
Rounds = Sequence[Mapping[str, float]]
LOOP = "critique_loop"
LEVELS = range(1, 6)
COVERED = ("coverage", "coverage_answers", "recovered", "yield_tokens", "hard", "hard_source", "distinct")


def by_round(rounds: Rounds) -> tuple[str, ...]:
    return (f"token_budget={json.dumps([int(each['tokens']) for each in rounds])}",)


def in_one_round(rounds: Rounds) -> tuple[str, ...]:
    return (f"token_budget=[{int(sum(each['tokens'] for each in rounds))}]",)


def plain(rounds: Rounds) -> tuple[str, ...]:
    return ()


def same_start(rounds: Rounds) -> tuple[str, ...]:
    """These presets have no warm start of their own; here they begin like the others."""
    return ("warm_start.actor_steps=40", "start=warm_start")


METHODS: Mapping[str, tuple[str, str, Callable[[Rounds], tuple[str, ...]]]] = {
    LOOP: ("Critic in the loop", LOOP, plain),
    "explicit": ("Critic in the loop, explicit allocation", LOOP, lambda rounds: ("allocation.kind=explicit",)),
    "vanilla": ("Vanilla, as many samples", "self_improve", plain),
    "equal": ("Vanilla, at equal tokens", "self_improve_equal", by_round),
    "rft": ("RFT, at equal tokens", "rft", in_one_round),
    "star": ("STaR", "star", same_start),
    "rest": ("ReST", "rest", plain),
    "rest_em": ("ReST-EM", "rest_em", same_start),
    "binary": ("Only that it is wrong", "loop_binary", plain),
    "hint": ("The reference as a hint", "loop_hint", plain),
    "oracle": ("A critic that knows the solution", "loop_oracle", plain),
}
"""Title, preset, and the settings that follow from the rounds of the seed's first run."""


def rounds_of(run: Path) -> Rounds:
    found: Rounds = json.loads((run / "rounds.json").read_text())
    return found


def run_seed(place: Path, seed: int, extra: Sequence[str]) -> None:
    settings = [f"seed={seed}", "num_threads=1", *extra]
    train(LOOP, settings, place / LOOP)
    for name, (_, preset, more) in METHODS.items():
        train(preset, [*settings, *more(rounds_of(place / LOOP))], place / name)


def collect(places: Sequence[Path]) -> dict[str, Any]:
    return {
        "before": [rows_of(place / LOOP)["before"] for place in places],
        "last": {name: [rows_of(place / name)["last"] for place in places] for name in METHODS},
        "rounds": {name: [rounds_of(place / name) for place in places] for name in METHODS},
    }


# --- text -------------------------------------------------------------------------------------------------------------


def text(result: Mapping[str, Any]) -> list[str]:
    """Its lines of the results."""
    before: Sequence[Row] = result["before"]
    counts = [sum(row[f"n_level_{level}"] or 0 for row in before) for level in LEVELS]
    lines = [
        f"{before[0]['n']:.0f} test questions a seed, greedy, with the weights of the last round. Levels: by the "
        "samples of the model before the first round, 1 the easiest; questions of each, over all seeds: "
        f"{', '.join(f'{count:.0f}' for count in counts)}. Tokens: written while exploring, by all seats, in "
        "thousands.",
        "", "| method | right | lead of the critic, paired | " + " | ".join(f"level {level}" for level in LEVELS)
        + " | tokens |", "|---" * 9 + "|",
    ]  # fmt: skip
    ours = [row["acc"] for row in result["last"][LOOP]]
    for name, rows in {"": before, **result["last"]}.items():
        title = METHODS[name][0] if name else "Before the rounds"
        levels = [cell([row[f"level_{level}"] for row in rows]) for level in LEVELS]
        lead = cell(minus(ours, [row["acc"] for row in rows]), sign=True) if name != LOOP else "–"
        spent = [sum(each["tokens"] for each in run) / 1000 for run in result["rounds"][name]] if name else [0.0]
        cells = [cell([row["acc"] for row in rows]), lead, *levels, cell(spent, scale=1)]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += ["", "What exploring found, in the first and in the last round:", "",
              "| method | round | " + " | ".join(COVERED) + " |", "|---" * (len(COVERED) + 2) + "|"]  # fmt: skip
    for name, runs in result["rounds"].items():
        for at in dict.fromkeys((0, len(runs[0]) - 1)):
            scales = {key: 1 if key in ("yield_tokens", "distinct") else 100 for key in COVERED}
            cells = [cell([run[at].get(key) for run in runs], scale=by) for key, by in scales.items()]
            lines.append(f"| {METHODS[name][0]} | {at + 1} | {' | '.join(cells)} |")
    return lines


PARTS: Mapping[str, tuple[str, Any]] = {
    "loop": ("Self-improvement with and without a critic", sys.modules[__name__]),
    "votes": ("Test time: majority vote, and what a critic adds at equal tokens", critique_votes_tiny),
    "data": ("Ways of building critique data", critique_data_tiny),
    "talk": ("Self-talk", self_talk_tiny),
}
"""Title, and the module that runs it (`run_seed`), reads it (`collect`) and writes of it (`text`)."""


def whole(found: Mapping[str, Any]) -> str:
    seeds = found["seeds"]
    lines = [
        "# Critique on the tiny world: in the loop, at test time, in data, inside a reply", "",
        f"{len(seeds)} seeds ({', '.join(map(str, seeds))}); mean ± half width of a 95 % t interval over seeds, in "
        "percent.",
    ]  # fmt: skip
    for part, (title, module) in PARTS.items():
        about = found["parts"].get(part)
        own = module.text(about) if about is not None else ["Not all of its runs have finished."]
        lines += ["", f"## {title}", "", *own]
    hours = ", ".join(f"{part} {hours:.1f}" for part, hours in found["hours"].items())
    lines += ["", f"Hours of runs, one thread each: {hours}.", ""]
    machines = "; ".join(f"{part} {json.dumps(machine)}" for part, machine in found["machines"].items())
    lines += [f"`{found['command']}`. Machines: {machines}.", ""]
    return "\n".join(lines)


def run_part(part: str, chosen: Namespace) -> None:
    def one(seed: int) -> None:
        begun, place = time.monotonic(), chosen.root / f"seed{seed}"
        if (place / f"{part}.done").exists():
            return
        try:
            PARTS[part][1].run_seed(place, seed, chosen.settings)
        finally:
            with (place / f"{part}.seconds").open("a") as file:
                file.write(f"{time.monotonic() - begun:.0f}\n")
        (place / f"{part}.done").touch()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, chosen.seeds))


def main() -> None:
    chosen = arguments(__doc__, "critique_loop_tiny", tuple(PARTS), seeds=range(300, 305))
    for part in PARTS:
        if part in chosen.only and not chosen.collect:
            run_part(part, chosen)
    places = [chosen.root / f"seed{seed}" for seed in chosen.seeds]
    file = RESULTS / f"{chosen.name}.json"
    found = json.loads(file.read_text()) if file.exists() else {"parts": {}, "hours": {}, "machines": {}}
    for part, (_, module) in PARTS.items():  # what is not in this folder stays as it is
        if all((place / f"{part}.done").exists() for place in places):
            found["parts"][part] = module.collect(places)
            found["hours"][part] = sum(map(seconds_in, (place / f"{part}.seconds" for place in places))) / 3600
            found["machines"][part] = machine_now()
    found |= {"command": chosen.command, "seeds": list(chosen.seeds)}
    write(chosen.name, found, whole(found))


def seconds_in(file: Path) -> int:
    return sum(map(int, file.read_text().split()))


if __name__ == "__main__":
    main()
