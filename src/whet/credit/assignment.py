"""Assigns credit: groups of scored segments become rows with a credit on every trained token.

`assign_credit` serves the advantages that compare rewards, and `assign_credit_with_values` PPO's. `pair_rows` makes
preferred and rejected rows. Both kinds of credit are computed on padded tensors [B, T] of the rows' trained tokens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from whet.config.losses import KLConfig, ValueConfig
from whet.credit.advantages import ADVANTAGES, Advantage, Baseline
from whet.credit.rewards import ScoredSegment
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.objectives import gae, whiten
from whet.objectives.ratio import ESTIMATORS
from whet.types import REWARD_ROUNDING, Row, Segment, as_row


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
    """The rows of a step, with the credit that an advantage computes from the rewards.

    Args:
        groups: segments that share a baseline, without those whose grading failed. A group of one is dropped if the
            baseline is the group.
        reference: for a KL, in the reward or as the rows' `ref_logprobs`. None: no KL.
        fields: other fields of the rows (`kind`, ...).
    """
    groups = [group for group in groups if len(group) >= (2 if advantage.baseline == "group" else 1)]
    segments = [scored for group in groups for scored in group]
    if not segments:
        return AssignedCredit([])
    rows, kl_BT, metrics = bare_rows(groups, reference, **fields)
    assert advantage.credit is not None, "with a value model: assign_credit_with_values"
    mask_BT = trained_mask(rows)
    coef = reference.kl.coef if reference is not None else 0.0
    rewards_B = torch.tensor([scored.reward for scored in segments])
    credit_BT = advantage.credit(rewards_B, [len(group) for group in groups], kl_BT, mask_BT, coef)
    return AssignedCredit(
        with_values(rows, "credit", credit_BT), metrics, mean_credit(segments, credit_BT, mask_BT), advantage.baseline
    )


def assign_credit_with_values(
    groups: Sequence[Sequence[ScoredSegment]],
    settings: ValueConfig,
    value_model: Policy,
    reference: Reference | None = None,
) -> AssignedCredit:
    """PPO: rows of the policy with whitened GAE advantages (arXiv:1506.02438), and rows of the value model.

    In the latter, `credit` is the return to fit, and `logprobs` are the old values.
    """
    segments = [scored for group in groups for scored in group]
    if not segments:
        return AssignedCredit([])
    rows, kl_BT, metrics = bare_rows([group for group in groups if group], reference)
    mask_BT = trained_mask(rows)
    values_BT = padded_scores(value_model, rows, token_budget=settings.learning.token_budget)
    is_last_BT = mask_BT & (mask_BT.cumsum(-1) == mask_BT.sum(-1, keepdim=True))
    rewards_B = torch.tensor([scored.reward for scored in segments])
    coef = reference.kl.coef if reference is not None else 0.0
    rewards_BT = torch.where(is_last_BT, rewards_B[:, None], 0.0) - coef * kl_BT
    advantages_BT, returns_BT = gae(
        rewards_BT, values_BT, mask_BT, gamma=settings.gamma, gae_lambda=settings.gae_lambda
    )
    errors, returns = (returns_BT - values_BT)[mask_BT], returns_BT[mask_BT]
    spread = float(returns.var(correction=0))
    if spread > 0:
        metrics["value/explained"] = 1 - float(errors.var(correction=0)) / spread
    credit_BT = whiten(advantages_BT, mask_BT)
    policy_rows = with_values(rows, "credit", credit_BT)
    value_rows = with_values(rows, "logprobs", values_BT, policy=value_model.name, ref_logprobs=None, versions=())
    value_rows = with_values(value_rows, "credit", returns_BT)
    return AssignedCredit(
        [*policy_rows, *value_rows], metrics, mean_credit(segments, credit_BT, mask_BT), ADVANTAGES.get("gae").baseline
    )


def bare_rows(
    groups: Sequence[Sequence[ScoredSegment]], reference: Reference | None, **fields: Any
) -> tuple[list[Row], Tensor, dict[str, float]]:
    """Rows without credit, the KL [B, T] in the reward, and metrics.

    If the KL is a term of the loss, the rows have the reference's logprobs, and the KL is 0. `kl/ref` is there if the
    KL is in the reward.
    """
    rows = [
        as_row(scored.segment, group=f"{scored.episode.task.id}/{number}", **fields)
        for number, group in enumerate(groups)
        for scored in group
    ]
    mask_BT = trained_mask(rows)
    if reference is None or not reference.kl.coef:
        return rows, torch.zeros(mask_BT.shape), {}
    if reference.kl.where == "loss":
        rows = with_reference(rows, reference.policy, token_budget=reference.token_budget)
        return rows, torch.zeros(mask_BT.shape), {}
    kl_BT = kl_to(reference.policy, rows, token_budget=reference.token_budget, estimator=reference.kl.estimator)
    return rows, kl_BT, {"kl/ref": float(kl_BT.sum() / mask_BT.sum())}


def mean_credit(segments: Sequence[ScoredSegment], credit_BT: Tensor, mask_BT: Tensor) -> dict[int, float]:
    """Mean credit per token of each segment, by its seed."""
    means = (credit_BT.sum(-1) / mask_BT.sum(-1)).tolist()
    return {scored.segment.seed: mean for scored, mean in zip(segments, means, strict=True)}


# --- padded tensors ---------------------------------------------------------------------------------------------------


def padded(rows: Sequence[Sequence[float]]) -> Tensor:
    """[B, T] with zeros on the right."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0.0] * (longest - len(row))] for row in rows])


