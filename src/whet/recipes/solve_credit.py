"""From graded replies to rows: what each is paid, and what credit that gives its tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import torch
from torch import Tensor

from whet.config.parts import SamplingConfig
from whet.evals.protocol import is_right
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.objectives import gae, group_advantages, leave_one_out, reward_to_go, whiten
from whet.recipes.rows import kl_to, padded, per_token, trained_mask, with_credit
from whet.recipes.solve_config import SolveConfig
from whet.training.watch import Signs
from whet.types import Row, Segment, as_row

VALUE_MODEL = "value_model"


@dataclass(frozen=True)
class Paid:
    """One reply and its reward."""

    segment: Segment
    reward: float


@dataclass(frozen=True)
class Credit:
    rows: list[Row]
    """Of the policy, and of the value model where there is one."""
    metrics: dict[str, float]
    of_replies: dict[int, float] = field(default_factory=dict)
    """Mean credit a token of each reply, by its seed."""


def pay(config: SolveConfig, segment: Segment) -> float:
    """The score, 0 to 1 or (`signed`) -1 to 1, less the penalty on length (DAPO, arXiv:2503.14476, eq. 13)."""
    assert segment.grade is not None
    assert segment.grade.score is not None
    score = 2 * segment.grade.score - 1 if config.signed else segment.grade.score
    free = config.sampling.max_new_tokens - config.overlong
    return score - (max(0, len(segment.tokens) - free) / config.overlong if config.overlong else 0.0)


def credit(
    config: SolveConfig, groups: Sequence[Sequence[Paid]], reference: Policy | None, value_model: Policy | None
) -> Credit:
    """Rewards to rows with a credit on every token.

    Args:
        groups: the replies to each task, in order; those whose grading failed are not among them.
        reference: for the KL; None where there is none.
        value_model: for `gae`.

    A group that lost members forms its baseline from the others; a lone one is dropped where a baseline is taken.
    """
    compares = config.advantage in ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline")
    kept = [group for group in groups if len(group) >= (2 if compares else 1)]
    every = [paid for group in kept for paid in group]
    if not every:
        return Credit([], {})
    sizes = [len(group) for group in kept]
    names = [f"{group[0].segment.group['task']}" for group in kept for _ in group]
    rows = [as_row(p.segment, [0.0] * len(p.segment.tokens), group=g) for p, g in zip(every, names, strict=True)]
    mask_BT = trained_mask(rows)
    rewards_B = torch.tensor([paid.reward for paid in every])
    budget, kl = config.learning.token_budget, config.kl
    metrics: dict[str, float] = {}
    kl_BT = torch.zeros(mask_BT.shape)
    if reference is not None and kl.where == "reward":
        kl_BT = kl_to(reference, rows, token_budget=budget, estimator=kl.estimator)
        metrics["kl/ref"] = float(kl_BT.sum() / mask_BT.sum())
    elif reference is not None:
        scores = score(reference, rows, token_budget=budget)
        rows = [replace(row, ref_logprobs=per_token(row, s.tolist())) for row, s in zip(rows, scores, strict=True)]
    if config.advantage == "gae":
        assert value_model is not None
        return _with_values(config, every, rows, rewards_B, kl_BT, value_model, metrics)
    credit_BT = advantages(config, rewards_B, sizes, kl_BT, mask_BT)
    return Credit(with_credit(rows, credit_BT), metrics, _of_replies(every, credit_BT, mask_BT))


def advantages(config: SolveConfig, rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """[B, T] credit of every token, by `config.advantage`; see `whet.objectives.advantages`.

    Args:
        rewards_B: of replies; those of one group are next to each other.
        sizes: of the groups.
        kl_BT: paid for, `config.kl.coef` each.
    """
    kind, coef = config.advantage, config.kl.coef
    if kind in ("grpo", "dr_grpo", "rloo"):  # the KL is part of a reply's reward, and compared like it
        parts = (rewards_B - coef * kl_BT.sum(-1)).split(list(sizes))
        if kind == "rloo":
            scalar_B = torch.cat([leave_one_out(part[None])[0] for part in parts])
        else:
            scalar_B = torch.cat([group_advantages(part[None], divide_by_std=kind == "grpo")[0] for part in parts])
        return scalar_B[:, None] * mask_BT
    if kind == "reinforce_pp_baseline":
        rewards_B = torch.cat([group_advantages(part[None])[0] for part in rewards_B.split(list(sizes))])
    returns_BT = reward_to_go(rewards_B, kl_BT, mask_BT, kl_coef=coef, clamp=math.inf)
    return returns_BT if kind == "reward" else whiten(returns_BT, mask_BT, correction=1)


def _with_values(
    config: SolveConfig,
    replies: Sequence[Paid],
    rows: Sequence[Row],
    rewards_B: Tensor,
    kl_BT: Tensor,
    value_model: Policy,
    metrics: dict[str, float],
) -> Credit:
    """PPO: rows of the policy with whitened GAE advantages, and rows of the value model with returns to fit."""
    mask_BT = trained_mask(rows)
    values_BT = padded([v.tolist() for v in score(value_model, rows, token_budget=config.value.learning.token_budget)])
    is_last_BT = mask_BT & (mask_BT.cumsum(-1) == mask_BT.sum(-1, keepdim=True))
    rewards_BT = torch.where(is_last_BT, rewards_B[:, None], 0.0) - config.kl.coef * kl_BT
    advantages_BT, returns_BT = gae(
        rewards_BT, values_BT, mask_BT, gamma=config.value.gamma, gae_lambda=config.value.gae_lambda
    )
    errors, returns = (returns_BT - values_BT)[mask_BT], returns_BT[mask_BT]
    spread = float(returns.var(correction=0))
    if spread > 0:
        metrics["value/explained"] = 1 - float(errors.var(correction=0)) / spread
    to_fit = [
        replace(row, policy=VALUE_MODEL, logprobs=per_token(row, values), ref_logprobs=None, versions=())
        for row, values in zip(rows, values_BT.tolist(), strict=True)
    ]
    credit_BT = whiten(advantages_BT, mask_BT)
    both = [*with_credit(rows, credit_BT), *with_credit(to_fit, returns_BT)]
    return Credit(both, metrics, _of_replies(replies, credit_BT, mask_BT))


def _of_replies(replies: Sequence[Paid], credit_BT: Tensor, mask_BT: Tensor) -> dict[int, float]:
    means = (credit_BT.sum(-1) / mask_BT.sum(-1)).tolist()
    return {paid.segment.seed: mean for paid, mean in zip(replies, means, strict=True)}


def all_right(group: Sequence[Paid]) -> bool:
    """By the scores: what replies cost for their length is another matter."""
    return all(is_right(paid.segment) for paid in group)


def all_wrong(group: Sequence[Paid]) -> bool:
    """None is right, and by the scores none is better than another."""
    return len({p.segment.grade.score for p in group if p.segment.grade}) == 1 and not is_right(group[0].segment)


def signs(config: SolveConfig, groups: Sequence[Sequence[Paid]], num_failed: int) -> Signs:
    """What a step's replies say about learning.

    Whether they earn credit is asked of their pay alone: the KL pulls back to the reference, and teaches nothing.

    Args:
        groups: the replies to each task, before any are left out; those whose grading failed are not among them.
    """
    every = [paid for group in groups for paid in group]
    if config.advantage == "reward":
        taught = any(paid.reward for paid in every)
    else:
        compared = [every] if config.advantage in ("reinforce_pp", "gae") else groups
        taught = any(len({paid.reward for paid in group}) > 1 and not all_wrong(group) for group in compared)
    return Signs(
        replies=len(every) + num_failed,
        right=sum(is_right(paid.segment) for paid in every),
        unread=sum(p.segment.grade is not None and p.segment.grade.extracted is None for p in every),
        cut=sum(paid.segment.stop_reason == "length" for paid in every),
        ungraded=num_failed,
        taught=taught,
    )


def reward_metrics(groups: Sequence[Sequence[Paid]], sampling: SamplingConfig) -> dict[str, float]:
    """Means over the replies that a step finished, before any of them is left out."""
    every = [paid for group in groups for paid in group]
    if not every:
        return {}
    lengths = [len(paid.segment.tokens) for paid in every]
    means = [fmean(paid.reward for paid in group) for group in groups if group]
    metrics = {
        "reward/mean": fmean(paid.reward for paid in every),
        "reward/correct": fmean(is_right(paid.segment) for paid in every),
        "length/mean": fmean(lengths),
        "length/truncated": fmean(paid.segment.stop_reason == "length" for paid in every),
    }
    if compared := [group for group in groups if len(group) > 1]:
        metrics["group/no_signal"] = fmean(len({paid.reward for paid in group}) == 1 for group in compared)
        metrics["group/all_right"] = fmean(all_right(group) for group in compared)
        metrics["group/all_wrong"] = fmean(all_wrong(group) for group in compared)
    if (
        sampling.temperature == 1 and sampling.top_p == 1
    ):  # each sampled token's -log p is an unbiased estimate of its distribution's entropy
        metrics["entropy/sampled"] = -sum(sum(paid.segment.logprobs) for paid in every) / sum(lengths)
    for name, sign in (("good", 1), ("bad", -1)):
        those = [
            len(paid.segment.tokens)
            for group, mean in zip([g for g in groups if g], means, strict=True)
            for paid in group
            if len({other.reward for other in group}) > 1 and (paid.reward - mean) * sign > 0  # a mean may round
        ]
        if those:
            metrics[f"length/{name}"] = fmean(those)
    return metrics
