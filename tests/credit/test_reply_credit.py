"""What replies are paid, the credit that it comes to, and what a step's rewards say."""

from __future__ import annotations

import pytest
import torch

from support.commands import config_of
from whet.config.parts import SamplingConfig
from whet.credit.advantages import ADVANTAGES
from whet.credit.assignment import assign_credit, differ
from whet.credit.metrics import reply_metrics
from whet.credit.rewards import ScoredSegment, groups_of, outcome, overlong, rewarded
from whet.types import Episode, Grade, Segment, Task

SAMPLING = SamplingConfig(max_new_tokens=96)


def a_segment(tokens=(5, 6, 7), *, score=1.0, task="t", stop="eos", rewards=None):
    return Segment(
        role="solver", policy="policy", added=(1, 2), tokens=tuple(tokens), logprobs=(-0.5,) * len(tokens),
        versions=((0, len(tokens)),), text="x", stop_reason=stop, temperature=1.0, seed=hash((tuple(tokens), task)),
        parent=None, group={"task": task}, grade=Grade(score=score), rewards=rewards or {},
    )  # fmt: skip


def an_episode(segment):
    return Episode(task=Task(id=segment.group["task"], prompt="x"), segments=(segment,))


def scored(segment, reward=None):
    """In an episode of its own, with this reward; None: its score."""
    total = segment.grade.score if reward is None else reward
    return ScoredSegment(an_episode(a_segment(segment.tokens, score=segment.grade.score, task=segment.group["task"],
                                     stop=segment.stop_reason, rewards={"total": total})), 0)  # fmt: skip


def reward_of(segment, *, signed=False, limit=96, last=0):
    terms = {"outcome": outcome(signed=signed)} | ({"overlong": overlong(limit, last)} if last else {})
    [group] = groups_of(rewarded([an_episode(segment)], "solver", terms), "solver", "task")
    return [each.reward for each in group]


def test_pay_by_hand():
    assert reward_of(a_segment(range(6)), limit=10, last=4) == [1.0]
    assert reward_of(a_segment(range(8)), limit=10, last=4) == [0.5]
    assert reward_of(a_segment(range(10), score=0.0), limit=10, last=4) == [-1.0]
    assert reward_of(a_segment(score=1.0), signed=True) == [1.0]
    assert reward_of(a_segment(score=0.0), signed=True) == [-1.0]
    assert reward_of(a_segment(score=None)) == []  # the grading failed: nobody knows


def test_dapos_pay():
    config = config_of("dapo")
    how = {"signed": config.signed, "limit": config.sampling.max_new_tokens, "last": config.overlong}
    assert reward_of(a_segment(range(96)), **how) == [0.0]  # right, and as long as can be
    assert reward_of(a_segment(score=0.0), **how) == [-1.0]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("grpo", [1.499997, -0.499999]),
        ("dr_grpo", [0.75, -0.25]),
        ("rloo", [1.0, -1 / 3]),
        ("reinforce_pp", [2.173067, -0.434613]),
        ("reinforce_pp_baseline", [2.173067, -0.434613]),
        ("reward", [1.0, 0.0]),
    ],
)
def test_spec_f7_advantages(kind, expected):
    rewards = torch.tensor([1.0, 0, 0, 0])
    mask = torch.arange(6) < torch.tensor([[3], [5], [4], [6]])
    found = ADVANTAGES.get(kind).credit(rewards, [4], torch.zeros(4, 6), mask, 0.0)
    assert found[0, 0].item() == pytest.approx(expected[0], abs=2e-6)
    for row, length in zip(found[1:], (5, 4, 6), strict=True):
        assert row[:length].tolist() == pytest.approx([expected[1]] * length, abs=2e-6)
        assert (row[length:] == 0).all()


def test_the_kl_is_part_of_the_reward():
    mask = torch.ones(2, 2, dtype=torch.bool)
    kl = torch.tensor([[0.2, 0.2], [0.0, 0.0]])  # costs the first reply 0.2 in all
    found = ADVANTAGES.get("dr_grpo").credit(torch.tensor([1.0, 0.0]), [2], kl, mask, 0.5)
    assert found[:, 0].tolist() == pytest.approx([0.4, -0.4])
    found = ADVANTAGES.get("reward").credit(torch.tensor([1.0, 0.0]), [2], kl, mask, 0.5)
    assert found.tolist() == [pytest.approx([0.8, 0.9]), pytest.approx([0.0, 0.0])]


def test_a_failed_grading_is_no_reward_and_a_lone_reply_has_no_baseline():
    grpo = ADVANTAGES.get("grpo")
    group = [scored(a_segment((5, i), score=s)) for i, s in enumerate((1.0, 0.0))]
    assigned = assign_credit([group, [scored(a_segment(task="alone"))]], grpo)
    assert [row.group for row in assigned.rows] == ["t/0", "t/0"]
    assert assigned.rows[0].credit[-1] == pytest.approx(-assigned.rows[1].credit[-1])
    assert assign_credit([], grpo).rows == []
    assert len(assign_credit([group, [scored(a_segment(task="alone"))]], ADVANTAGES.get("reward")).rows) == 3
    assert reply_metrics([[]], SAMPLING) == {}


def test_reply_metrics_by_hand():
    groups = [[scored(a_segment((1, 2), score=1.0)), scored(a_segment((1, 2, 3, 4), score=0.0))]]
    groups += [[scored(a_segment(score=0.0)), scored(a_segment(score=0.0, stop="length"))]]
    found = reply_metrics(groups, SAMPLING)
    assert found["reward/mean"] == found["reward/correct"] == 0.25
    assert found["group/no_signal"] == 0.5
    assert (found["group/all_right"], found["group/all_wrong"]) == (0, 0.5)
    assert (found["length/mean"], found["length/good"], found["length/bad"]) == (3, 2, 4)
    assert found["length/truncated"] == 0.25
    assert found["entropy/sampled"] == pytest.approx(0.5)
    assert "entropy/sampled" not in reply_metrics(groups, SamplingConfig(max_new_tokens=96, top_p=0.9))
    assert "group/no_signal" not in reply_metrics([[scored(a_segment())]], SAMPLING)
    alike = reply_metrics([[scored(a_segment(score=0.1))] * 3], SAMPLING)
    assert not {"length/good", "length/bad"} & alike.keys()  # the mean of three times 0.1 is not 0.1


def test_a_group_has_a_signal_where_scores_differ_whatever_lengths_cost():
    wrong = [a_segment(range(n), score=0.0) for n in (90, 96)]
    assert reward_of(wrong[0], last=16) != reward_of(wrong[1], last=16)
    assert not differ(wrong)
    assert differ([*wrong, a_segment(score=1.0)])
