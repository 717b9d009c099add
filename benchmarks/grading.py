r"""What the answer grader accepts and refuses: Math-Verify's own test cases, answers at the edges (small magnitudes,
signs and numbers in words), the references of five public sets in four frames, near misses and rewritings of them.

    python benchmarks/grading.py [--data ../shared/data] [--seed 0]

Writes benchmarks/results/grading.{md,json}. The sets are read where they lie and never copied.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mutants import NEAR_MISSES, framed, rewritten
from study import machine_now, write
from whet.grading.maths import MathGrader
from whet.tasks.files import read_tasks

CASES = Path(__file__).parents[1] / "packages" / "mathgrade" / "tests" / "data" / "math_verify_cases.json"
EDGES = CASES.with_name("edge_cases.json")
"""Written by hand, with the verdict that a careful reader gives."""
SETS = {
    "gsm8k": "gsm8k/test.jsonl", "math500": "math500/test.jsonl", "asdiv": "asdiv/test.jsonl",
    "svamp": "svamp/test.jsonl", "aqua": "aqua/test.jsonl",
}  # fmt: skip
FRAMES = {"bare": "{}", "boxed": r"\boxed{{{}}}", "in $ $": "${}$", "sentence": "The answer is {}."}
NUM_OF_A_KIND = 500
NUM_REWRITINGS = 2500


def references(data: Path) -> dict[str, list[str]]:
    return {name: [task.answer for task in read_tasks(data / path).tasks if task.answer] for name, path in SETS.items()}


def math_verify(grader: MathGrader) -> dict[str, Any]:
    """Its cases, predictions as they stand."""
    cases = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    grades = grader.grade([(case["reply"], case["reference"]) for case in cases])
    found = [(case, grade.score == 1.0) for case, grade in zip(cases, grades, strict=True)]
    return {
        "cases": len(cases),
        "as_expected": sum(case["same"] is accepted for case, accepted in found),
        "wrongly_accepted": [case for case, accepted in found if accepted and not case["same"]],
        "refused": [
            {**case, "reason": grade.reason}
            for (case, accepted), grade in zip(found, grades, strict=True) if case["same"] and not accepted
        ],
    }  # fmt: skip


def edges(grader: MathGrader) -> dict[str, Any]:
    """By kind: how many answers are the reference's and how many near misses there are, and those judged wrongly."""
    cases = json.loads(EDGES.read_text(encoding="utf-8"))["cases"]
    grades = grader.grade([(case["reply"], case["reference"]) for case in cases])
    counts: dict[str, Any] = {}
    for case, grade in zip(cases, grades, strict=True):
        count = counts.setdefault(case["kind"], {"same": 0, "near_misses": 0, "refused": [], "accepted": []})
        count["same" if case["same"] else "near_misses"] += 1
        if case["same"] and grade.score != 1.0:
            count["refused"].append({**case, "reason": grade.reason})
        elif not case["same"] and grade.score != 0.0:
            count["accepted"].append({**case, "score": grade.score})
    return counts


def itself(grader: MathGrader, sets: dict[str, list[str]]) -> dict[str, Any]:
    """References that do not accept themselves, by set and frame."""
    found: dict[str, Any] = {}
    for name, answers in sets.items():
        for frame, form in FRAMES.items():
            grades = grader.grade([(form.format(answer), answer) for answer in answers])
            found[f"{name}, {frame}"] = {
                "n": len(answers),
                "refused": [a for a, grade in zip(answers, grades, strict=True) if grade.score != 1.0],
            }
    return found


