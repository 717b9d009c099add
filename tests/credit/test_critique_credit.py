"""What critiques are paid, and the credit that it comes to (spec section 3.1)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from support.rounds import TASK, graded, play_rounds, round_of
from whet.config.losses import KLConfig
from whet.credit.advantages import ADVANTAGES
from whet.credit.assignment import Reference, assign_credit
from whet.credit.rewards import groups_of, rewarded
from whet.methods.stages import terms_of
from whet.methods.stages_config import Stage1, Stage2


@pytest.fixture
def episode(random_policy):
    """One wrong answer and four critiques of it, as sampled; verdicts and refinements set by hand."""
    rounds, services = round_of(random_policy)
    [[episodes]] = play_rounds(replace(rounds, num_critiques=4), [TASK], services)
    verdicts, fixed = iter(["wrong", "wrong", "correct", None]), iter([True, False, True, False])
    answer, *segments = episodes.segments
    set_by_hand = [
        replace(s, parsed={"verdict": next(verdicts)}) if s.role == "critic" else graded(s, next(fixed))
        for s in segments
    ]
    return replace(episodes, segments=(graded(answer, False), *set_by_hand))


def scored(settings, episode):
    """The critiques' group, each with its rewards."""
    [group] = groups_of(rewarded([episode], "critic", *terms_of(settings)), "critic", "answer")
    return group


def assigned(settings, groups, policy):
    advantage = ADVANTAGES.get("rloo" if settings.sequence_level else "rloo_whitened")
    kl = KLConfig(coef=settings.kl_coef, estimator="k1", where="reward")
    return assign_credit(groups, advantage, Reference(policy, kl, settings.learning.token_budget))


@pytest.mark.parametrize(
    ("settings", "totals"),
    [
        (Stage1(), [1, 1, -1, -1]),
        (Stage1(scale="unit"), [1, 1, 0, 0]),
        (Stage2(), [1.2, 0.2, -1, -1]),
        (Stage2(combine="additive"), [1.2, 0.2, 1, 0]),
        (Stage2(discrimination=False), [1, 0, 1, 0]),
    ],
)
def test_pay_by_stage(settings, totals, episode):
    group = scored(settings, episode)
    assert [each.reward for each in group] == totals
    terms = {"direct"} if isinstance(settings, Stage1) else {"indirect", "judged_right"}
    assert all(each.segment.rewards.keys() == terms | {"total"} for each in group)


@pytest.mark.parametrize("sequence_level", [False, True])
def test_credit_lands_on_sampled_tokens_and_follows_the_baseline(episode, random_policy, sequence_level):
    settings = Stage1(kl_coef=0.0, sequence_level=sequence_level)
    group = scored(settings, episode)
    found = assigned(settings, [group], random_policy)
    every = []
    for row, each in zip(found.rows, group, strict=True):
        before = len(each.segment.context)
        assert tuple(row.tokens.tolist()) == each.segment.context + each.segment.tokens
        assert row.trains.tolist() == list(range(before, len(row.tokens)))
        assert len(set(row.credit.tolist())) == 1  # without KL, one credit a sequence
        every += row.credit.tolist()
    means = [found.of_segments[each.segment.seed] for each in group]
    assert means == pytest.approx([row.credit[0] for row in found.rows])
    if sequence_level:
        assert means == pytest.approx([4 / 3, 4 / 3, -4 / 3, -4 / 3])
    else:  # the same, whitened over tokens
        assert sum(every) / len(every) == pytest.approx(0, abs=1e-5)
        assert math.sqrt(sum(c * c for c in every) / len(every)) == pytest.approx(1, abs=1e-4)
        assert means[:2] == pytest.approx([means[0]] * 2)
        assert means[2:] == pytest.approx([means[2]] * 2)
        assert means[0] > 0 > means[2]


def test_the_kl_to_itself_is_nothing_and_to_another_it_shapes_every_token(episode, random_policy):
    settings = Stage1(kl_coef=0.5)
    groups = [scored(settings, episode)]
    itself = assigned(settings, groups, random_policy)
    assert itself.metrics["kl/ref"] == pytest.approx(0, abs=1e-5)
    other = random_policy.fork("other")
    with torch.no_grad():
        other.model.model.norm.weight.mul_(0.5)
    shaped = assigned(settings, groups, other)
    assert abs(shaped.metrics["kl/ref"]) > 1e-3
    row = shaped.rows[0]
    assert len(np.unique(row.credit)) == row.num_trained


def test_a_group_that_lost_members_uses_the_others_and_a_lone_one_is_dropped(episode, random_policy):
    settings = Stage1(kl_coef=0.0, sequence_level=True)
    group = scored(settings, episode)
    three = assigned(settings, [group[1:]], random_policy)
    assert [row.credit[0] for row in three.rows] == pytest.approx([2, -1, -1])
    assert assigned(settings, [group[:1]], random_policy).rows == []


def test_a_critique_whose_refinement_could_not_be_graded_is_paid_nothing(episode):
    segments = list(episode.segments)
    segments[2] = replace(segments[2], grade=replace(segments[2].grade, score=None))
    broken = replace(episode, segments=tuple(segments))
    assert [each.index for each in scored(Stage2(), broken)] == [3, 5, 7]
    assert len(scored(Stage1(), broken)) == 4  # stage I asks for no refinement
    assert rewarded([broken], "critic", *terms_of(Stage2()))[0].segments[1].rewards == {}