def padded_scores(model: Policy, rows: Sequence[Row], *, token_budget: int) -> Tensor:
    """[B, T], what `models.scoring.score` gives each trained token: logprobs, or a value model's values."""
    return padded([values.tolist() for values in score(model, rows, token_budget=token_budget)])


def trained_mask(rows: Sequence[Row]) -> Tensor:
    """[B, T] bool: the trained tokens of each row, pushed to the left."""
    counts_B1 = torch.tensor([[row.num_trained] for row in rows])
    return torch.arange(int(counts_B1.max())) < counts_B1


def with_values(rows: Sequence[Row], name: str, values_BT: Tensor, **fields: Any) -> list[Row]:
    """The rows with a field over trained tokens (credit, logprobs, ref_logprobs) taken from a padded tensor."""
    pairs = zip(rows, values_BT.float().numpy(), strict=True)
    return [replace(row, **{name: values[: row.num_trained].copy(), **fields}) for row, values in pairs]


def kl_to(reference: Policy, rows: Sequence[Row], *, token_budget: int, estimator: str = "k1") -> Tensor:
    """[B, T] estimates of KL(sampler || reference) at each trained token, 0 elsewhere."""
    mask_BT = trained_mask(rows)
    ref_BT = padded_scores(reference, rows, token_budget=token_budget)
    sampler_BT = padded([row.logprobs.tolist() for row in rows if row.logprobs is not None])
    return torch.where(mask_BT, ESTIMATORS[estimator](sampler_BT, ref_BT), 0.0)


def with_reference(rows: Sequence[Row], reference: Policy, *, token_budget: int) -> list[Row]:
    """The rows with the reference's logprobs, for terms that need them."""
    if not rows:
        return []
    return with_values(rows, "ref_logprobs", padded_scores(reference, rows, token_budget=token_budget))


# --- groups with a signal ---------------------------------------------------------------------------------------------


def differ(segments: Sequence[Segment]) -> bool:
    """Whether the scores differ, so that some replies are better than others (DAPO's dynamic sampling)."""
    return len({segment.grade.score for segment in segments if segment.grade is not None}) > 1


def is_mixed(group: Sequence[ScoredSegment]) -> bool:
    """Whether the rewards differ, penalties on length included."""
    return len({scored.reward for scored in group}) > 1


# --- pairs ------------------------------------------------------------------------------------------------------------


def best_and_worst(
    group: Sequence[ScoredSegment], rng: random.Random, *, margin: float = 0.0
) -> tuple[ScoredSegment, ScoredSegment] | None:
    """The segments with the greatest and the least reward of a group, drawn among equals.

    Returns: None if the rewards are equal, or less than `margin` apart.
    """
    if not group:
        return None
    rewards = [scored.reward for scored in group]
    high, low = max(rewards), min(rewards)
    if high == low or high - low < margin - REWARD_ROUNDING:
        return None
    best, worst = ([scored for scored in group if scored.reward == reward] for reward in (high, low))
    return rng.choice(best), rng.choice(worst)


def pair_rows(chosen: ScoredSegment, rejected: ScoredSegment, name: str, **fields: Any) -> list[Row]:
    """The preferred row and then the other, as one bundle.

    Args:
        name: of the bundle, unique in its step.
        fields: other fields of the rows (`kind`, ...).
    """
    return [
        as_row(scored.segment, credit, bundle=name, **fields) for scored, credit in ((chosen, 1.0), (rejected, -1.0))
    ]