def near_misses(pool: Sequence[str], rng: random.Random) -> dict[str, list[tuple[str, str]]]:
    """`(reference, reply)` pairs by kind, `NUM_OF_A_KIND` of each where the sets allow that many."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for kind, mutate in NEAR_MISSES.items():
        seen: set[tuple[str, str]] = set()
        order = list(pool)
        rng.shuffle(order)
        for reference in order * 3:
            for gold, answer in mutate(reference, rng):
                reply = framed(answer, rng)
                if len(found[kind]) < NUM_OF_A_KIND and (gold, reply) not in seen:
                    seen.add((gold, reply))
                    found[kind].append((gold, reply))
    return found


def rewritings(pool: Sequence[str], rng: random.Random) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], str] = {}
    order = list(pool)
    rng.shuffle(order)
    for reference in order * 3:
        for gold, answer in rewritten(reference, rng):
            if len(found) < NUM_REWRITINGS:
                found.setdefault((gold, answer), framed(answer, rng))
    return [(gold, reply) for (gold, _), reply in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    begun = time.monotonic()
    rng = random.Random(chosen.seed)
    sets = references(chosen.data)
    pool = [answer for answers in sets.values() for answer in sorted(set(answers))]  # sums do not outnumber the rest
    with MathGrader(num_workers=2, timeout_s=10) as grader:
        cases, edge_cases, own = math_verify(grader), edges(grader), itself(grader, sets)
        missed, kinds = {}, near_misses(pool, rng)
        for kind, pairs in kinds.items():
            grades = grader.grade([(reply, gold) for gold, reply in pairs])
            missed[kind] = {
                "n": len(pairs), "scores": Counter(str(grade.score) for grade in grades),
                "accepted": [pair for pair, grade in zip(pairs, grades, strict=True) if grade.score == 1.0],
            }  # fmt: skip
        pairs = rewritings(pool, rng)
        grades = grader.grade([(reply, gold) for gold, reply in pairs])
        refused = [(*pair, grade.reason) for pair, grade in zip(pairs, grades, strict=True) if grade.score != 1.0]
    result = {
        "command": f"python benchmarks/grading.py --seed {chosen.seed}",
        "machine": machine_now(),
        "seconds": round(time.monotonic() - begun, 1),
        "math_verify": cases,
        "edges": edge_cases,
        "itself": own,
        "near_misses": missed,
        "rewritings": {"n": len(pairs), "refused": refused},
    }
    write("grading", result, report(result))


def report(result: dict[str, Any]) -> str:
    cases, own, missed, same = (result[name] for name in ("math_verify", "itself", "near_misses", "rewritings"))
    edge_cases = result["edges"]
    machine = result["machine"]
    return "\n".join([
        "# What the answer grader accepts and refuses", "",
        f"`{result['command']}` at commit {machine['commit']}, {result['seconds']} s on {machine['processor']}.", "",
        *_of_cases(cases), *_of_edges(edge_cases), *_of_references(own), *_of_near_misses(missed),
        *_of_rewritings(same),
    ]) + "\n"  # fmt: skip


def _of_cases(cases: dict[str, Any]) -> list[str]:
    wrong, refused = cases["wrongly_accepted"], cases["refused"]
    return [
        "## Math-Verify's own test cases, predictions as they stand", "",
        f"{cases['cases']} cases, {cases['as_expected']} as expected. Accepted, and expected refused: {len(wrong)}. "
        f"Refused, and expected accepted: {len(refused)}:", "",
        "| reference | prediction (its end) | why |", "|---|---|---|",
        *(f"| {_cell(c['reference'])} | {_cell(c['reply'])} | {_cell(c['reason'], 90)} |" for c in refused), "",
    ]  # fmt: skip


def _of_edges(counts: dict[str, Any]) -> list[str]:
    totals = {kind: [count["same"], len(count["refused"]), count["near_misses"], len(count["accepted"])]
              for kind, count in counts.items()}  # fmt: skip
    totals["all"] = [sum(column) for column in zip(*totals.values(), strict=True)]
    wrong = [case for count in counts.values() for case in (*count["refused"], *count["accepted"])]
    return [
        "## At the edges", "", "| kind | right answers | refused | near misses | accepted |", "|---|---|---|---|---|",
        *(f"| {kind} | {' | '.join(map(str, row))} |" for kind, row in totals.items()), "",
        *(f"* {c['kind']}: reference {_cell(c['reference'])}, reply {_cell(c['reply'])}" for c in wrong), "",
    ]  # fmt: skip


def _of_references(own: dict[str, Any]) -> list[str]:
    rows = [f"| {name} | {each['n']} | {len(each['refused'])} |" for name, each in own.items()]
    return ["## References against themselves", "", "| set, frame | references | refused |", "|---|---|---|", *rows, ""]


def _of_near_misses(missed: dict[str, Any]) -> list[str]:
    counts = {kind: (e["n"], len(e["accepted"]), e["scores"].get("None", 0)) for kind, e in missed.items()}
    counts["all"] = tuple(map(sum, zip(*counts.values(), strict=True)))
    rows = [f"| {kind} | {n} | {accepted} | {unscored} |" for kind, (n, accepted, unscored) in counts.items()]
    wrong = [(kind, *pair) for kind, each in missed.items() for pair in each["accepted"]]
    return [
        "## Near misses", "", "| kind | near misses | accepted | no score |", "|---|---|---|---|", *rows, "",
        *(f"* {kind}, accepted: reference {_cell(gold)}, reply {_cell(reply)}" for kind, gold, reply in wrong), "",
    ]  # fmt: skip


def _of_rewritings(same: dict[str, Any]) -> list[str]:
    refused = [f"* reference {_cell(gold)}, reply {_cell(reply)}: {reason}" for gold, reply, reason in same["refused"]]
    return ["## Rewritings", "", f"{same['n']} rewritings, {len(refused)} refused.", "", *refused]


def _cell(text: str, width: int = 60) -> str:
    shown = " ".join(text[-width:].split()).replace("|", "\\|").replace("`", "'")
    return f"`{shown}`"


if __name__ == "__main__":
    main()
