"""RefCritic: the mixture of its two rewards, and when the second one begins."""

from __future__ import annotations

import pytest

from support.sessions import STEPS, WARM, finished, session_of
from whet.credit import mixture, refine_outcome, rewarded, verdict_match
from whet.methods.critics import sample_critiques


@pytest.mark.parametrize(
    ("verdict", "refine", "lam", "reward"),
    [
        (1.0, 0.75, 1.0, 0.875),  # a right verdict, 3 of 4 refinements right: (1 + 0.75) / 2
        (1.0, 0.75, 0.0, 1.0),  # lambda 0: the verdict alone
        (0.0, 0.75, 0.0, 0.0),
        (0.0, 1.0, 3.0, 0.75),
    ],
)
def test_the_reward_by_hand(verdict, refine, lam, reward):
    assert mixture({"verdict": 1.0, "refine": lam})({"verdict": verdict, "refine": refine}) == reward


def test_lambda_is_0_first_and_1_later():
    method = session_of("ref_critic", "num_steps=60").algorithm
    assert [method.at(step).refine_weight for step in (1, 40, 41, 60)] == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("num_steps", "setting"), [(20, "schedule.refine_weight.at=[11]"), (1, "schedule.refine_weight=null")]
)
def test_a_run_that_ends_before_lambda_turns_is_told_how_to_turn_it(num_steps, setting):
    warned = session_of("ref_critic", f"num_steps={num_steps}").algorithm.run.warnings
    assert f"set {setting}" in " ".join(warned)
    mended = session_of("ref_critic", f"num_steps={num_steps}", setting).algorithm
    assert [mended.at(step).refine_weight for step in (10, 11)] == ([0.0, 1.0] if num_steps > 1 else [1.0, 1.0])
    assert "refine_weight" not in " ".join(mended.run.warnings)


def test_with_lambda_0_the_reward_is_the_verdict_and_nothing_is_refined():
    """The verdict family's base case (Critique-RL's stage I): same episodes, same credit."""
    session = session_of("ref_critic", *STEPS, *WARM, "schedule.refine_weight=null", "refine_weight=0")
    method = session.algorithm
    method.keep_sft()
    batch = method._collect(1)
    episodes = sample_critiques(method, ("train", 1), method.run.next_tasks(1, 6), num_critiques=4, refine=False)
    scored = rewarded(episodes, "critic", {"verdict": verdict_match()})
    verdicts = [e.segments[i].rewards["total"] for e in scored for i in e.indices("critic")]
    assert batch.metrics["reward/mean"] == pytest.approx(sum(verdicts) / len(verdicts))
    assert batch.metrics["critique/acc_refine"] is None
    assert len(batch.rows) == len(verdicts) == 24


def test_several_refinements_are_played_and_their_mean_is_paid():
    session = session_of("ref_critic", *STEPS, *WARM)
    method = session.algorithm
    episodes = sample_critiques(method, ("train", 1), method.run.next_tasks(1, 6), num_critiques=2, num_refinements=4)
    for episode in rewarded(episodes, "critic", {"refine": refine_outcome()}):
        for index in episode.indices("critic"):
            after = [episode.segments[i] for i in episode.children(index, "actor")]
            assert len({segment.seed for segment in after}) == 4
            right = sum(segment.grade.score == 1.0 for segment in after)
            assert episode.segments[index].rewards["total"] == right / 4


def test_a_run_pays_refinements_from_its_step_on(tmp_path):
    finished("ref_critic", *STEPS, *WARM, "schedule.refine_weight.at=[2]", folder=tmp_path)
    import json

    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = {row["step"]: row for row in rows if row["phase"] == "train" and row["step"]}
    assert "reward/refine" not in steps[1]
    assert steps[2]["reward/mean"] == pytest.approx((steps[2]["reward/verdict"] + steps[2]["reward/refine"]) / 2)
