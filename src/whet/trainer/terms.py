"""How a policy learns from rows: an update is a sum of terms, each a loss over the rows that it selects.

A method gives the learner an `Update` for every step. The losses are pure functions of `whet.objectives`. `on_tokens`,
`on_likelihood`, `to_reference`, `on_entropy` and `on_pairs` bind them to what a pass over rows offers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from whet.config.parts import LearningConfig
from whet.models.policy import Policy
from whet.models.scoring import MicroBatch
from whet.objectives import Aggregation
from whet.objectives.pairwise import row_sums
from whet.trainer.flat import Tokens

Loss = Callable[..., tuple[Tensor, dict[str, Tensor]]]
"""From a `Pass`, and by keyword the settings of `Term.choose`, to a summed loss and summed, detached metrics."""

Choose = Callable[[Tensor, Tensor, Tensor], tuple[Mapping[str, float], Mapping[str, float]]]
"""From (policy logprobs, old logprobs, credit) to settings of the loss, such as BAPO's bounds, and to metrics.

The tensors are [N], over the trained tokens of the whole minibatch."""

Correct = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From (proximal logprobs, sampler's logprobs, loss mask) to factors of the token weights, all [B, T]."""


# --- updates, their terms, and what these see -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pass:
    """What a term sees of the rows that it takes: tensors of B rows and T tokens.

    They are [B, T] where nothing else is said. Values outside of the mask mean nothing.
    """

    policy: Tensor
    """Logprobs under the policy that is trained (a value model's values), nats. Carries the gradient."""
    old: Tensor
    """Logprobs of the ratio's denominator (a value model's old values), nats. See `Update.proximal`."""
    reference: Tensor | None
    """Logprobs under a frozen reference, where a term needs them, nats."""
    credit: Tensor
    entropy: Tensor
    """Of the policy's distribution at each token, nats. Carries a gradient where a term asks for it
    (`Term.needs_entropy`)."""
    mask: Tensor
    """bool, True where the token trains."""
    weight: Tensor
    """The factor of each token's loss: the row's weight over the aggregation's divisor."""
    extra: Mapping[str, Tensor]
    """[B], the rows' numbers by name; NaN where a row lacks one."""
    bundles: tuple[tuple[int, ...], ...]
    """Indices of the rows that stay together, in the order of the step's rows."""

    def weighted(self, weight: Tensor) -> Pass:
        """The same pass with these token weights, [B, T]."""
        return replace(self, weight=weight)

    def of(self, rows: Sequence[int]) -> Pass:
        """The rows with these indices, in this order, and the bundles that are whole among them."""
        index_of = {row: i for i, row in enumerate(rows)}
        return Pass(
            policy=self.policy[rows],
            old=self.old[rows],
            reference=None if self.reference is None else self.reference[rows],
            credit=self.credit[rows],
            entropy=self.entropy[rows],
            mask=self.mask[rows],
            weight=self.weight[rows],
            extra={name: values[rows] for name, values in self.extra.items()},
            bundles=tuple(
                tuple(index_of[i] for i in bundle) for bundle in self.bundles if all(i in index_of for i in bundle)
            ),
        )


