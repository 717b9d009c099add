"""Part `talk` of the study of critique-in-the-loop: self-talk beside the actor alone, the same right answers without
the talk, and whole-response self-correction of the same outputs.

One run a seed has all of it: chains are built once, and every form is learnt from them, with as many texts, of the same
questions, in as many updates. By whom the comments are, is a run each: `critic` (the tiny model after its warm start)
and `oracle` (a rule that knows the solution: what perfect comments would be worth).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from study import cell, minus, rows_of, train

PARTS: Mapping[str, tuple[str, ...]] = {"critic": (), "oracle": ("num_steps=12",)}
"""By whom the comments are; the oracle's chains come right more often, so that fewer of them give as many texts."""
TITLES = {
    "before": "The actor alone", "plain": "The same right answers, plain", "response": "Whole-response self-correction",
    "self_talk": "Self-talk",
}  # fmt: skip
Row = Mapping[str, float | None]


def run_seed(place: Path, seed: int, extra: Sequence[str]) -> None:
    for part, settings in PARTS.items():
        asked = [f"seed={seed}", "num_threads=1", f"feedback={part}", *settings, *extra]
        train("self_talk", asked, place / f"talk_{part}")


def built(run: Path) -> Mapping[str, Any]:
    """What became of a run's chains, and how many texts were learnt."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shares = [row for row in rows if row["phase"] == "build"]
    self_corrections = [json.loads(line) for line in (run / "self_talk.jsonl").read_text().splitlines()]
    chains = [talk for talk in self_corrections if talk["form"] == "step"]
    steps = [row["step"] for row in rows if row["phase"] == "learn_self_talk"]
    return {
        **{
            name: sum(row[f"talk/{name}"] for row in shares) / len(shares)
            for name in ("repaired", "clean", "missed", "limit", "unread")
        },
        "texts": len(chains), "with_repair": sum(talk["rounds"] > 0 for talk in chains), "updates": max(steps),
    }  # fmt: skip


def collect(places: Sequence[Path]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in PARTS:
        tables = [rows_of(place / f"talk_{part}") for place in places]
        found[part] = {
            "rows": {name: [table[name] for table in tables] for name in TITLES},
            "built": [built(place / f"talk_{part}") for place in places],
        }
    return found


# --- text -------------------------------------------------------------------------------------------------------------


def text(parts: Mapping[str, Any]) -> list[str]:
    """Its lines of the results."""
    lines = [
        "Mends: replies that write something anew. i→c and c→i: of all replies, those whose first attempt was wrong "
        "and whose end is right, and the other way round.",
    ]
    for part, found in parts.items():
        lines += ["", f"### Comments by the {part}", "", *built_lines(found["built"]), ""]
        lines += [
            "| learnt | right | self-talk's lead, paired | first attempts right | mends | i→c | c→i | tokens | cut |"
        ]
        lines += ["|---" * 9 + "|"]
        ours = [row["acc"] for row in found["rows"]["self_talk"]]
        for name, title in TITLES.items():
            rows: Sequence[Row] = found["rows"][name]
            right = [row["acc"] for row in rows]
            cells = [cell(right), cell(minus(ours, right), sign=True)]
            cells += [cell([row[key] for row in rows]) for key in ("first", "repaired", "helped", "harmed")]
            length = sum(row["length"] or 0.0 for row in rows) / len(rows)
            cells += [f"{length:.0f}", cell([row["truncated"] for row in rows])]
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def built_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    shares = ", ".join(
        f"{name} {100 * sum(each[name] for each in found) / len(found):.0f} %"
        for name in ("repaired", "clean", "missed", "limit", "unread")
    )
    texts = ", ".join(f"{each['texts']} ({each['with_repair']} with a repair)" for each in found)
    updates = ", ".join(str(each["updates"]) for each in found)
    return [f"Of the chains: {shares}. Texts learnt, by seed: {texts}; updates of each form: {updates}."]
