"""SPC's critic loss is `gspo_loss` with wide bounds and the reference as the old policy: by hand, and slowly.

`-min(s R, clip(s, 0.8, 1.2) R)` a row, R = 1 or -1 and s = exp(mean log pi - mean log ref), averaged over rows.
"""

import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from whet.objectives import aggregation_weights, gspo_loss

spc = partial(gspo_loss, low=0.8, high=1.2)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def weights(mask):
    return aggregation_weights(mask.sum(-1), torch.ones(len(mask), dtype=torch.float64), "sequence_mean")[:, None]


# Four rows of two tokens and one of one, by log(policy / ref): s = e^0.2 twice, e^-0.3 twice, e^0.1.
DELTA = double([[0.1, 0.3], [0.1, 0.3], [-0.7, 0.1], [-0.7, 0.1], [0.1, math.nan]])
REWARDS = double([1.0, -1.0, -1.0, 1.0, 1.0])
OF_ROWS = double([-1.2, 1.221403, 0.8, -0.740818, -1.105171])
SLOPES = double([0.0, 1.221403, 0.0, -0.740818, -1.105171])  # by the row's mean logprob
# Held are a good row past 1.2 and a bad one below 0.8; the bad one past 1.2 is pushed down, the good one below 0.8 up.


def test_spcs_critic_loss_by_hand():
    mask, ref = ~DELTA.isnan(), double([[-1.0, -2.0]] * 5)
    policy = (ref + DELTA).requires_grad_()
    rest = (ref, REWARDS[:, None].expand_as(ref), mask)
    token_weight = weights(mask).expand_as(ref).clone().requires_grad_()
    loss, metrics = spc(policy, *rest, token_weight)
    by_weight, grad = torch.autograd.grad(loss, (token_weight, policy))
    lengths = double([2, 2, 2, 2, 1])
    # The tokens of a row share its loss: the total is linear in their weights of 1 / (length * 5).
    of_rows = torch.where(mask, by_weight, 0.0).sum(-1) / lengths
    assert_close(of_rows, OF_ROWS, atol=6e-7, rtol=0)
    assert loss.item() == pytest.approx(OF_ROWS.mean().item(), abs=6e-7)
    assert loss.item() == pytest.approx(-0.204917, abs=6e-7)
    assert_close(grad, torch.where(mask, (SLOPES / lengths / 5)[:, None], 0.0), atol=6e-7, rtol=0)
    assert (metrics["num_clipped_low"], metrics["num_clipped_high"]) == (2, 2)  # tokens of the two rows held


@pytest.mark.parametrize("seed", range(3))
def test_its_gradient_is_that_of_the_formula_written_out(seed):
    generator = torch.Generator().manual_seed(seed)
    ref, shift = torch.randn(2, 12, 7, generator=generator, dtype=torch.float64)
    mask = torch.arange(7) < torch.randint(1, 8, (12, 1), generator=generator)
    policy = (ref + 0.6 * shift).requires_grad_()
    rewards = double([1.0, -1.0] * 6)

    def mean(values):
        return torch.where(mask, values, 0.0).sum(-1) / mask.sum(-1)

    s = (mean(policy) - mean(ref)).exp()
    written_out = -torch.minimum(s * rewards, s.clamp(0.8, 1.2) * rewards).mean()
    loss, metrics = spc(policy, ref, rewards[:, None].expand_as(ref), mask, weights(mask))
    assert_close(loss, written_out)
    assert_close(*(torch.autograd.grad(each, policy)[0] for each in (loss, written_out)))
    assert 0 < metrics["num_clipped_low"] + metrics["num_clipped_high"] < metrics["num_tokens"]
