"""What do failing worlds do to the training of an agent? The same runs with none and with 5 % of all steps failing.

    .venv/bin/python benchmarks/agent_faults.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/agent_faults.py --collect  # only reads what is there

The early tiny agent is trained by agent_grpo on TextCraft (`faulty_craft.py`), with default settings but for the size:
10 steps of 4 items and 8 episodes, 10 turns at most. In one arm 5 % of the steps of training episodes crash, hang past
the time-out or answer garbage, a third each, and 5 % of their beginnings find no room; a failed episode is played once
more. Items of validation and test never fail, so that both arms are measured alike.

*No wrong reward*: every training episode that was learnt from is played again, action by action, in a fresh TextCraft:
it has to say the same, word for word, and pay the same. *None in a baseline*: the credit of every turn has to be what
the rewards of the group's whole episodes give, and no others. *Counted*: what the worlds wrote down of their failures
has to be what the run has counted, kind by kind. What does not hold is printed.

A long episode fails more often than a short one, and one that reaches its goal is short: what is left is a biased
sample of what the policy does, which `reward/mean` of training shows. What is asked about is the curve of validation.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import faulty_craft
from study import arguments, machine, train, write
from whet.config.environment_data import EnvironmentData
from whet.envs.formats import PARSERS
from whet.envs.textcraft.environment import TEXTCRAFT, TextCraft
from whet.evaluation.critique import mean_interval
from whet.methods.agent.rollouts import NUM_LOOKED_AT
from whet.methods.environment_tasks import load_environment_tasks
from whet.objectives import group_advantages
from whet.rollout.agent import ITEM
from whet.seeds import seed_of

NAME = "faulty_craft"
ARMS = {"none": 0.0, "failing": 0.05}
SEEDS = (11, 12, 13, 14, 15)
ITEMS, GROUP, TURNS = 4, 8, 10
DATA: dict[str, Any] = {"kind": "environments", "env": NAME, "num_validation": 48, "num_test": 24}
SETTINGS = (
    "num_threads=1", f"prompts_per_step={ITEMS}", f"group_size={GROUP}", f"max_turns={TURNS}", "validate_every=2",
    f"evaluation.max_turns={TURNS}", f"traces_per_step={ITEMS}", "faults.budget=0.8",
    "pool.timeout_s=0.7", "pool.retries=0",
    f"plugins=[{Path(faulty_craft.__file__).resolve()}]",
    *(f"data.{key}={value}" for key, value in DATA.items() if key != "kind"),
)  # fmt: skip
OF_KIND = {"crash": "env_error", "hang": "timeout", "garbage": "env_error", "no room": "env_error"}
"""As what a failure is to be counted."""
CHECKS = ("rewards", "baselines", "counts")
COUNTS = ("started", "finished", "retried", "lost")


def run(root: Path, arm: str, seed: int, steps: int, more: Sequence[str]) -> Path:
    """One run, made or read. What is not finished is begun again: a run that goes on would have failed in other places
    than the worlds have written down."""
    out = root / arm / f"seed{seed}"
    log = out.with_suffix(".faults")
    if not (out / "summary.json").exists():
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        shutil.rmtree(out, ignore_errors=True)
        tasks = load_environment_tasks(EnvironmentData(**DATA)).tasks
        measured = {task.info[ITEM] for split in ("validation", "test") for task in tasks[split]}
        looked_at = TEXTCRAFT.splits()["test"][:NUM_LOOKED_AT]  # before a run, which no tally counts
        spared = sorted(measured | set(looked_at))
        envs = json.dumps({NAME: {"share": ARMS[arm], "spared": spared, "log": str(log.resolve())}})
        train("agent_grpo", [*SETTINGS, f"seed={seed}", f"num_steps={steps}", f"data.settings={envs}", *more], out)
    return out


def of_run(out: Path, seed: int) -> dict[str, Any]:
    """Its curves, its counts, and what does not hold."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["phase"] == "train"]
    steps = [line for line in lines if line["step"]]
    traces = [json.loads(line) for line in (out / "traces" / "train.jsonl").read_text().splitlines()]
    episodes = [trace for trace in traces if trace["split"] == "train"]
    counts = {
        what: round(sum(line[f"episodes/{what}"] for line in steps))
        for what in ("started", "finished", "retried", "lost")
    }
    kinds = Counter({
        kind: round(sum(line.get(f"faults/{kind}", 0) for line in steps)) for kind in sorted(set(OF_KIND.values()))
    })  # fmt: skip
    happened = Counter(out.with_suffix(".faults").read_text().splitlines())
    return {
        "validation": {line["step"]: line["validation/success"] for line in lines if "validation/success" in line},
        "training": [line["reward/mean"] for line in steps],
        "counts": counts, "kinds": dict(kinds), "happened": dict(happened), "replayed": len(episodes),
        "wrong": {
            "rewards": list(wrong_rewards(episodes, seed)),
            "baselines": list(wrong_credit(episodes)),
            "counts": list(wrong_counts(counts, kinds, happened, len(episodes))),
        },
    }  # fmt: skip


