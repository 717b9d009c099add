"""Credit with a value model: PPO's rows of the policy, and the rows of the value model."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from whet.config.losses import ValueConfig
from whet.credit.advantages import ADVANTAGES
from whet.credit.assignment import AssignedCredit, Reference, bare_rows, mean_credit
from whet.credit.rewards import ScoredSegment
from whet.credit.rows import padded, trained_mask, with_values
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.objectives import gae, whiten


def assign_credit_with_values(
    groups: Sequence[Sequence[ScoredSegment]],
    settings: ValueConfig,
    value_model: Policy,
    reference: Reference | None = None,
) -> AssignedCredit:
    """PPO: rows of the policy with whitened GAE advantages (arXiv:1506.02438), and rows of the value model.

    In the latter, `credit` is the return to fit, and `logprobs` are the old values.
    """
    nonempty = [group for group in groups if group]
    every = [scored for group in nonempty for scored in group]
    if not every:
        return AssignedCredit([])
    rows, kl_BT, metrics = bare_rows(nonempty, reference)
    mask_BT = trained_mask(rows)
    budget = settings.learning.token_budget
    values_BT = padded([values.tolist() for values in score(value_model, rows, token_budget=budget)])
    is_last_BT = mask_BT & (mask_BT.cumsum(-1) == mask_BT.sum(-1, keepdim=True))
    rewards_B = torch.tensor([scored.reward for scored in every])
    coef = reference.kl.coef if reference is not None else 0.0
    rewards_BT = torch.where(is_last_BT, rewards_B[:, None], 0.0) - coef * kl_BT
    advantages_BT, returns_BT = gae(
        rewards_BT, values_BT, mask_BT, gamma=settings.gamma, gae_lambda=settings.gae_lambda
    )
    errors, returns = (returns_BT - values_BT)[mask_BT], returns_BT[mask_BT]
    spread = float(returns.var(correction=0))
    if spread > 0:
        metrics["value/explained"] = 1 - float(errors.var(correction=0)) / spread
    to_fit = with_values(
        with_values(rows, "logprobs", values_BT, policy=value_model.name, ref_logprobs=None, versions=()),
        "credit", returns_BT,
    )  # fmt: skip
    credit_BT = whiten(advantages_BT, mask_BT)
    both = [*with_values(rows, "credit", credit_BT), *to_fit]
    return AssignedCredit(both, metrics, mean_credit(every, credit_BT, mask_BT), ADVANTAGES.get("gae").baseline)
