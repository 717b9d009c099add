"""How well an agent acts, by hand."""

import pytest

from whet.evaluation.agents import agent_metrics, by_samples, by_turn, reward_of, succeeded
from whet.evaluation.intervals import interval, paired_interval
from whet.rollout.roles import observed, written
from whet.types import Episode, Task

ABOVE = {"maze": 0.99, "sciworld": 99, "babyai": 0.5}


def an_episode(*rewards, outcome="ok", env="maze", item=1, invalid=()):
    segments = [observed("you are here", parent=None)]
    for turn, reward in enumerate(rewards):
        note = {"note": "invalid action"} if turn in invalid else {}
        segments.append(written("agent", "go", parent=len(segments) - 1, parsed={"reward": reward, **note}))
        segments.append(observed("and now there", parent=len(segments) - 1))
    return Episode(
        task=Task(id=f"{env}_{item}", prompt="", info={"environment": env}), segments=tuple(segments),
        outcome=outcome,
    )  # fmt: skip


def test_an_episode_comes_to_the_sum_of_its_steps_and_succeeds_by_its_worlds_own_rule():
    """Published code counted rewards of 1 alone as success, so that a perfect 100 in SciWorld was none."""
    assert reward_of(an_episode(0, 0.25, 0.5)) == 0.75
    found = [
        succeeded(an_episode(reward, env=env), ABOVE)
        for env, reward in (("maze", 1), ("sciworld", 100), ("babyai", 0.5), ("babyai", 0.51), ("maze", 0))
    ]
    assert found == [True, True, False, True, False]


def test_metrics_by_hand():
    groups = [
        [an_episode(0, 1), an_episode(0, 0, 0, outcome="truncated", invalid=(1,))],
        [an_episode(1, item=2), an_episode(outcome="env_error", item=2)],
        [an_episode(outcome="timeout", item=3), an_episode(outcome="timeout", item=3)],
    ]
    found = agent_metrics(groups, ABOVE)
    assert found["success"] == pytest.approx((0.5 + 1) / 2)  # by items; the third has no episode that did not fail
    assert found["reward"] == pytest.approx(2 / 3)
    assert found["turns"] == pytest.approx((2 + 3 + 1) / 3)
    assert found["invalid"] == pytest.approx(1 / 6)
    assert found["truncated"] == pytest.approx(1 / 3)
    assert (found["n"], found["k"], found["faults"]) == (2, 2, 3)
    assert found["pass"] is None  # not every item has both of its episodes
    assert agent_metrics([[an_episode(0), an_episode(1)]], ABOVE)["pass"] == 1.0
    assert agent_metrics([[an_episode(1)]], ABOVE)["k"] == 0
    assert agent_metrics([groups[2]], ABOVE)["success"] is None


def test_the_interval_is_wilsons_where_items_are_right_or_wrong():
    """Wilson (1927) for 0 of 8 and 1 of 8, with z = 1.96."""
    assert interval([0.0] * 8) == pytest.approx((0, 3.8416 / (8 + 3.8416)))
    assert interval([1.0] + [0.0] * 7) == pytest.approx((0.0224, 0.4709), abs=1e-4)
    low, high = interval([0.5, 1.0, 0.0, 0.5])
    assert (low + high) / 2 == pytest.approx(0.5)
    assert high - low == pytest.approx(2 * 1.96 * (0.5 / 3) ** 0.5 / 2)


def test_values_that_are_all_alike_leave_an_interval():
    """No spread among three says little: as many may differ as Wilson's upper end of 0 of 3, 3.8416 / 6.8416."""
    half = 3.8416 / 6.8416
    assert interval([0.5] * 3) == pytest.approx((0.0, 1.0))
    assert interval([0.5] * 80) == pytest.approx((0.5 - 3.8416 / 83.8416, 0.5 + 3.8416 / 83.8416))
    assert paired_interval([1.0, 0.0, 1.0], [1.0, 0.0, 1.0]) == pytest.approx((0.0, -half, half))
    assert paired_interval([1.0] * 3, [0.0] * 3) == pytest.approx((1.0, 1 - half, 1.0))


def test_the_paired_interval_by_hand():
    """Differences 0.5, 0, 1, -0.5: mean 0.25, variance (0.0625 + 0.0625 + 0.5625 + 0.5625) / 3."""
    half = 1.96 * (1.25 / 3) ** 0.5 / 2
    assert paired_interval([0.5, 1, 1, 0], [0, 1, 0, 0.5]) == pytest.approx((0.25, 0.25 - half, 0.25 + half))


def test_success_over_turns():
    episodes = [an_episode(0, 1), an_episode(1), an_episode(0, 0, 0, outcome="truncated")]
    assert by_turn(episodes, ABOVE, 3) == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert by_turn([], ABOVE, 3) == []


def test_success_over_samples():
    """One of four: pass@1 is 1/4, pass@2 is 1 - C(3,2)/C(4,2) = 1/2; the other item is never solved."""
    groups = [[an_episode(1)] + [an_episode(0)] * 3, [an_episode(0)] * 4]
    assert by_samples(groups, ABOVE) == pytest.approx({"pass@1": 1 / 8, "pass@2": 1 / 4, "pass@4": 1 / 2})
    lost = [[an_episode(1), an_episode(0), an_episode(outcome="timeout")], [an_episode(0)] * 3]
    assert by_samples(lost, ABOVE) == pytest.approx({"pass@1": 1 / 4, "pass@2": 1 / 2})
    assert by_samples([[an_episode(1)]], ABOVE) == by_samples([], ABOVE) == {}