def wrong_rewards(traces: Sequence[Mapping[str, Any]], seed: int) -> Iterator[str]:
    """Of each episode that a fresh world without failures does not answer, or pay, as was written down."""
    env, parse = TextCraft(), PARSERS.get(TEXTCRAFT.parser)
    for trace in traces:
        place = f"{trace['task']} of step {trace['step']}"
        item = int(trace["task"].removeprefix(f"{NAME}_"))
        begun = seed_of(seed, "train", trace["step"], "world", trace["task"], 0) % 2**31
        shown, scored = env.reset(item, seed=begun)[0], 0.0
        if shown != trace["question"]:
            yield f"{place} began otherwise"
        said = iter(trace["turns"])
        for turn, answer in zip(said, said, strict=True):
            parsed = parse(turn["text"])
            observation = parsed.answer(shown)
            if not parsed.problem:
                observation, reward, *_ = env.step(parsed.action)
                shown, scored = observation, scored + reward
            if observation != answer["text"]:
                yield f"{place} was answered otherwise"
        if scored != trace["reward"] or (trace["outcome"] == "ok") != env.has_ended:
            yield f"{place} was paid {trace['reward']}, and is worth {scored}"


def wrong_credit(traces: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of each group whose credit is not what the rewards of these episodes alone give."""
    groups: dict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for trace in traces:
        groups[trace["step"], trace["task"]].append(trace)
    for (step, task), group in groups.items():
        if any(trace["reward"] is None for trace in group):
            yield f"{task} of step {step} has an episode without a reward"
            continue
        rewards = torch.tensor([[trace["reward"] for trace in group]])
        credit = group_advantages(rewards, divide_by_std=True)[0].tolist() if len(group) > 1 else [0.0]
        for trace, own in zip(group, credit, strict=True):
            given = [turn.get("credit", 0.0) for turn in trace["turns"] if turn["role"] != "observation"]
            if any(abs(each - own) > 1e-4 for each in given):
                yield f"{task} of step {step}: credit {given}, and rewards give {own}"


def wrong_counts(
    counts: Mapping[str, int], kinds: Counter[str], happened: Counter[str], replayed: int
) -> Iterator[str]:
    if counts["started"] != counts["finished"] + counts["retried"] + counts["lost"]:
        yield f"{counts} do not add up"
    wanted = Counter[str]()
    for what, count in happened.items():
        wanted[OF_KIND[what]] += count
    if +kinds != wanted or kinds.total() != counts["retried"] + counts["lost"]:
        yield f"counted {dict(kinds)}, retried and lost {counts}, and there were {dict(happened)}"
    if replayed != counts["finished"]:
        yield f"{counts['finished']} episodes were played to their end, and {replayed} are in the traces"


# --- the results ------------------------------------------------------------------------------------------------------


def collected(root: Path, seeds: Sequence[int]) -> dict[str, Any]:
    found = {arm: {seed: of_run(root / arm / f"seed{seed}", seed) for seed in seeds} for arm in ARMS}
    steps = list(found["none"][seeds[0]]["validation"])
    curve = []
    for step in steps:
        values = {arm: [found[arm][seed]["validation"][step] for seed in seeds] for arm in ARMS}
        apart = [b - a for a, b in zip(values["none"], values["failing"], strict=True)]
        curve.append({"step": step, **{arm: mean_interval(each) for arm, each in values.items()},
                      "difference": mean_interval(apart)})  # fmt: skip
    return {"runs": found, "curve": curve}


def markdown(result: Mapping[str, Any]) -> str:
    runs, curve = result["runs"], result["curve"]
    wrong = [
        f"{arm}, seed {seed}: {said}"
        for arm, each in runs.items() for seed, one in each.items() for check in CHECKS for said in one["wrong"][check]
    ]  # fmt: skip
    replayed = sum(one["replayed"] for each in runs.values() for one in each.values())
    lines = [
        "# Training an agent while its worlds fail", "",
        f"`{result['command']}`; {result['machine']['processor']}, whet {result['machine']['whet']}, commit "
        f"{result['machine']['commit']}.", "",
        f"**{replayed:,} training episodes were played again without failures: {len(wrong)} remarks.** "
        + ("Every one is worth what it was paid, every credit is what the whole episodes of its group give, and every "
           "failure is counted." if not wrong else ""), "",
        *(f"- {each}" for each in wrong[:20]), "",
        "| arm | started | finished | retried | lost | failed | crash | hang | garbage | no room | counted as |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for arm, each in runs.items():
        counts, kinds, happened = (
            sum((Counter(one[name]) for one in each.values()), Counter()) for name in ("counts", "kinds", "happened")
        )
        lines.append(
            f"| {ARMS[arm]:.0%} | {' | '.join(str(counts[c]) for c in COUNTS)} "
            f"| {(counts['retried'] + counts['lost']) / counts['started']:.1%} "
            f"| {' | '.join(str(happened[kind]) for kind in OF_KIND)} "
            f"| {', '.join(f'{kind} {count}' for kind, count in (+kinds).items()) or 'none'} |"
        )
    first, later = curve[0], [point for point in curve if point["step"]]
    inside = [abs(p["failing"][0] - p["none"][0]) <= (p["none"][1] or 0.0) for p in later]
    apart = [abs(p["difference"][0]) > (p["difference"][1] or 0.0) for p in later]
    num_seeds = len(next(iter(runs.values())))
    lines += ["", f"Validation success, percent, mean and 95 % interval over {num_seeds} seeds; both begin at "
              f"{100 * first['none'][0]:.1f}. The mean with failures lies within the interval without them at "
              f"{sum(inside)} of {len(later)} points; the paired difference is off 0 at {sum(apart)}.", "",
              "| step | without | with failures | difference |", "|---|---|---|---|",
              *(f"| {p['step']} | " + " | ".join(_shown(p[each]) for each in (*ARMS, "difference")) + " |"
                for p in curve), ""]  # fmt: skip
    return "\n".join(lines)


def _shown(value: Sequence[float | None]) -> str:
    mean, half = value
    return f"{100 * (mean or 0.0):.1f}" + (f" ± {100 * half:.1f}" if half is not None else "")


def main() -> None:
    chosen = arguments(__doc__, "agent_faults", seeds=SEEDS, steps=10)
    if not chosen.collect:
        for seed in chosen.seeds:
            for arm in ARMS:
                run(chosen.root, arm, seed, chosen.steps, chosen.settings)
    result = {"command": chosen.command, "machine": machine(chosen.root / "none" / f"seed{chosen.seeds[0]}"),
              **collected(chosen.root, chosen.seeds)}  # fmt: skip
    write(chosen.name, result, markdown(result))


if __name__ == "__main__":
    main()
