"""Advantages by name against their arithmetic by hand, and the rows that `assign_credit` makes of them."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from support.episodes import reply, segment_of
from whet.config.losses import KLConfig
from whet.config.parts import LearningConfig
from whet.credit.advantages import ADVANTAGES, AdvantageError, advantage
from whet.credit.assignment import Reference, assign_credit, kl_to, padded, trained_mask, with_values
from whet.credit.rewards import groups_of, outcome, rewarded
from whet.models.scoring import score
from whet.objectives import clipped_policy_loss
from whet.registry import UnknownName
from whet.trainer.learner import Learner
from whet.trainer.terms import Term, Update, on_tokens
from whet.types import as_row

REWARDS_B = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.5, 0.0])
SIZES = [4, 3]
LENGTHS = [2, 3, 1, 4, 2, 2, 1]
MASK_BT = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
KL_BT = torch.where(MASK_BT, torch.linspace(-0.2, 0.3, 28).reshape(7, 4), 0.0)


def credit_of(name, rewards_B=REWARDS_B, kl_coef=0.0):
    return ADVANTAGES.get(name).credit(rewards_B, SIZES, KL_BT, MASK_BT, kl_coef)


def in_groups(rewards_B, rule):
    """A rule for a group's rewards, as a list of numbers, to one credit a row."""
    groups = torch.split(rewards_B, SIZES)
    return torch.tensor([value for group in groups for value in rule(group.tolist())])


def centred(group):
    return [r - sum(group) / len(group) for r in group]


def standardised(group):
    mean = sum(group) / len(group)
    std = math.sqrt(sum((r - mean) ** 2 for r in group) / (len(group) - 1))
    return [(r - mean) / (std + 1e-6) for r in group]


def against_the_others(group):
    return [r - (sum(group) - r) / (len(group) - 1) for r in group]


def whitened(values_BT, correction):
    """Mean 0 and variance 1 over trained tokens."""
    tokens = values_BT[MASK_BT]
    variance = (tokens - tokens.mean()).square().sum() / (len(tokens) - correction)
    return torch.where(MASK_BT, (values_BT - tokens.mean()) / variance.sqrt(), 0.0)


def to_the_end(values_BT):
    """Each token's sum from itself to the end."""
    return torch.tensor([[float(row[t:].sum()) for t in range(len(row))] for row in values_BT]) * MASK_BT


# --- a user's own -----------------------------------------------------------------------------------------------------

OWN = {
    "a number a reward": (lambda r, sizes, kl, mask, coef: r, r"gave \[7\], where a tensor \[7, 4\] was due"),
    "too wide": (lambda r, sizes, kl, mask, coef: torch.zeros(7, 8), r"gave \[7, 8\], where a tensor \[7, 4\] was due"),
    "nothing": (lambda r, sizes, kl, mask, coef: None, r"gave a NoneType, where a tensor \[7, 4\] was due"),
    "lists": (lambda r, sizes, kl, mask, coef: [[0.0] * 4] * 7, "gave a list, where a tensor"),
    "NaN": (lambda r, sizes, kl, mask, coef: mask * math.nan, "gave NaN or infinity for finite rewards"),
    "infinity": (lambda r, sizes, kl, mask, coef: mask.float() / 0, "gave NaN or infinity for finite rewards"),
    "an error": (lambda r, sizes, kl, mask, coef: 1 / 0, "raised ZeroDivisionError: division by zero"),
    "an exit": (lambda r, sizes, kl, mask, coef: exit(), "raised SystemExit"),
}


@pytest.mark.parametrize("name", OWN)
def test_an_advantage_that_breaks_its_promise_is_a_sentence(name):
    credit, says = OWN[name]
    advantage(f"of a test: {name}")(credit)
    with pytest.raises(AdvantageError, match=f"the advantage 'of a test: {name}' of .*{says}.* goes on"):
        credit_of(f"of a test: {name}")


def test_what_an_advantage_gives_where_nothing_trains_is_0():
    advantage("of a test: everywhere")(lambda r, sizes, kl, mask, coef: torch.ones(mask.shape, dtype=torch.int64))
    assert credit_of("of a test: everywhere").equal(MASK_BT.float())