@dataclass(frozen=True)
class Term:
    """One summand of an update's loss."""

    loss: Loss
    kinds: frozenset[str] | None = None
    """The kinds of rows that it takes. None: all."""
    weight: float = 1.0
    aggregation: Aggregation = "token_mean"
    """The divisor of a token's loss, over the minibatch's rows that the term takes. A term of pairs is a mean over
    bundles."""
    constant_length: int | None = None
    """Tokens. The divisor of aggregation `constant`."""
    name: str = ""
    """Prefix of the names of its metrics, `name.loss/...`. Empty: no prefix."""
    choose: Choose | None = None
    """Chooses settings of the loss that depend on all tokens of an update, once before each. Where the rows take
    several passes, they are scored once more for it, which costs about a third of the update."""
    needs_old: bool = True
    """False: the loss takes no ratio to older weights (likelihood)."""
    needs_reference: bool = False
    """Whether every row that it takes needs `ref_logprobs`."""
    needs_entropy: bool = False
    """Whether the loss learns from the entropy itself. The entropy's gradient costs a pass more memory."""
    needs_credit: bool = True
    """False: a token without credit changes the loss too (an entropy bonus, a KL), so passes compute such rows. A row
    that changes no term's loss is in no pass: it counts in the averages of the loss, and nothing else."""
    of_bundles: bool = False
    """Whether it compares the rows of a bundle."""
    corrected: bool = True
    """Whether `Update.correct` weighs its tokens. It never weighs those of bundles: a pair has one weight."""

    def takes(self, kind: str) -> bool:
        """Whether the term takes rows of this kind."""
        return self.kinds is None or kind in self.kinds

    def prefixed(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Metrics under the names that the term gives them: see `name`."""
        return {f"{self.name}.{key}" if self.name else key: value for key, value in metrics.items()}


class Observer(Protocol):
    """Measures one update. Each update gets a new one."""

    def saw(self, tokens: Tokens, batch: MicroBatch, loss: Tensor, logprobs_N: Tensor, weights_B: Tensor) -> None:
        """Runs after each pass, before its backward pass.

        Args:
            tokens: of the pass, without gradient.
            loss: the first term's, a scalar.
            logprobs_N: [N], with their gradient.
            weights_B: [B] of the minibatch, the factor of each row's token losses in the first term.
        """

    def join(self, parts: Sequence[Any]) -> None:
        """Runs where several processes train one policy, after the last pass: takes over what all of them saw.

        Args:
            parts: each process's observer, this one's too, by rank. They travel by pickle.
        """

    def before(self, chosen: Mapping[str, float]) -> Mapping[str, float]:
        """Metrics before the optimiser's step.

        Args:
            chosen: settings of the first term's loss (see `Term.choose`).
        """

    def after(self, policy: Policy, num_updates: int) -> Mapping[str, float]:
        """Metrics after the optimiser's step.

        Args:
            num_updates: optimiser steps of the phase so far.
        """


@dataclass(frozen=True)
class Update:
    """How a policy learns from a step's rows: the terms of the loss, and the optimiser's settings."""

    terms: tuple[Term, ...]
    learning: LearningConfig
    num_updates: int
    """Optimiser updates in the whole phase, for the learning rate's schedule."""
    proximal: bool = False
    """Whose logprobs are the ratio's denominator. False: the sampler's, whichever weights it had. True: those of the
    weights that this step starts from, scored before the first update."""
    from_sampler: bool = True
    """Whether the rows' logprobs are those of the weights that sampled them. False: they are an anchor's, and the
    distance to it says nothing about the sampler."""
    correct: Correct | None = None
    """With `proximal`: weighs tokens by how the proximal policy and the sampler differ."""
    scored_in_pass: bool = False
    """With `proximal`: where a step makes a single update, its own passes give the logprobs of the weights that the
    step starts from, and no pass is made for them alone. They agree with such a pass's to rounding."""
    observers: tuple[Callable[[], Observer], ...] = ()

    def learning_rate(self, update: int) -> float:
        """Of the optimiser step of that number, from 0: linear warm-up, then a cosine from the peak to its floor."""
        settings = self.learning
        if update < settings.warmup_steps:
            return settings.learning_rate * (update + 1) / settings.warmup_steps
        span = max(1, self.num_updates - settings.warmup_steps)
        progress = min(1.0, (update - settings.warmup_steps) / span)
        share = settings.final_share + (1 - settings.final_share) * 0.5 * (1 + math.cos(math.pi * progress))
        return settings.learning_rate * share


# --- losses of `whet.objectives` as terms see them --------------------------------------------------------------------


def on_tokens(loss: Callable[..., tuple[Tensor, dict[str, Tensor]]], **settings: Any) -> Loss:
    """A policy loss in the convention of `clipped_policy_loss`."""
    return lambda seen, **chosen: loss(seen.policy, seen.old, seen.credit, seen.mask, seen.weight, **settings, **chosen)


def on_likelihood(loss: Callable[..., tuple[Tensor, dict[str, Tensor]]], **settings: Any) -> Loss:
    """A loss that takes no ratio, such as `weighted_nll`."""
    return lambda seen, **chosen: loss(seen.policy, seen.credit, seen.mask, seen.weight, **settings, **chosen)


def to_reference(loss: Callable[..., tuple[Tensor, dict[str, Tensor]]], **settings: Any) -> Loss:
    """A loss between policy and reference, such as `kl_loss`."""
    return lambda seen, **chosen: loss(seen.policy, seen.reference, seen.mask, seen.weight, **settings, **chosen)


def on_entropy(loss: Callable[..., tuple[Tensor, dict[str, Tensor]]]) -> Loss:
    """A loss of the distributions' entropies, such as `entropy_loss`."""
    return lambda seen, **chosen: loss(seen.entropy, seen.mask, seen.weight, **chosen)


def on_pairs(loss: Callable[..., tuple[Tensor, dict[str, Tensor]]], *, mean: bool = False, **settings: Any) -> Loss:
    """A preference loss on bundles, such as `pairwise_loss`.

    The rows of a bundle with credit above 0 are the preferred side, and the others are the rejected side. A side is one
    row, or the rows of an episode.

    Args:
        mean: whether a side's gain is the mean of its log ratios to the reference. False: their sum.
    """

    def pair_loss(seen: Pass, **chosen: float) -> tuple[Tensor, dict[str, Tensor]]:
        assert seen.reference is not None
        sums_B = row_sums(seen.policy - seen.reference, seen.mask)
        is_preferred_B = ((seen.credit > 0) & seen.mask).any(-1)
        is_member_PB = torch.zeros(len(seen.bundles), len(sums_B), dtype=torch.bool, device=sums_B.device)
        for pair, rows in enumerate(seen.bundles):
            is_member_PB[pair, list(rows)] = True
        sides = [is_member_PB & is_preferred_B, is_member_PB & ~is_preferred_B]
        gains = [torch.where(side_PB, sums_B, 0.0).sum(-1) for side_PB in sides]
        if mean:
            counts = [torch.where(side_PB, seen.mask.sum(-1), 0).sum(-1) for side_PB in sides]
            gains = [gain_P / count_P.clamp(min=1) for gain_P, count_P in zip(gains, counts, strict=True)]
        weight_P = seen.weight[[rows[0] for rows in seen.bundles], 0]
        return loss(*gains, weight_P, **settings, **chosen)

    return pair_loss


# --- names of metrics -------------------------------------------------------------------------------------------------

METRIC_NAMES = {
    "num_clipped_low": "clip/low",
    "num_clipped_high": "clip/high",
    "num_dual": "clip/dual",
    "approx_kl_sum": "kl/old",
    "kl_ref_sum": "kl/ref",
    "ratio_sum": "ratio/mean",
    "ratio_max": "ratio/max",
    "value_error_sum": "value/error",
    "value_sum": "value/mean",
    "return_sum": "value/returns",
    "num_value_clipped": "value/clipped",
    "pair_right_sum": "pair/right",
    "pair_margin_sum": "pair/margin",
    "chosen_sum": "pair/chosen",
    "rejected_sum": "pair/rejected",
}
"""Metric names of some of the objectives' sums, once divided. Any other `x_sum` or `num_x` becomes `loss/x`."""
OF_PAIRS = frozenset({"pair_right_sum", "pair_margin_sum", "chosen_sum", "rejected_sum"})
"""Sums over pairs. The others are sums over trained tokens."""
COUNTS = ("num_tokens", "num_pairs")
"""The divisors."""
SPREAD = ("bounds/low", "bounds/high", "optim/grad_norm")
"""Metrics whose smallest and largest value of a step are logged too."""


def named(sums: Mapping[str, float]) -> dict[str, float]:
    """The objectives' sums as metrics: divided by the number of pairs or of trained tokens (`_max`: as they are)."""
    metrics = {}
    for name, value in sums.items():
        if name in COUNTS:
            continue
        count = max(sums.get(COUNTS[name in OF_PAIRS], 0.0), 1.0)
        metric = METRIC_NAMES.get(name) or f"loss/{name.removesuffix('_sum').removeprefix('num_')}"
        metrics[metric] = value if name.endswith("_max") else value / count
    return metrics


def means_of(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each metric's mean over the updates that have it (`/max`: the largest)."""
    values: dict[str, list[float]] = defaultdict(list)
    for update in updates:
        for name, value in update.items():
            values[name].append(value)
    means = {
        name: max(numbers) if name.endswith("/max") else sum(numbers) / len(numbers) for name, numbers in values.items()
    }
    for name in SPREAD:
        if name in values:
            means |= {f"{name}_min": min(values[name]), f"{name}_max": max(values[name])}
    return means
