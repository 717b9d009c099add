"""Advantages by name: which rewards form a baseline, and what credit is left for each token.

Every one is a pure function of a step's rewards. `objectives.advantages` has the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from whet.objectives import group_advantages, leave_one_out, reward_to_go, whiten
from whet.registry import Registry

Credit = Callable[[Tensor, Sequence[int], Tensor, Tensor, float], Tensor]
"""(rewards [B], sizes of the groups, whose rewards are next to each other, KL [B, T], mask [B, T] of trained tokens
pushed to the left, weight of the KL) to credit [B, T], 0 where masked."""


@dataclass(frozen=True)
class Advantage:
    """A way from rewards to credit."""

    credit: Credit | None
    """None: it takes a value model (`values.earn_with_values`)."""
    baseline: Literal["group", "batch", "none"]
    """Whose rewards a segment's is held against. In a group it takes two at least; where all are alike, nothing is
    learnt. `none`: the reward is the credit, and nothing is learnt where it is 0."""


ADVANTAGES: Registry[Advantage] = Registry("advantage")


def advantage(
    name: str, *, baseline: Literal["group", "batch", "none"] = "group", says: str = ""
) -> Callable[..., Any]:
    """Register a function as an advantage: see `Credit` for its arguments."""

    def decorate(credit: Credit) -> Credit:
        ADVANTAGES.add(name, Advantage(credit, baseline), says=says or (credit.__doc__ or "").partition("\n")[0])
        return credit

    return decorate


def _of_groups(rule: Callable[[Tensor], Tensor], rewards_B: Tensor, sizes: Sequence[int]) -> Tensor:
    """[B], a rule for [1, G] applied to each group."""
    return torch.cat([rule(part[None])[0] for part in rewards_B.split(list(sizes))])


@advantage("grpo")
def grpo(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """Centred in the group, divided by its standard deviation (2402.03300); a KL is part of the reward."""
    rewards_B = rewards_B - kl_coef * kl_BT.sum(-1)
    return _of_groups(lambda r: group_advantages(r, divide_by_std=True), rewards_B, sizes)[:, None] * mask_BT


@advantage("dr_grpo")
def dr_grpo(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """Centred in the group (2503.20783); a KL is part of the reward."""
    return _of_groups(group_advantages, rewards_B - kl_coef * kl_BT.sum(-1), sizes)[:, None] * mask_BT


@advantage("rloo")
def rloo(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """Each against the mean of the others of its group (2402.14740); a KL is part of the reward."""
    return _of_groups(leave_one_out, rewards_B - kl_coef * kl_BT.sum(-1), sizes)[:, None] * mask_BT


@advantage("rloo_whitened")
def rloo_whitened(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """Leave-one-out on the bare reward, the KL a token summed to the end, whitened over tokens: Critique-RL's code."""
    scalar_B = _of_groups(leave_one_out, rewards_B, sizes)
    return whiten(reward_to_go(scalar_B, kl_BT, mask_BT, kl_coef=kl_coef), mask_BT)


@advantage("reinforce_pp", baseline="batch")
def reinforce_pp(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """Whitened over the batch's tokens (REINFORCE++, 2501.03262)."""
    return whiten(reward_to_go(rewards_B, kl_BT, mask_BT, kl_coef=kl_coef, clamp=math.inf), mask_BT, correction=1)


@advantage("reinforce_pp_baseline")
def reinforce_pp_baseline(
    rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float
) -> Tensor:
    """Centred in the group, then whitened over the batch's tokens."""
    return reinforce_pp(_of_groups(group_advantages, rewards_B, sizes), sizes, kl_BT, mask_BT, kl_coef)


@advantage("reward", baseline="none")
def reward(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """As paid: plain REINFORCE."""
    return reward_to_go(rewards_B, kl_BT, mask_BT, kl_coef=kl_coef, clamp=math.inf)


ADVANTAGES.add("gae", Advantage(None, "batch"), says="PPO's, with a value model (1506.02438)")
