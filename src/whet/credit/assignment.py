"""From groups of scored segments to rows with a credit on every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from whet.config.losses import KLConfig
from whet.credit.advantages import Advantage, Baseline
from whet.credit.rewards import ScoredSegment
from whet.credit.rows import kl_to, trained_mask, with_reference, with_values
from whet.models.policy import Policy
from whet.types import Row, as_row


@dataclass(frozen=True)
class AssignedCredit:
    """Rows and metrics of a step's rewards."""

    rows: list[Row]
    metrics: dict[str, float] = field(default_factory=dict)
    of_segments: dict[int, float] = field(default_factory=dict)
    """Mean credit per token of each segment, by its seed."""
    baseline: Baseline = "group"
    """The rewards that a segment's reward was compared with."""


@dataclass(frozen=True)
class Reference:
    """A frozen policy for a KL, with the KL's settings."""

    policy: Policy
    kl: KLConfig
    token_budget: int


def assign_credit(
    groups: Sequence[Sequence[ScoredSegment]], advantage: Advantage, reference: Reference | None = None, **fields: Any
) -> AssignedCredit:
    """Rewards to rows.

    Args:
        groups: segments that share a baseline. Without members lost to a broken grader, the others form it. A group
            of one is dropped if the baseline is the group.
        reference: for a KL, in the reward or as the rows' `ref_logprobs`. None: no KL.
        fields: other fields of the rows (`kind`, ...).
    """
    usable = [group for group in groups if len(group) >= (2 if advantage.baseline == "group" else 1)]
    every = [scored for group in usable for scored in group]
    if not every:
        return AssignedCredit([])
    rows, kl_BT, metrics = bare_rows(usable, reference, **fields)
    assert advantage.credit is not None, "with a value model: values.assign_credit_with_values"
    mask_BT = trained_mask(rows)
    coef = reference.kl.coef if reference is not None else 0.0
    rewards_B = torch.tensor([scored.reward for scored in every])
    credit_BT = advantage.credit(rewards_B, [len(group) for group in usable], kl_BT, mask_BT, coef)
    return AssignedCredit(
        with_values(rows, "credit", credit_BT), metrics, mean_credit(every, credit_BT, mask_BT), advantage.baseline
    )


def bare_rows(
    groups: Sequence[Sequence[ScoredSegment]], reference: Reference | None, **fields: Any
) -> tuple[list[Row], Tensor, dict[str, float]]:
    """Rows without credit, the KL [B, T] in the reward, and metrics.

    If the KL is a term of the loss, the rows have the reference's logprobs, and the KL is 0. `kl/ref` is there if the
    KL is in the reward.
    """
    rows = [as_row(p.segment, group=f"{p.episode.task.id}/{i}", **fields) for i, g in enumerate(groups) for p in g]
    mask_BT = trained_mask(rows)
    if reference is None or not reference.kl.coef:
        return rows, torch.zeros(mask_BT.shape), {}
    if reference.kl.where == "loss":
        scored = with_reference(rows, reference.policy, token_budget=reference.token_budget)
        return scored, torch.zeros(mask_BT.shape), {}
    kl_BT = kl_to(reference.policy, rows, token_budget=reference.token_budget, estimator=reference.kl.estimator)
    return rows, kl_BT, {"kl/ref": float(kl_BT.sum() / mask_BT.sum())}


def mean_credit(every: Sequence[ScoredSegment], credit_BT: Tensor, mask_BT: Tensor) -> dict[int, float]:
    means = (credit_BT.sum(-1) / mask_BT.sum(-1)).tolist()
    return {scored.segment.seed: mean for scored, mean in zip(every, means, strict=True)}
