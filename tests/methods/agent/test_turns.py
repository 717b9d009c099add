"""Credit of agent episodes: spec 9.3 on joined rows, counter-tests of the published defects, turns and equal states."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from whet.config.losses import ValueConfig
from whet.credit.advantages import ADVANTAGES
from whet.methods.agent import turn_credit as module
from whet.methods.agent.turn_credit import (
    STATE,
    ScoredEpisode,
    TurnCredit,
    assign_turn_credit,
    assign_turn_credit_with_values,
)
from whet.types import Episode, Segment, Task

GRPO, DR_GRPO, RLOO = (ADVANTAGES.get(name) for name in ("grpo", "dr_grpo", "rloo"))


def episodes(gains, lengths=None, *, seed=0, states=None, reward=None, breaks=False):
    """An episode whose turns were paid `gains`; an observation of two tokens stands before each turn.

    Args:
        breaks: the chat template wrote the history anew, so each turn is a row of its own.
    """
    made = []
    for i, count in enumerate(lengths or [2] * len(gains)):
        made.append(Segment(
            role="agent", policy="policy", added=(8, 9), tokens=tuple(range(10, 10 + count)),
            logprobs=(-0.5,) * count, versions=((0, count),), text="", stop_reason="eos", temperature=1.0,
            seed=100 * seed + i, parent=None, prefix=made[-1] if made and not breaks else None,
            parsed={STATE: states[i]} if states else {},
        ))  # fmt: skip
    episode = Episode(task=Task(id="item", prompt=""), segments=tuple(made))
    return ScoredEpisode(episode, tuple(made), tuple(gains), sum(gains) if reward is None else reward)


def of_tokens(assigned):
    return [row.credit.tolist() for row in assigned.rows]


@pytest.mark.parametrize(
    ("rewards", "advantage", "expected"),
    [
        ([1, 0, 0, 0], GRPO, [1.5, -0.5, -0.5, -0.5]),
        ([1, 0, 0, 0], RLOO, [1, -1 / 3, -1 / 3, -1 / 3]),
        ([1, 1, 0, 0], GRPO, [0.8660, 0.8660, -0.8660, -0.8660]),
        ([1, 1, 0, 0], RLOO, [2 / 3, 2 / 3, -2 / 3, -2 / 3]),
        ([1, 1, 1, 1], GRPO, [0, 0, 0, 0]),
    ],
)
def test_spec_9_3_every_agent_token_of_an_episode_has_its_advantage(rewards, advantage, expected):
    group = [episodes([0, reward], seed=i) for i, reward in enumerate(rewards)]
    assigned = assign_turn_credit([group], advantage, TurnCredit())
    for row, value in zip(assigned.rows, expected, strict=True):
        assert row.tokens.tolist() == [8, 9, 10, 11, 8, 9, 10, 11]
        assert row.trains.tolist() == [2, 3, 6, 7]
        assert row.credit.tolist() == pytest.approx([value] * 4, abs=1e-4)


def value_rows(groups, values, how, **settings):
    """With a value model that gives these numbers at the agent's tokens, and 99 at any other."""

    def score(policy, rows, *, token_budget):
        return [torch.tensor(values[: row.num_trained]) for row in rows]

    value_model = SimpleNamespace(name="value_model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "score", score)
        return assign_turn_credit_with_values(groups, ValueConfig(**settings), value_model, how)


def test_spec_9_3_gae_goes_on_from_the_next_agent_token():
    """Mask [1, 1, 0, 1, 1, 0], gamma = lambda = 1, reward 1 for the last agent token: A = 1 - value. The published code
    goes on from the value of what the environment said (.9), and gives 2.3, 2.2, 1.5, 1.4."""
    assigned = value_rows([[episodes([0, 1])]], [0.1, 0.2, 0.3, 0.4], TurnCredit(), gamma=1.0, gae_lambda=1.0)
    policy, value = assigned.rows
    assert value.credit.tolist() == pytest.approx([1, 1, 1, 1])
    assert value.logprobs.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    advantages = np.array([0.9, 0.8, 0.7, 0.6])
    assert policy.credit.tolist() == pytest.approx((advantages - advantages.mean()) / advantages.std(), abs=1e-4)


def test_turns_are_paid_at_their_own_last_tokens_by_a_value_model():
    assigned = value_rows([[episodes([0.5, 0.25])]], [0.0] * 4, TurnCredit(per="turn"), gamma=1.0, gae_lambda=1.0)
    assert assigned.rows[1].credit.tolist() == pytest.approx([0.75, 0.75, 0.25, 0.25])


def test_the_reward_lies_on_the_last_agent_token():
    """REINFORCE++'s returns (spec 9.3), [1, 1, 1, 1] of one episode and [0, 0] of another, are whitened: mean 2 / 3,
    variance (4 / 9 + 8 / 9) / 5. The published code puts the reward on the environment's last token, where it is
    masked, and all returns are 0."""
    groups = [[episodes([0, 1])], [episodes([0], seed=1)]]
    bare = assign_turn_credit(groups, ADVANTAGES.get("reward"), TurnCredit())
    assert of_tokens(bare) == [[1, 1, 1, 1], [0, 0]]
    assert [row.trains.tolist() for row in bare.rows] == [[2, 3, 6, 7], [2, 3]]
    high, low = of_tokens(assign_turn_credit(groups, ADVANTAGES.get("reinforce_pp"), TurnCredit()))
    deviation = (12 / 9 / 5) ** 0.5
    assert high == pytest.approx([1 / 3 / deviation] * 4, abs=1e-5)
    assert low == pytest.approx([-2 / 3 / deviation] * 2, abs=1e-5)


def test_a_failed_sample_is_no_part_of_a_baseline():
    """Issue 14: rewards [1, 3, 2, fault], mean subtracted; the fault was left out before."""
    group = [episodes([reward], seed=i) for i, reward in enumerate((1, 3, 2))]
    assert of_tokens(assign_turn_credit([group], DR_GRPO, TurnCredit())) == [[-1, -1], [1, 1], [0, 0]]
    assert not assign_turn_credit([group[:1]], DR_GRPO, TurnCredit()).rows  # nothing to compare it with


def test_a_turn_is_held_against_turns_of_its_number():
    """Returns: [1, 1], [0, 0] and [1, 1, 1]; the third turn is alone, and has no credit."""
    group = [episodes([0, 1], seed=0), episodes([0, 0], seed=1), episodes([0, 0, 1], seed=2)]
    third = 1 / 3
    credit = of_tokens(assign_turn_credit([group], DR_GRPO, TurnCredit(per="turn")))
    assert credit[0] == pytest.approx([third] * 4)
    assert credit[1] == pytest.approx([-2 * third] * 4)
    assert credit[2] == pytest.approx([third] * 4 + [0, 0])
    discounted = episodes([0, 1, 2], seed=3).returns(0.5)
    assert discounted == [1.0, 2.0, 2.0]


def test_equal_states_are_compared_beside_the_episodes():
    """Two episodes leave state a by another action each; b and c are reached once."""
    group = [episodes([0, 1], states=["a", "b"]), episodes([0, 0], seed=1, states=["a", "c"])]
    how = TurnCredit(per="gigpo", gamma=0.5, weight=2.0)
    assigned = assign_turn_credit([group], DR_GRPO, how)
    credit = of_tokens(assigned)
    assert assigned.metrics["turns/compared"] == 0.5  # the two at a, of four
    assert credit[0] == pytest.approx([0.5 + 2 * 0.25] * 2 + [0.5] * 2)  # returns at a: 0.5 and 0
    assert credit[1] == pytest.approx([-0.5 - 2 * 0.25] * 2 + [-0.5] * 2)


def test_a_state_that_comes_again_in_one_episode_is_compared_with_itself():
    group = [episodes([0, 0, 1], states=["a", "a", "b"]), episodes([0], seed=1, states=["d"])]
    credit = of_tokens(assign_turn_credit([group], DR_GRPO, TurnCredit(per="gigpo", gamma=0.5)))
    assert credit[0] == pytest.approx([0.5 - 0.125] * 2 + [0.5 + 0.125] * 2 + [0.5] * 2)  # returns 0.25, 0.5


def test_an_episode_in_pieces_has_the_credit_of_a_whole_one():
    whole = [episodes([0, 1]), episodes([0, 0], seed=1)]
    broken = [episodes([0, 1], breaks=True), episodes([0, 0], seed=1, breaks=True)]
    for how in (TurnCredit(), TurnCredit(per="turn")):
        one, several = (assign_turn_credit([group], GRPO, how) for group in (whole, broken))
        assert len(several.rows) == 4
        assert np.concatenate(of_tokens(several)).tolist() == np.concatenate(of_tokens(one)).tolist()
        assert several.of_segments == one.of_segments
        assert [row.share for row in several.rows] == [0.5] * 4


def test_lengths_differ_and_each_turn_keeps_its_own():
    group = [episodes([0, 1], [1, 3]), episodes([0, 0, 0], [2, 1, 1], seed=1)]
    assigned = assign_turn_credit([group], GRPO, TurnCredit())
    assert [row.num_trained for row in assigned.rows] == [4, 4]
    assert [assigned.of_segments[seed] for seed in (0, 1)] == pytest.approx([0.7071] * 2, abs=1e-4)
    assert set(assigned.of_segments) == {0, 1, 100, 101, 102}


def test_groups_do_not_mix():
    groups = [[episodes([1]), episodes([0], seed=1)], [episodes([5], seed=2), episodes([5], seed=3)]]
    assert of_tokens(assign_turn_credit(groups, DR_GRPO, TurnCredit())) == [[0.5, 0.5], [-0.5, -0.5], [0, 0], [0, 0]]


def test_spec_9_14_the_share_of_groups_that_teach():
    """1 - p^n - (1 - p)^n, counted over all outcomes of a group."""
    for p, n, expected in ((0.5, 8, 0.9922), (0.05, 8, 0.3366), (0.05, 4, 0.1855)):
        share = 0.0
        for bits in range(2**n):
            wins = [bits >> i & 1 for i in range(n)]
            group = [episodes([win], seed=i) for i, win in enumerate(wins)]
            teaches = any(any(row) for row in of_tokens(assign_turn_credit([group], GRPO, TurnCredit())))
            share += np.prod([p if win else 1 - p for win in wins]) * teaches
        assert share == pytest.approx(expected, abs=1e-4)
