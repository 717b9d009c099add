"""How a policy learns from rows: an update is a sum of terms, each a loss over the rows that it selects.

A method hands the learner an `Update` for every step. The losses are pure functions of `whet.objectives`; `on_tokens`,
`to_reference` and `on_pairs` bind them to what a pass over rows offers.
"""

from __future__ import annotations

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
"""(a `Pass`, and by name what was chosen before it) to a summed loss and summed, detached metrics."""

Choose = Callable[[Tensor, Tensor, Tensor], tuple[Mapping[str, float], Mapping[str, float]]]
"""(policy logprobs, old logprobs, credit), all [N], the trained tokens of a whole minibatch, to settings of its loss
and to metrics: BAPO's bounds, M2PO's limit."""

Correct = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(proximal logprobs, sampler's logprobs, loss mask), all [B, T], to factors of the token weights."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What a term sees of the rows that it takes. B rows, T tokens; [B, T] where nothing else is said, and what stands
    outside of the mask means nothing."""

    policy: Tensor
    """Logprobs under the policy that is trained (a value model's values); carries the gradient."""
    old: Tensor
    reference: Tensor | None
    """Logprobs of a frozen reference, where the term needs them."""
    credit: Tensor
    entropy: Tensor
    """Of the distribution that each token was drawn from, under the policy, nats; carries a gradient where a term asks
    for it (`Term.needs_entropy`)."""
    mask: Tensor
    """bool."""
    weight: Tensor
    """Of each token's loss: the row's weight over what the aggregation divides by."""
    extra: Mapping[str, Tensor]
    """[B], the rows' numbers by name; NaN where a row lacks one."""
    bundles: tuple[tuple[int, ...], ...]
    """Which rows stay together, in the order in which they were given."""

    def weighted(self, weight: Tensor) -> Pass:
        return replace(self, weight=weight)

    def of(self, rows: Sequence[int]) -> Pass:
        """Some of the rows, in this order."""
        place = {row: i for i, row in enumerate(rows)}
        return Pass(
            self.policy[rows], self.old[rows], None if self.reference is None else self.reference[rows],
            self.credit[rows], self.entropy[rows], self.mask[rows], self.weight[rows],
            {k: v[rows] for k, v in self.extra.items()},
            tuple(tuple(place[i] for i in each) for each in self.bundles if all(i in place for i in each)),
        )  # fmt: skip


@dataclass(frozen=True)
class Term:
    """One summand of an update's loss."""

    loss: Loss
    kinds: frozenset[str] | None = None
    """Of the rows that it takes. None: all."""
    weight: float = 1.0
    aggregation: Aggregation = "token_mean"
    """What a token's loss is divided by, over the minibatch's rows that the term takes. A term of pairs is a mean over
    bundles."""
    constant_length: int | None = None
    """Tokens; of aggregation `constant`."""
    name: str = ""
    """Before the names of its metrics, `name.loss/...`. Empty: they go by their bare names."""
    choose: Choose | None = None
    """Settings of the loss that depend on all tokens of an update. Asked once an update. Where its rows take several
    passes, they are scored once more before it, which costs about a third of the update."""
    needs_old: bool = True
    """False: it looks at no ratio to older weights (likelihood)."""
    needs_reference: bool = False
    """Every row that it takes has `ref_logprobs`."""
    needs_entropy: bool = False
    """It learns from the entropy itself, whose gradient costs a pass more memory."""
    needs_credit: bool = True
    """False: a token without credit feels it too (an entropy bonus, a KL), so such rows are computed. Rows that no term
    feels are left out of every pass: they count in the averages of the loss, and nothing else."""
    of_bundles: bool = False
    """It compares the rows of a bundle."""
    corrected: bool = True
    """Whether `Update.correct` weighs its tokens. Those of bundles it never does: a pair has one weight."""

    def takes(self, kind: str) -> bool:
        return self.kinds is None or kind in self.kinds


class Observer(Protocol):
    """Looks on at one update; a new one is made for each."""

    def saw(self, tokens: Tokens, batch: MicroBatch, loss: Tensor, logprobs_N: Tensor, weights_B: Tensor) -> None:
        """After each pass, before its backward pass.

        Args:
            loss: the first term's.
            logprobs_N: with their gradient.
        """

    def before(self, chosen: Mapping[str, float]) -> Mapping[str, float]:
        """Metrics, before the optimiser's step."""

    def after(self, policy: Policy, num_updates: int) -> Mapping[str, float]:
        """Metrics, after it."""


@dataclass(frozen=True)
class Update:
    """How a policy learns from a step's rows: the terms of the loss, and the optimiser's settings."""

    terms: tuple[Term, ...]
    learning: LearningConfig
    num_updates: int
    """Optimiser updates in the whole phase, for the learning rate's schedule."""
    proximal: bool = False
    """What the ratio is taken to. False: the sampler's logprobs, whichever weights they came from. True: those of the
    weights that this step starts from, scored before the first update."""
    from_sampler: bool = True
    """Whether the rows' logprobs are those of the weights that sampled them. False: they are an anchor's, and how far
    the policy is from it says nothing of the sampler."""
    correct: Correct | None = None
    """With `proximal`: weighs tokens by how the proximal policy and the sampler differ."""
    observers: tuple[Callable[[], Observer], ...] = ()


# --- losses of `whet.objectives` as terms see them --------------------------------------------------------------------


def on_tokens(loss: Callable[..., tuple[Tensor, dict[str, Tensor]]], **settings: Any) -> Loss:
    """A policy loss in the convention of `clipped_policy_loss`."""
    return lambda seen, **chosen: loss(seen.policy, seen.old, seen.credit, seen.mask, seen.weight, **settings, **chosen)


def on_likelihood(loss: Callable[..., tuple[Tensor, dict[str, Tensor]]], **settings: Any) -> Loss:
    """A loss that looks at no ratio, such as `weighted_nll`."""
    return lambda seen, **chosen: loss(seen.policy, seen.credit, seen.mask, seen.weight, **settings, **chosen)


def to_reference(loss: Callable[..., tuple[Tensor, dict[str, Tensor]]], **settings: Any) -> Loss:
    """A loss between policy and reference, such as `kl_loss`."""
    return lambda seen, **chosen: loss(seen.policy, seen.reference, seen.mask, seen.weight, **settings, **chosen)


def on_entropy(loss: Callable[..., tuple[Tensor, dict[str, Tensor]]]) -> Loss:
    """A loss of the distributions' entropies, such as `entropy_loss`."""
    return lambda seen, **chosen: loss(seen.entropy, seen.mask, seen.weight, **chosen)


def on_pairs(loss: Callable[..., tuple[Tensor, dict[str, Tensor]]], *, mean: bool = False, **settings: Any) -> Loss:
    """A preference loss on bundles, such as `pairwise_loss`. Of a bundle the rows whose credit is above 0 are the
    preferred side, the others the other one: a side is a row, or the several ones of an episode.

    Args:
        mean: the mean of a side's log ratios to the reference, not their sum.
    """

    def of(seen: Pass, **chosen: float) -> tuple[Tensor, dict[str, Tensor]]:
        assert seen.reference is not None
        sums_B = row_sums(seen.policy - seen.reference, seen.mask)
        is_preferred_B = ((seen.credit > 0) & seen.mask).any(-1)
        is_own_PB = torch.zeros(len(seen.bundles), len(sums_B), dtype=torch.bool, device=sums_B.device)
        for pair, rows in enumerate(seen.bundles):
            is_own_PB[pair, list(rows)] = True
        sides = [is_own_PB & is_preferred_B, is_own_PB & ~is_preferred_B]
        gains = [torch.where(side_PB, sums_B, 0.0).sum(-1) for side_PB in sides]
        if mean:
            counts = [torch.where(side_PB, seen.mask.sum(-1), 0).sum(-1) for side_PB in sides]
            gains = [gain_P / count_P.clamp(min=1) for gain_P, count_P in zip(gains, counts, strict=True)]
        weight_P = seen.weight[[rows[0] for rows in seen.bundles], 0]
        return loss(*gains, weight_P, **settings, **chosen)

    return of


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
"""What some of the objectives' sums are called once divided; any other `x_sum` or `num_x` becomes `loss/x`."""
OF_PAIRS = frozenset({"pair_right_sum", "pair_margin_sum", "chosen_sum", "rejected_sum"})
COUNTS = ("num_tokens", "num_pairs")
SPREAD = ("bounds/low", "bounds/high", "optim/grad_norm")
"""Of these the smallest and the largest of a step are logged too."""


def named(sums: Mapping[str, float]) -> dict[str, float]:
    """The objectives' sums as metrics: over the number of pairs, or of trained tokens (`_max`: as they are)."""
    found = {}
    for name, value in sums.items():
        if name in COUNTS:
            continue
        count = max(sums.get(COUNTS[name in OF_PAIRS], 0.0), 1.0)
        metric = METRIC_NAMES.get(name) or f"loss/{name.removesuffix('_sum').removeprefix('num_')}"
        found[metric] = value if name.endswith("_max") else value / count
    return found


def means_of(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each metric's mean over the updates that have it (`/max`: the largest)."""
    values: dict[str, list[float]] = defaultdict(list)
    for update in updates:
        for name, value in update.items():
            values[name].append(value)
    means = {name: max(v) if name.endswith("/max") else sum(v) / len(v) for name, v in values.items()}
    for name in SPREAD:
        if name in values:
            means |= {f"{name}_min": min(values[name]), f"{name}_max": max(values[name])}
    return means
