"""Entropy as a term of the loss, and the Entropy-Clip Rule: how an update that clips changes the policy's entropy.

The rule (BAPO, arXiv:2510.18927, eq. 6-7):

    dH = -eta Cov_{y ~ pi} [log pi(y), A(y) X(y) + C],   X = 1 where the token survives the clip,  C = sum_clipped pi A

Entropy falls where the surviving tokens' probability and advantage go together. As it stands this is the *natural*
policy gradient's rule. The vanilla gradient of a tabular softmax has a factor pi(y) inside the covariance. The paper's
proposition 1 has it, and its equation 6 has lost it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def entropy_loss(entropies: Tensor, loss_mask: Tensor, token_weight: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Minus the entropy, to be added to a policy loss times its coefficient: the entropy bonus of A3C (Mnih et al.
    2016, arXiv:1602.01783) and PPO. All inputs are [B, T].

    Args:
        entropies: nats. Of the whole distribution that each token was drawn from; carry the gradient.
        loss_mask: bool. True where the token trains; other positions are ignored, even if NaN.
        token_weight: as in `clipped_policy_loss`.
    Returns: the weighted sum, and no sums: the learner logs the entropy of every update.
    """
    return -torch.where(loss_mask, torch.where(loss_mask, entropies, 0.0) * token_weight, 0.0).sum(), {}


@torch.no_grad()
def predicted_entropy_change(
    logprobs_V: Tensor, advantages_V: Tensor, survives_V: Tensor, *, step_size: float, natural: bool = True
) -> Tensor:
    """The rule for one prefix of a tabular softmax policy, where everything is known.

    Args:
        logprobs_V: [..., V], of all tokens.
        advantages_V: [..., V]; their mean under the policy is 0.
        survives_V: [..., V] bool, X.
        step_size: eta.
        natural: True: eq. 6. False: with the factor pi(y) of proposition 1.
    Returns: [...], nats.
    """
    probs_V = logprobs_V.exp()
    clipped = torch.where(survives_V, 0.0, probs_V * advantages_V).sum(-1, keepdim=True)
    moved_V = torch.where(survives_V, advantages_V, 0.0) + clipped
    if not natural:
        moved_V = probs_V * moved_V
    plogp_V = torch.xlogy(probs_V, probs_V)  # 0 where a token is impossible, whose logprob is -inf
    return -step_size * ((plogp_V * moved_V).sum(-1) - plogp_V.sum(-1) * (probs_V * moved_V).sum(-1))


@torch.no_grad()
def sampled_entropy_change(logprobs_N: Tensor, entropies_N: Tensor, pushes_N: Tensor) -> Tensor:
    """The rule's estimate from one sampled token a prefix, for a step of size 1.

    `E[log pi] = -H`, so `(log pi(y) + H) A X` of a token from the policy is, in expectation, its prefix's covariance (C
    is a constant and drops out).

    Args:
        logprobs_N: of the sampled tokens, under the policy.
        entropies_N: H of the distributions that they are drawn from.
        pushes_N: `A X`, times the ratio where another policy sampled.
    Returns: a number, the mean over tokens. For a network only its sign and its course mean something.
    """
    return -((logprobs_N + entropies_N) * pushes_N).mean()
