"""A run folder of one policy as the trainer leaves it, made in no time: groups of replies, and an update's measures."""

import itertools
import json
import math
import random

from support.report_run import write_lines
from whet.methods.report_specs import load_report
from whet.report.spec import to_json
from whet.tasks.chains import Carelessness, answer_text, sample_chains, work_out

SOLVE = load_report("solve")

STEPS = {"min_steps": 3, "max_steps": 6}
CONFIG = """method: policy_gradient
advantage: grpo
proximal: false
loss:
  kind: clip
  bounds: {kind: bapo, target: 0.4, target_as: share}
off_policy: {kind: replay, staleness: 2}
probe_every: 4
"""


def reply(chain, careless, rng, *, phase, step, split, label):
    claimed = work_out(chain, Carelessness(share=careless, low=0.3, high=0.8, slip=0.1 * careless), rng)
    right = claimed[-1] == chain.values[-1]
    text = answer_text(chain, claimed)
    cut = not right and rng.random() < 0.1
    return {
        "phase": phase,
        "step": step,
        "split": split,
        "policy": label,
        "task": chain.text,
        "question": chain.text,
        "reference": str(chain.values[-1]),
        "answer": text[: len(text) // 2] if cut else text,
        "answer_score": float(right),
        "stop": {"answer": "length" if cut else "eos"},
        "outcome": "ok",
    }


def update_metrics(step, rng):
    """What the updates of a step log: two a step, and every fourth update probed."""
    wide = step % 3 == 0
    noise = rng.random()
    return {
        "balance/share_raw": 0.44 + 0.04 * noise,
        "balance/share": 0.42 + 0.04 * noise,
        "balance/share_gradient": 0.41 + 0.04 * noise,
        "balance/tokens_positive": 0.5,
        "bounds/high": 2.1 if wide else 1.2,
        "bounds/high_min": 1.2,
        "bounds/high_max": 3.0 if wide else 1.2,
        "bounds/low": 0.6,
        "bounds/low_min": 0.6,
        "bounds/low_max": 0.6,
        "bounds/moves": 18.0 if wide else 0.0,
        "bounds/settled": 0.5 if wide else 0.0,
        "bounds/exhausted": 0.0,
        "bounds/in_reach": 1.0,
        "clip/low": 0.02 * noise,
        "clip/high": 0.01 * noise,
        "clip/let_in_positive": 0.01 if wide else 0.0,
        "clip/let_in_negative": 0.01 * noise,
        "clip/let_in_negative_probability": 0.6,
        "clip/shut_out": 0.0,
        **({"clip/let_in_positive_probability": 0.3} if wide else {}),
        "ratio/q01": 0.3,
        "ratio/q10": 0.9,
        "ratio/q50": 1.0,
        "ratio/q90": 1.1,
        "ratio/q99": 1.7,
        "ratio/effective_samples": 0.97,
        "staleness/mean": 4.5,
        "staleness/max": 5.0,
        "staleness/share": 1.0,
        "kl/sampler": 0.02 + 0.01 * noise,
        "kl/old": 0.03,
        "entropy": 0.3 * math.exp(-step / 20),
        **(probe(step) if step % 2 == 0 else {}),
        "optim/updates": 2.0,
        "optim/grad_norm": 0.3 + 0.2 * noise,
        "optim/grad_norm_min": 0.3,
        "optim/grad_norm_max": 0.3 + 0.4 * noise,
    }


def probe(step):
    return {
        "entropy/predicted": 0.02 - 0.001 * step,
        "entropy/measured": -0.002,
        "entropy/falls": 1.0,
        "entropy/rule_agrees": float(step > 6),
    }


def measured(rows, num_samples=4):
    acc = sum(row["answer_score"] for row in rows) / len(rows)
    cut = sum(row["stop"]["answer"] == "length" for row in rows) / len(rows)
    found = {"acc": acc, "average": 0.9 * acc, "pass": min(1.0, 1.2 * acc), "majority": acc, "truncated": cut}
    return {**found, "length": 29.6, "n": float(len(rows)), "k": float(num_samples), "grader_errors": 0.0}


def fake_solve_run(folder, *, length=30, finished=True, group_size=8):
    """BAPO with replay: a test before, training that gets better, and a test of the best and of the last weights."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    test = list(itertools.islice(sample_chains("test", 0, **STEPS), 40))
    chains = sample_chains("train", 0, **STEPS)
    metrics, rows, train = [], {}, []

    def try_out(label, careless, phase, step):
        found = [reply(c, careless, rng, phase=phase, step=step, split="test", label=label) for c in test]
        rows[label] = measured(found)
        metrics.append({"phase": phase, "step": step, **{f"test/{k}": v for k, v in rows[label].items()}})
        return found

    write_lines(folder / "traces" / "before.jsonl", try_out("before", 0.6, "before", 1))
    metrics.append({"phase": "train", "step": 0, "validation/acc": 0.4, "validation/grader_errors": 0.0})
    for step in range(1, length + 1):
        careless = 0.6 * math.exp(-2 * step / length)
        where = {"phase": "train", "step": step, "split": "train", "label": "training"}
        batch = []
        for chain in itertools.islice(chains, 2):
            group = [reply(chain, careless, rng, **where) for _ in range(group_size)]
            mean = sum(one["answer_score"] for one in group) / group_size
            batch += [one | {"reward": one["answer_score"], "credit": one["answer_score"] - mean} for one in group]
        train += batch
        right = sum(one["answer_score"] for one in batch) / len(batch)
        row = {"reward/mean": right, "reward/correct": right, "group/no_signal": 0.25, "length/mean": 30.0}
        row |= {"length/good": 29.0, "length/bad": 33.0, "length/truncated": 0.01, "grader/errors": 0.0}
        row |= {"entropy/sampled": 0.3 * math.exp(-step / 20), "buffer/batches": min(step, 2), "time/rollout": 1.0}
        row |= update_metrics(step, rng) if step > 2 else {}
        row |= {"validation/acc": 0.4 + 0.5 * step / length} if step % 5 == 0 else {}
        metrics.append({"phase": "train", "step": step, **row})
    write_lines(folder / "traces" / "train.jsonl", train)
    event = {"time": "2026-03-01T10:00:00+00:00", "level": "info", "message": "train step 25: the best so far"}
    best = {"event": "best", "phase": "train", "step": 25, "policy": "policy_best"}
    write_lines(folder / "events.jsonl", [event | best | {"step": 5}, event | best])
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "report_spec.json").write_text(to_json(SOLVE))
    (folder / "env.json").write_text(json.dumps({"whet": "0.1.0", "command": "whet train bapo --out runs/bapo"}))
    if finished:
        after = try_out("best", 0.1, "after", 1) + try_out("last", 0.2, "after", 2)
        write_lines(folder / "traces" / "after.jsonl", after)
        (folder / "summary.json").write_text(json.dumps({"rows": rows, "seed": 0, "seconds": 20.3}))
    write_lines(folder / "metrics.jsonl", metrics)
    return folder
