"""A critic in the loop of a tiny agent in TextCraft, beside the same agent without it at equal tokens: five seeds.

    .venv/bin/python benchmarks/agent_critic_tiny.py             # runs or goes on, then writes the results
    .venv/bin/python benchmarks/agent_critic_tiny.py --collect   # only reads what is there

A run of `agent_critic` a seed. Then every way below plays each test item `SAMPLES` times, sampled, with the same frozen
agent of that run; what is compared is the share of items whose *last* attempt succeeds, and the tokens that agent and
critic wrote for it. Nobody who plays without a critic is told how an attempt came out, and none of several attempts is
picked by its reward:

- one attempt: the first alone; it costs the fewest tokens;
- longer: one attempt with twice as many turns, for the tokens that a critique and a second attempt would take;
- again: always a second attempt, blind, and that one counts: independent of the first, so what it adds is tokens;
- the critics of the run: a second attempt after it where the verdict does not call the first right.

Two more ways know the outcome, and show what there is to win: "told the outcome" tries again, blind, exactly after
failures; the oracle also lists what the scripted expert does. Tokens are counted where they are written, not made equal
to the last one: a way is at equal tokens with the critics where its number is theirs or above it. Seeds 300 to 304 are
for the claim, and so are the test items, without those that were looked at while the words of the critiques were
chosen. Settings after the command go to every run. Runs and measurements that were stopped go on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from study import arguments, evaluated, machine, train, write
from whet.envs import ENVIRONMENTS
from whet.evaluation.critique import mean_interval
from whet.methods.environment_tasks import evenly

SAMPLES, TURNS = 4, 12
"""Episodes an item, and turns of an attempt."""
LOOKED_AT = 24
"""Test items of the trials on seed 7, from all parts of the list."""
BLIND = ("again=always",)
WAYS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "one": ("One attempt", "no_critic", ()),
    "longer": ("One attempt, twice as many turns", "no_critic", (f"evaluation.max_turns={2 * TURNS}",)),
    "again": ("A second attempt, blind", "empty", BLIND),
    "sft": ("SFT critic", "critic_sft", ()),
    "stage1": ("Stage I", "critic_stage1", ()),
    "stage2": ("Stage II", "critic_stage2", ()),
    "judge": ("Told the outcome, blind", "judge", ()),
    "oracle": ("Oracle critic", "oracle", ()),
}
"""Title, who critiques, settings other than the run's."""
OURS = "stage2"
COLUMNS = {
    "acc_refine": "success", "tokens": "tokens", "turns": "turns", "acc": "first attempt", "i2c": "i→c", "c2i": "c→i",
    "acc_dis": "Acc@Dis", "acc_dis_correct": "on successes", "acc_dis_incorrect": "on failures", "unparsed": "unparsed",
}  # fmt: skip
POINTS = ("tokens", "turns")
Row = Mapping[str, float | None]


def run_seed(root: Path, seed: int, extra: Sequence[str]) -> None:
    own = (f"seed={seed}", "num_threads=1", f"max_turns={TURNS}", f"evaluation.max_turns={TURNS}")
    data = ("data.env=textcraft", f"data.test_items=[{clean_items(root / 'test_items.json')}]")
    train("agent_critic", [*own, *data, *extra], root / f"seed{seed}")
    measure(root / f"seed{seed}")


def clean_items(file: Path) -> Path:
    """A list of TextCraft's test items that nobody looked at, written once."""
    if not file.exists():
        test = ENVIRONMENTS.get("textcraft").splits()["test"]
        seen = set(evenly(test, LOOKED_AT))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([{"item_id": f"textcraft_{item}"} for item in test if item not in seen]))
    return file.resolve()


def measure(run: Path) -> dict[str, Row]:
    """What `whet eval` says of a seed's run, by way; made once, and read after that."""
    return {
        name: evaluated(run, critic, samples=SAMPLES, changed=changed)["metrics"]
        for name, (_, critic, changed) in WAYS.items()
    }


def collect(root: Path, seeds: Sequence[int], command: str) -> dict[str, Any]:
    found = [measure(root / f"seed{seed}") for seed in seeds]
    return {
        "command": command, "seeds": list(seeds), "machine": machine(root / f"seed{seeds[0]}"),
        "rows": {name: [each[name] for each in found] for name in WAYS},
    }  # fmt: skip


# --- text -------------------------------------------------------------------------------------------------------------


def text(result: Mapping[str, Any]) -> str:
    rows, seeds = result["rows"], result["seeds"]
    n = rows["one"][0]["n"] / SAMPLES
    lines = [
        "# A critic in the loop of a tiny agent, TextCraft", "",
        f"{len(seeds)} seeds ({', '.join(map(str, seeds))}), {n:.0f} test items (none of the {LOOKED_AT} looked "
        f"at before), {SAMPLES} sampled episodes of each; "
        "mean ± half width of a 95 % t interval over seeds, percent; tokens (agent and critic) and turns of an "
        f"episode. Success: the last attempt's. The last column: {WAYS[OURS][0]} minus the row, paired.", "",
        f"| way | {' | '.join(COLUMNS.values())} | lead of {WAYS[OURS][0]} |", "|---" * (len(COLUMNS) + 2) + "|",
    ]  # fmt: skip
    for name, (title, _, _) in WAYS.items():
        cells = [cell([row[key] for row in rows[name]], key) for key in COLUMNS]
        lead = [ours["acc_refine"] - row["acc_refine"] for ours, row in zip(rows[OURS], rows[name], strict=True)]
        lines.append(f"| {title} | {' | '.join(cells)} | {cell(lead, sign=True)} |")
    return "\n".join([*lines, "", f"`{result['command']}`. Machine: {json.dumps(result['machine'])}.", ""])


def cell(values: Sequence[float | None], key: str = "", *, sign: bool = False) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean, half = mean_interval(known)
    scale = 1 if key in POINTS else 100
    shown = f"{scale * mean:+.1f}" if sign else f"{scale * mean:.1f}"
    return shown if half is None else f"{shown} ± {scale * half:.1f}"


def main() -> None:
    chosen = arguments(__doc__, "agent_critic_tiny", seeds=range(300, 305))
    if not chosen.collect:
        with ThreadPoolExecutor(2) as pool:
            clean_items(chosen.root / "test_items.json")
            list(pool.map(lambda seed: run_seed(chosen.root, seed, chosen.settings), chosen.seeds))
    result = collect(chosen.root, chosen.seeds, chosen.command)
    write(chosen.name, result, text(result))


if __name__ == "__main__":
    main()