def test_an_advantage_that_cannot_be_called_is_refused_as_it_is_registered():
    with pytest.raises(ValueError, match=r"has to take \(rewards, sizes, kl, mask, kl_coef\): too many"):
        advantage("of a test: short")(lambda rewards, sizes: rewards)


# --- by name ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rule"), [("grpo", standardised), ("dr_grpo", centred), ("rloo", against_the_others)])
@pytest.mark.parametrize("kl_coef", [0.0, 0.5])
def test_compared_within_the_group_with_the_kl_in_the_reward(name, rule, kl_coef):
    expected = in_groups(REWARDS_B - kl_coef * KL_BT.sum(-1), rule)
    torch.testing.assert_close(credit_of(name, kl_coef=kl_coef), expected[:, None] * MASK_BT, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kl_coef", [0.0, 0.5])
def test_rloo_whitened_takes_the_kl_per_token_to_the_end(kl_coef):
    to_go = in_groups(REWARDS_B, against_the_others)[:, None] * MASK_BT - kl_coef * to_the_end(KL_BT)
    torch.testing.assert_close(credit_of("rloo_whitened", kl_coef=kl_coef), whitened(to_go, 0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kl_coef", [0.0, 0.5])
def test_reinforce_and_its_relatives(kl_coef):
    held = kl_coef * to_the_end(KL_BT)
    plain = REWARDS_B[:, None] * MASK_BT - held
    torch.testing.assert_close(credit_of("reward", kl_coef=kl_coef), plain, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(credit_of("reinforce_pp", kl_coef=kl_coef), whitened(plain, 1), atol=1e-5, rtol=1e-5)
    based = in_groups(REWARDS_B, centred)[:, None] * MASK_BT - held
    got = credit_of("reinforce_pp_baseline", kl_coef=kl_coef)
    torch.testing.assert_close(got, whitened(based, 1), atol=1e-5, rtol=1e-5)


def test_every_advantage_is_tested_here():
    by_hand = {"grpo", "dr_grpo", "rloo", "rloo_whitened", "reward", "reinforce_pp", "reinforce_pp_baseline"}
    ours = {entry.name for entry in ADVANTAGES if entry.origin == "whet"}
    assert ours == by_hand | {"gae"}
    assert ADVANTAGES.get("gae").credit is None
    assert {name: ADVANTAGES.get(name).baseline for name in sorted(ours)} == {
        "dr_grpo": "group", "gae": "batch", "grpo": "group", "reinforce_pp": "batch", "reinforce_pp_baseline": "group",
        "reward": "none", "rloo": "group", "rloo_whitened": "group",
    }  # fmt: skip
    with pytest.raises(UnknownName, match="did you mean 'rloo'"):
        ADVANTAGES.get("rlo")


# --- laws -------------------------------------------------------------------------------------------------------------

rewards = st.lists(st.sampled_from([-1.0, 0.0, 0.25, 1.0]), min_size=7, max_size=7).map(torch.tensor)


@given(rewards)
def test_leave_one_out_is_the_centred_reward_times_k_over_k_minus_one(rewards_B):
    factors = torch.tensor([size / (size - 1) for size in SIZES for _ in range(size)])
    torch.testing.assert_close(
        credit_of("rloo", rewards_B), factors[:, None] * credit_of("dr_grpo", rewards_B), atol=1e-6, rtol=1e-6
    )


@given(rewards, st.integers(1, 20), st.integers(-20, 20))
def test_divided_by_the_std_the_coding_of_a_binary_reward_is_no_matter(rewards_B, scale, shift):
    """0 and 1, -1 and 1, or 3 and 7: the same credit, also where a group is all right or all wrong. Where nothing is
    divided, the scale stays."""
    binary_B = (rewards_B > 0).float()
    recoded_B = scale * binary_B + shift
    torch.testing.assert_close(credit_of("grpo", recoded_B), credit_of("grpo", binary_B), atol=1e-4, rtol=1e-4)
    plain = scale * credit_of("dr_grpo", binary_B)
    torch.testing.assert_close(credit_of("dr_grpo", recoded_B), plain, atol=1e-4, rtol=1e-4)


@given(rewards, st.sampled_from(["rloo_whitened", "reinforce_pp", "reinforce_pp_baseline"]), st.integers(2, 9))
def test_whitened_credit_does_not_know_the_scale(rewards_B, name, scale):
    assume(len(set(rewards_B.tolist())) > 1)
    recoded = credit_of(name, scale * rewards_B / 4)  # rloo_whitened's clamp at 10 is not reached
    torch.testing.assert_close(recoded, credit_of(name, rewards_B), atol=1e-4, rtol=1e-4)


@given(st.sampled_from([-1.0, 0.0, 0.7]), st.sampled_from([0.0, 0.3]))
def test_groups_that_are_paid_alike_earn_nothing(first, second):
    rewards_B = torch.tensor([first] * 4 + [second] * 3)
    for name in ("grpo", "dr_grpo", "rloo", "rloo_whitened", "reinforce_pp_baseline"):
        assert not credit_of(name, rewards_B).any(), name


# --- rows -------------------------------------------------------------------------------------------------------------


def scored(scores, task="t", **more):
    episodes = [reply(score, task=task, seed=i + 100 * ord(task), tokens=range(5, 7 + i), **more)
              for i, score in enumerate(scores)]  # fmt: skip
    return groups_of(rewarded(episodes, "solver", {"outcome": outcome()}), "solver", "task")[0]


def test_earn_puts_the_credit_on_every_token():
    assigned = assign_credit(
        [scored([1.0, 0.0, 0.0]), scored([1.0, 0.0], task="u")], ADVANTAGES.get("dr_grpo"), kind="rl"
    )
    assert [row.num_trained for row in assigned.rows] == [2, 3, 4, 2, 3]
    expected = [2 / 3, -1 / 3, -1 / 3, 0.5, -0.5]
    for row, credit in zip(assigned.rows, expected, strict=True):
        assert row.credit.tolist() == pytest.approx([credit] * row.num_trained)
    assert [row.group for row in assigned.rows] == ["t/0"] * 3 + ["u/1"] * 2
    assert {row.kind for row in assigned.rows} == {"rl"}
    assert list(assigned.of_segments.values()) == pytest.approx(expected)
    assert assigned.metrics == {}
    assert all(row.logprobs.tolist() == [-0.5] * row.num_trained for row in assigned.rows)


def test_a_group_forms_its_baseline_from_those_that_were_graded():
    assigned = assign_credit([scored([1.0, None, 0.0])], ADVANTAGES.get("dr_grpo"))
    assert [row.credit[0] for row in assigned.rows] == [0.5, -0.5]


@pytest.mark.parametrize(("name", "kept"), [("grpo", 2), ("rloo", 2), ("reward", 3), ("reinforce_pp", 3)])
def test_a_lone_reply_is_dropped_where_it_has_nothing_to_be_compared_with(name, kept):
    assert len(assign_credit([scored([1.0, None]), scored([1.0, 0.0], task="u")], ADVANTAGES.get(name)).rows) == kept


def test_nothing_to_earn():
    assert assign_credit([], ADVANTAGES.get("grpo")).rows == []
    assert assign_credit([[], scored([None, 1.0])], ADVANTAGES.get("grpo")).rows == []


def reference(policy, where, coef=0.5):
    return Reference(policy, KLConfig(coef=coef, estimator="k1", where=where), token_budget=1000)


def test_a_kl_in_the_reward_is_paid_for(random_policy):
    group = scored([1.0, 0.0, 1.0])
    assigned = assign_credit([group], ADVANTAGES.get("dr_grpo"), reference(random_policy, "reward"))
    bare = [as_row(each.segment) for each in group]
    scores = score(random_policy, bare, token_budget=1000)
    kl = [float((-0.5 - own).sum()) for own in scores]  # k1, where each sampled token's logprob is -0.5
    expected = centred([each.reward - 0.5 * k for each, k in zip(group, kl, strict=True)])
    assert [float(row.credit[0]) for row in assigned.rows] == pytest.approx(expected, rel=1e-4)
    assert assigned.metrics["kl/ref"] == pytest.approx(sum(kl) / sum(map(len, scores)), rel=1e-4)
    assert all(row.ref_logprobs is None for row in assigned.rows)


def test_a_kl_in_the_loss_is_left_to_its_term(random_policy):
    group = scored([1.0, 0.0, 1.0])
    assigned = assign_credit([group], ADVANTAGES.get("dr_grpo"), reference(random_policy, "loss"))
    plain = assign_credit([group], ADVANTAGES.get("dr_grpo"))
    scores = score(random_policy, plain.rows, token_budget=1000)
    for row, bare, own in zip(assigned.rows, plain.rows, scores, strict=True):
        assert row.credit.tolist() == bare.credit.tolist()
        assert row.ref_logprobs.tolist() == own.tolist()
    assert assigned.metrics == {}
    without = assign_credit([group], ADVANTAGES.get("dr_grpo"), reference(random_policy, "loss", coef=0.0))
    assert without.rows == plain.rows


def test_values_go_from_rows_to_tensors_and_back(random_policy):
    rows = [as_row(segment_of(tokens=range(5, 6 + count))) for count in (1, 3, 2)]
    assert trained_mask(rows).tolist() == [[True, True, False, False], [True] * 4, [True, True, True, False]]
    values_BT = torch.arange(12.0).reshape(3, 4)
    filled = with_values(rows, "credit", values_BT, weight=0.5)
    assert [row.credit.tolist() for row in filled] == [[0, 1], [4, 5, 6, 7], [8, 9, 10]]
    assert {row.weight for row in filled} == {0.5}
    assert padded([row.credit.tolist() for row in filled]).tolist() == [[0, 1, 0, 0], [4, 5, 6, 7], [8, 9, 10, 0]]
    values_BT.zero_()
    assert filled[1].credit.tolist() == [4, 5, 6, 7]  # rows share no memory with the tensor
    kl_BT = kl_to(random_policy, rows, token_budget=1000)
    assert (kl_BT != 0).equal(trained_mask(rows))


# --- the retargeted view ----------------------------------------------------------------------------------------------


def test_under_another_context_the_first_updates_ratio_is_one(random_policy):
    """Tokens that another context drew are scored by the trainer; by the sampler's own logprobs they would be far off
    policy."""
    segments = [segment_of(tokens=range(10 + i, 14 + 2 * i), seed=i) for i in range(3)]
    credits = (1.0, -0.5, 0.7)
    moved = [as_row(s, c, context=(5, 6, 9, 9)) for s, c in zip(segments, credits, strict=True)]
    sampled = [as_row(s, c) for s, c in zip(segments, credits, strict=True)]
    for row, segment in zip(moved, segments, strict=True):
        assert row.logprobs is None
        assert tuple(row.tokens[row.trains]) == segment.tokens
        assert tuple(row.tokens[: row.trains[0]]) == (5, 6, 9, 9)
    term = Term(on_tokens(clipped_policy_loss, low=0.8, high=1.2))
    update = Update((term,), LearningConfig(learning_rate=1e-9, num_epochs=1), num_updates=10)
    learner = Learner(random_policy, update)
    metrics = learner.update(moved, seed=0)
    assert (metrics["ratio/mean"], metrics["ratio/max"]) == (1.0, 1.0)
    assert (metrics["kl/sampler"], metrics["clip/low"], metrics["clip/high"]) == (0.0, 0.0, 0.0)
    assert learner.update(sampled, seed=1)["ratio/mean"] != pytest.approx(1.0, abs=0.1)


def test_its_old_logprobs_are_those_before_the_first_update_in_all_epochs(random_policy):
    moved = [as_row(segment_of(tokens=range(10, 14)), 1.0, context=(5, 6, 9, 9))]
    before = torch.cat(score(random_policy, moved, token_budget=1000))
    seen = []

    def loss(seen_pass, **chosen):
        seen.append(seen_pass.old[seen_pass.mask])
        return on_tokens(clipped_policy_loss, low=0.0, high=9.0)(seen_pass)

    update = Update((Term(loss),), LearningConfig(learning_rate=1e-2, num_epochs=3), num_updates=10)
    Learner(random_policy, update).update(moved, seed=0)
    assert len(seen) == 3
    torch.testing.assert_close(seen[0], before, atol=1e-5, rtol=1e-5)
    assert all(torch.equal(one, other) for one, other in pairwise(seen))
