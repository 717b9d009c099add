"""Advantages by name: which rewards form a baseline, and the credit of each token.

Each is a pure function of a step's rewards. `objectives.advantages` has the arithmetic.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

import torch
from torch import Tensor

from whet.config.advantages import ADVANTAGES as LISTED
from whet.errors import TooManyFailures
from whet.objectives import group_advantages, leave_one_out, reward_to_go, whiten
from whet.plugins import line_of, said
from whet.registry import Registry

Baseline = Literal["group", "batch", "none"]
Credit = Callable[[Tensor, Sequence[int], Tensor, Tensor, float], Tensor]
"""(rewards [B], group sizes, KL [B, T], mask [B, T], weight of the KL) to credit [B, T], 0 where masked.

Rewards of a group are next to each other. The mask is True for trained tokens, pushed to the left."""


@dataclass(frozen=True)
class Advantage:
    """A rule from rewards to credit."""

    credit: Credit | None
    """None: it needs a value model (`values.assign_credit_with_values`)."""
    baseline: Baseline
    """The rewards that a reward is compared with. `group`: at least two, and equal ones give no credit. `none`: the
    reward is the credit, and 0 gives none."""


class AdvantageError(TooManyFailures, RuntimeError):
    """A user's advantage raised, or did not give a number for each token. The steps before it are saved."""


ADVANTAGES: Registry[Advantage] = LISTED


def advantage(name: str, *, baseline: Baseline = "group", says: str = "") -> Callable[..., Any]:
    """Register a function as an advantage: see `Credit` for its arguments.

    Raises: ValueError where it cannot be called like that. Its result is checked in each step: see `AdvantageError`.
    """

    def decorate(credit: Credit) -> Credit:
        try:
            inspect.signature(credit).bind(None, (), None, None, 0.0)
        except TypeError as error:
            raise ValueError(
                f"the advantage {name!r} has to take (rewards, sizes, kl, mask, kl_coef): {error}"
            ) from error
        says_of = says or (credit.__doc__ or "").strip().partition("\n")[0]
        ADVANTAGES.add(name, Advantage(_checked(name, credit), baseline), says=says_of)
        return credit

    return decorate


def _checked(name: str, credit: Credit) -> Credit:
    """The function, with checks of what `Credit` requires. Credit outside of the mask becomes 0."""

    @wraps(credit)
    def checked(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
        origin = ADVANTAGES.entry(name).origin
        whose = f"the advantage {name!r} of {origin}"
        mend = "mend it, then `whet resume RUN --accept-changes` goes on"
        try:
            credit_BT = credit(rewards_B, sizes, kl_BT, mask_BT, kl_coef)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit and CancelledError too
            if origin == "whet":
                raise
            raise AdvantageError(f"{whose}{line_of(error, origin)} raised {said(error)}; {mend}") from error
        if not isinstance(credit_BT, Tensor) or credit_BT.shape != mask_BT.shape:
            shape = list(credit_BT.shape) if isinstance(credit_BT, Tensor) else f"a {type(credit_BT).__name__}"
            raise AdvantageError(
                f"{whose} gave {shape}, where a tensor {list(mask_BT.shape)} was due, a number for each of "
                f"{mask_BT.shape[0]} rewards and {mask_BT.shape[1]} tokens (rewards[:, None] * mask has that shape); "
                f"{mend}"
            )
        credit_BT = torch.where(mask_BT, credit_BT, 0.0)
        if not credit_BT.isfinite().all() and rewards_B.isfinite().all() and kl_BT.isfinite().all():
            raise AdvantageError(f"{whose} gave NaN or infinity for finite rewards; {mend}")
        return credit_BT

    return checked


def _of_groups(rule: Callable[[Tensor], Tensor], rewards_B: Tensor, sizes: Sequence[int]) -> Tensor:
    """[B], a rule for [1, G] applied to each group."""
    return torch.cat([rule(part[None])[0] for part in rewards_B.split(list(sizes))])


def grpo(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """Centred in the group, divided by its standard deviation (2402.03300); a KL is part of the reward."""
    rewards_B = rewards_B - kl_coef * kl_BT.sum(-1)
    return _of_groups(lambda r: group_advantages(r, divide_by_std=True), rewards_B, sizes)[:, None] * mask_BT


def dr_grpo(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """Centred in the group (2503.20783); a KL is part of the reward."""
    return _of_groups(group_advantages, rewards_B - kl_coef * kl_BT.sum(-1), sizes)[:, None] * mask_BT


def rloo(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """Each against the mean of the others of its group (2402.14740); a KL is part of the reward."""
    return _of_groups(leave_one_out, rewards_B - kl_coef * kl_BT.sum(-1), sizes)[:, None] * mask_BT


def rloo_whitened(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """Leave-one-out on the bare reward, the KL a token summed to the end, whitened over tokens: Critique-RL's code."""
    scalar_B = _of_groups(leave_one_out, rewards_B, sizes)
    return whiten(reward_to_go(scalar_B, kl_BT, mask_BT, kl_coef=kl_coef), mask_BT)


def reinforce_pp(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """Whitened over the batch's tokens (REINFORCE++, 2501.03262)."""
    return whiten(reward_to_go(rewards_B, kl_BT, mask_BT, kl_coef=kl_coef, clamp=math.inf), mask_BT, correction=1)


def reinforce_pp_baseline(
    rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float
) -> Tensor:
    """Centred in the group, then whitened over the batch's tokens."""
    return reinforce_pp(_of_groups(group_advantages, rewards_B, sizes), sizes, kl_BT, mask_BT, kl_coef)


def reward(rewards_B: Tensor, sizes: Sequence[int], kl_BT: Tensor, mask_BT: Tensor, kl_coef: float) -> Tensor:
    """The reward itself: plain REINFORCE."""
    return reward_to_go(rewards_B, kl_BT, mask_BT, kl_coef=kl_coef, clamp=math.inf)


def _ours(credit: Credit, baseline: Baseline = "group") -> Advantage:
    return Advantage(_checked(credit.__name__, credit), baseline)


GRPO = _ours(grpo)
DR_GRPO = _ours(dr_grpo)
RLOO = _ours(rloo)
RLOO_WHITENED = _ours(rloo_whitened)
REINFORCE_PP = _ours(reinforce_pp, "batch")
REINFORCE_PP_BASELINE = _ours(reinforce_pp_baseline)
REWARD = _ours(reward, "none")
GAE = Advantage(None, "batch")
