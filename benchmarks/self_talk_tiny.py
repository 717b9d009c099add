"""Self-talk on the tiny world, beside the actor alone, the same right answers without the talk, and whole-response
self-correction of the same outputs: five seeds, as it came out.

    .venv/bin/python benchmarks/self_talk_tiny.py             # runs or goes on, then writes the results
    .venv/bin/python benchmarks/self_talk_tiny.py --collect   # only reads what is there

One run a seed has all of it: chains are built once, and every form is learnt from them, with as many texts, of the same
questions, in as many updates. By whom the comments are, is a part each: `critic` (the tiny model after its warm start)
and `oracle` (a rule that knows the solution: what perfect comments would be worth). Settings after the command go to
every run. Runs that were stopped go on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from study import arguments, cell, machine, minus, rows_of, train, write

PARTS: Mapping[str, tuple[str, ...]] = {"critic": (), "oracle": ("num_steps=12",)}
"""By whom the comments are; the oracle's chains come right more often, so that fewer of them give as many texts."""
TITLES = {
    "before": "The actor alone", "plain": "The same right answers, plain", "response": "Whole-response self-correction",
    "self_talk": "Self-talk",
}  # fmt: skip
Row = Mapping[str, float | None]


def run_all(root: Path, seeds: Sequence[int], extra: Sequence[str]) -> None:
    """Two processes at a time."""

    def one(which: tuple[int, str]) -> None:
        seed, part = which
        settings = [f"seed={seed}", "num_threads=1", f"feedback={part}", *PARTS[part], *extra]
        train("self_talk", settings, root / f"seed{seed}" / part)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, [(seed, part) for part in PARTS for seed in seeds]))


def built(run: Path) -> Mapping[str, Any]:
    """What became of a run's chains, and how many texts were learnt."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shares = [row for row in rows if row["phase"] == "build"]
    talks = [json.loads(line) for line in (run / "self_talk.jsonl").read_text().splitlines()]
    chains = [talk for talk in talks if talk["form"] == "step"]
    steps = [row["step"] for row in rows if row["phase"] == "learn_self_talk"]
    return {
        **{
            name: sum(row[f"talk/{name}"] for row in shares) / len(shares)
            for name in ("repaired", "clean", "missed", "limit", "unread")
        },
        "texts": len(chains), "with_repair": sum(talk["rounds"] > 0 for talk in chains), "updates": max(steps),
    }  # fmt: skip


def collect(root: Path, seeds: Sequence[int], command: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in PARTS:
        tables = [rows_of(root / f"seed{seed}" / part) for seed in seeds]
        found[part] = {
            "rows": {name: [table[name] for table in tables] for name in TITLES},
            "built": [built(root / f"seed{seed}" / part) for seed in seeds],
        }
    about = machine(root / f"seed{seeds[0]}" / next(iter(PARTS)))
    return {"command": command, "seeds": list(seeds), "machine": about, "parts": found}


# --- text -------------------------------------------------------------------------------------------------------------


def text(result: Mapping[str, Any]) -> str:
    parts, count = result["parts"], len(result["seeds"])
    n = next(iter(parts.values()))["rows"]["before"][0]["n"]
    lines = [
        "# Self-talk on the tiny world", "",
        f"{count} seeds ({', '.join(map(str, result['seeds']))}), {n:.0f} test problems, greedy; mean ± half width of "
        "a 95 % t interval over seeds, in percent. Mends: replies that write something anew. i→c and c→i: of all "
        "replies, those whose first attempt was wrong and whose end is right, and the other way round.",
    ]  # fmt: skip
    for part, found in parts.items():
        lines += ["", f"## Comments by the {part}", "", *built_lines(found["built"]), ""]
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
    lines += ["", f"`{result['command']}`. Machine: {json.dumps(result['machine'])}.", ""]
    return "\n".join(lines)


def built_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    shares = ", ".join(
        f"{name} {100 * sum(each[name] for each in found) / len(found):.0f} %"
        for name in ("repaired", "clean", "missed", "limit", "unread")
    )
    texts = ", ".join(f"{each['texts']} ({each['with_repair']} with a repair)" for each in found)
    updates = ", ".join(str(each["updates"]) for each in found)
    return [f"Of the chains: {shares}. Texts learnt, by seed: {texts}; updates of each form: {updates}."]


def main() -> None:
    chosen = arguments(__doc__, "self_talk_tiny", seeds=range(400, 405))
    if not chosen.collect:
        run_all(chosen.root, chosen.seeds, chosen.settings)
    result = collect(chosen.root, chosen.seeds, chosen.command)
    write(chosen.name, result, text(result))


if __name__ == "__main__":
    main()
