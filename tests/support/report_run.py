"""A run folder as the trainer leaves it, made in a second: the tiny world's texts, and critics of a given skill."""

import itertools
import json
import math
import random

from whet.evaluation.critique import Exchange, critique_metrics, no_critic_metrics
from whet.methods.report_specs import load_report
from whet.report.spec import to_json
from whet.tasks.chains import (
    Carelessness,
    Manner,
    answer_text,
    criticise,
    critique_text,
    sample_chains,
    work_out,
)
from whet.tasks.chains import (
    refine as revise,
)

CRITIQUE = load_report("critique")

ACTOR = Carelessness(share=0.35, low=0.3, high=0.8, slip=0.02)
STEPS = {"min_steps": 3, "max_steps": 6}


def exchange(chain, skill, rng, *, phase, step, split, critic, refine=True):
    """One round of the tiny world: the critic's misconceptions fade as its skill goes from 0 to 1."""
    rival = Carelessness(share=0.35 * (1 - skill), low=0.3, high=0.8, slip=0.04 * (1 - skill))
    claimed = work_out(chain, ACTOR, random.Random(f"{chain.text}/{split}"))
    found = criticise(chain, claimed, rival, Manner(thorough=skill, helpful=skill, cautious=0.1 * (1 - skill)), rng)
    critique = critique_text(chain, found)
    parsed = rng.random() > 0.06 * (1 - skill)
    critique = critique if parsed else critique[: len(critique) // 2]
    refined = revise(chain, found, ACTOR, 0.2, rng)
    right, mended = claimed[-1] == chain.values[-1], refined[-1] == chain.values[-1]
    verdict = ("correct" if found.verdict else "wrong") if parsed else None
    direct = float(verdict == ("correct" if right else "wrong"))
    stop = {"answer": "eos", "critique": "eos" if parsed else "length"} | ({"refinement": "eos"} if refine else {})
    terms = {"direct": 0.2 * direct, "indirect": float(mended)} if refine else {"direct": 2 * direct - 1}
    return {
        "phase": phase,
        "step": step,
        "split": split,
        "critic": critic,
        "task": f"chains/{split}/{chain.text}",
        "question": chain.text,
        "reference": str(chain.values[-1]),
        "answer": answer_text(chain, claimed),
        "answer_score": int(right),
        "critique": critique,
        "verdict": verdict,
        "refinement": answer_text(chain, refined) if refine else None,
        "refinement_score": int(mended) if refine else None,
        "reward": sum(terms.values()) if split == "train" else None,
        "rewards": terms if split == "train" else {},
        "credit": None,
        "stop": stop,
        "outcome": "ok",
    }


def metrics_of(rows):
    refined = {None: None, 0: False, 1: True}
    return critique_metrics(
        [Exchange(e["answer_score"] == 1, refined[e["refinement_score"]], e["verdict"]) for e in rows]
    )


def stage_rows(phase, length, skills, chains, rng):
    """The metric rows and traces of one stage, four critiques of each of eight answers a step."""
    metrics, traces = [], []
    held_out = list(itertools.islice(sample_chains("validation", 0, **STEPS), 60))
    for step in range(1, length + 1):
        skill = skills[0] + (skills[1] - skills[0]) * (1 - math.exp(-3 * step / length))
        where = {"phase": phase, "step": step, "critic": phase}
        batch = []
        for chain in itertools.islice(chains, 8):
            group = [exchange(chain, skill, rng, split="train", refine=phase == "stage2", **where) for _ in range(4)]
            for one in group:
                one["credit"] = one["reward"] - (sum(e["reward"] for e in group) - one["reward"]) / 3
            batch += group
        equal = sum(len({e["reward"] for e in batch[i : i + 4]}) == 1 for i in range(0, len(batch), 4)) / 8
        row = {f"critique/{key}": value for key, value in metrics_of(batch).items() if not key.startswith("n")}
        row |= {"reward/mean": sum(e["reward"] for e in batch) / len(batch), "group/no_signal": equal}
        row |= {f"reward/{term}": sum(e["rewards"][term] for e in batch) / len(batch) for term in batch[0]["rewards"]}
        row |= {"kl/ref": 0.06 * step / length * rng.uniform(0.8, 1.2), "kl/sampler": 1e-7 * rng.random()}
        row |= {"entropy": 0.3 * math.exp(-step / length) + 0.02 * rng.random(), "clip/low": 0.01 * rng.random()}
        row |= {"clip/high": 0.02 * rng.random(), "optim/grad_norm": 0.4 + 0.3 * rng.random()}
        row |= {"length/mean": 38 + 3 * rng.random(), "length/truncated": row["critique/unparsed"]}
        row |= {"time/rollout": 1.1 + 0.2 * rng.random(), "time/update": 0.6 + 0.1 * rng.random(), "time/total": 1.9}
        metrics.append({"phase": phase, "step": step, **row, "novel/metric": step, "novel/null": None})
        traces += batch
        if step % max(1, length // 8) == 0:
            checked = [exchange(chain, skill, rng, split="validation", **where) for chain in held_out]
            found = {f"validation/{key}": value for key, value in metrics_of(checked).items()}
            metrics.append({"phase": phase, "step": step, **found})
            traces += checked
    return metrics, traces


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def fake_run(folder, *, length=16, num_tests=60, finished=True):
    """A whole run: warm starts, both stages, and (if finished) a test of three critics on the same tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    chains = sample_chains("train", 0, **STEPS)
    metrics = [
        {"phase": phase, "step": step, "loss/nll": floor + 1.6 * math.exp(-step / 12) + 0.03 * rng.random()}
        for phase, floor in (("sft_actor", 0.21), ("sft_critic", 0.13))
        for step in range(1, 61)
    ]
    for phase, skills in (("stage1", (0.15, 0.7)), ("stage2", (0.7, 0.85))):
        rows, traces = stage_rows(phase, length, skills, chains, rng)
        metrics += rows
        write_lines(folder / "traces" / f"{phase}.jsonl", traces)
    write_lines(folder / "metrics.jsonl", metrics)
    events = [("info", "run_started", "a run of critique_rl"), ("warning", "slow_grader", "graded one answer in 2.1 s")]
    keys = ("time", "level", "event", "message")
    times = ("2026-03-01T10:00:00+00:00", "2026-03-01T10:04:00+00:00")
    rows = [dict(zip(keys, (time, *event), strict=True)) for time, event in zip(times, events, strict=True)]
    best = {"time": times[0], "level": "info", "event": "best", "message": "the best so far"}
    rows += [best | {"phase": phase, "step": step} for phase, step in (("stage1", 4), ("stage1", 12), ("stage2", 16))]
    write_lines(folder / "events.jsonl", rows)
    (folder / "report_spec.json").write_text(to_json(CRITIQUE))
    (folder / "config.yaml").write_text("method: critique_rl\nseed: 0\nstage1:\n  steps: 16\n  kl_coef: 0.01\n")
    env = {"whet": "0.1.0", "python": "3.11.2", "torch": "2.6.0", "device": "cpu", "num_threads": 2, "seed": 0}
    env |= {"commit": "3f9c2d81", "command": "whet train critique_rl --out runs/demo"}
    (folder / "env.json").write_text(json.dumps(env))
    if finished:
        try_critics(folder, list(itertools.islice(sample_chains("test", 0, **STEPS), num_tests)), rng)
    return folder


def try_critics(folder, chains, rng):
    rows, traces = {}, []
    for critic, skill in (("sft_critic", 0.15), ("stage1", 0.7), ("stage2", 0.85)):
        found = [exchange(c, skill, rng, phase="test", step=0, split="test", critic=critic) for c in chains]
        rows[critic] = metrics_of(found)
        traces += found
    rows["no_critic"] = no_critic_metrics([e["answer_score"] == 1 for e in traces[: len(chains)]])
    write_lines(folder / "traces" / "test.jsonl", traces)
    (folder / "summary.json").write_text(json.dumps({"rows": rows, "seed": 0, "seconds": 754.2}))


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]
