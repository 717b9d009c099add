"""RLTF-SD: the turns' returns, the retargeted rows, and that their ratio starts at 1."""

from __future__ import annotations

import json

import numpy as np
import pytest

from support.sessions import STEPS, finished, session_of
from whet.evaluation.protocol import is_right
from whet.methods.self_correct.rltf_sd import floored, turns
from whet.methods.solvers import solve_rollout
from whet.types import Episode, Grade, Segment, Task, tail_row

ORACLE = (*STEPS, "feedback=oracle", "schedule.distil=null", "distil=0.1", "learning.minibatch_rows=1000")


def segment(role, score, parent=None):
    return Segment(
        role=role, policy="policy", added=(1,), tokens=(2,), logprobs=(-0.1,), versions=((0, 1),), text="",
        parent=parent, stop_reason="eos", temperature=1.0, seed=0, group={"task": "t"}, grade=Grade(score=score),
        rewards={"outcome": score, "total": score},
    )  # fmt: skip


def test_the_first_turns_return_holds_a_discounted_second():
    critic = segment("critic", 0.0, 0)
    mended = Episode(task=Task(id="t", prompt=""), segments=(segment("actor", 0.0), critic, segment("actor", 1.0, 1)))
    right = Episode(task=Task(id="t", prompt=""), segments=(segment("actor", 1.0),))
    first, second = turns([mended, right], 0.1)
    assert [scored.reward for scored in first[0]] == [0.1, 1.0]
    assert [scored.reward for scored in second[0]] == [1.0]


def test_only_wrong_answers_get_feedback_and_what_came_of_it_is_retargeted():
    method = session_of("rltf_sd", *ORACLE).algorithm
    batch = method._collect(1)
    plain = {solve_rollout(method, "policy").begin(task, 0).context for task in method.run.next_tasks(1, 6)}
    distilled = batch.rows[-int(batch.metrics["rows/distilled"]) :]
    assert distilled, "the oracle's feedback led to nothing"
    for row in distilled:
        whole = tuple(row.tokens.tolist())
        [context] = [each for each in plain if whole[: len(each)] == each]
        assert row.trains.min() >= len(context)
        assert row.logprobs is not None
    asked = sum(not is_right(e.segments[0]) for group in method.run.runtime.by_task(
        method._rounds(method.config, 1), method.run.next_tasks(1, 6), num_samples=4) for e in group)  # fmt: skip
    assert batch.metrics["rows/distilled"] == asked


def test_the_ratio_is_1_at_the_first_update(tmp_path):
    finished("rltf_sd", *ORACLE, folder=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["phase"] == "train" and row["step"]]
    for row in steps:  # one update a step: always the first on its rows
        assert row["ratio/mean"] == pytest.approx(1, abs=1e-5)
        assert row["ratio/max"] == pytest.approx(1, abs=1e-4)
        assert row["rows/distilled"] > 0


def test_tokens_below_the_floor_have_advantage_0_and_stay_in_the_sum():
    row = tail_row("policy", (1, 2), (3, 4, 5), 0.5)
    held = floored(row, np.array([-0.1, -9.0, -4.9], np.float32), -5.0)
    assert held.trains.tolist() == [2, 3, 4]
    assert held.credit.tolist() == [0.5, 0.0, 0.5]
    assert held.logprobs.tolist() == pytest.approx([-0.1, -9.0, -4.9])


def test_the_loss_is_a_sum_over_tokens_whatever_the_lengths():
    """Published: importance sampling, summed. A constant beside it is the same for every token of an update."""
    method = session_of("rltf_sd", *ORACLE).algorithm
    [term] = method._updates(1)["policy"].terms
    assert term.aggregation == "constant"
    assert term.constant_length == method.config.sampling.max_new_tokens


def test_nothing_is_distilled_without_weight():
    batch = session_of("rltf_sd", *ORACLE, "distil=0").algorithm._collect(1)
    assert batch.metrics["rows/distilled"] == 0
