"""How a policy learns from rows: the rule that a recipe hands to the learner, and the names of its metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from whet.config.parts import LearningConfig
from whet.objectives import Aggregation

LossTerm = Callable[..., tuple[Tensor, dict[str, Tensor]]]
"""(policy logprobs, old logprobs, credit, loss mask, token weight), all [B, T], to a summed loss and summed metrics.
Bind a function of `whet.objectives` to its settings with `functools.partial`. What `UpdateRule.choose` has chosen comes
by name."""

Leash = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, dict[str, Tensor]]]
"""(policy logprobs, reference's logprobs, loss mask, token weight), all [B, T], to a term that is added to the loss."""

Choose = Callable[[Tensor, Tensor, Tensor], tuple[Mapping[str, float], Mapping[str, float]]]
"""(policy logprobs, old logprobs, credit), all [N], the trained tokens of a whole minibatch, to settings of its loss
and to metrics: BAPO's bounds, M2PO's limit."""

Observe = Callable[..., Mapping[str, float]]
"""(policy logprobs, old logprobs, credit, entropies, what the loss pushes each token with), all [N], and what was
chosen, by name, to metrics."""

Correct = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(proximal logprobs, sampler's logprobs, loss mask), all [B, T], to factors of the token weights."""


@dataclass(frozen=True)
class UpdateRule:
    """How a policy learns from rows: the loss, how it is averaged, and the optimiser's settings."""

    loss: LossTerm
    aggregation: Aggregation
    """What a token's loss is divided by."""
    learning: LearningConfig
    num_updates: int
    """Optimiser updates in the whole phase, for the learning rate's schedule."""
    constant_length: int | None = None
    """Tokens; of aggregation `constant`."""
    needs_old: bool = True
    """False: the loss looks at no ratio (likelihood), so old logprobs are not wanted."""
    needs_credit: bool = True
    """False: the loss has a term that a token without credit feels too (an entropy bonus, a KL), so such rows are
    computed. Else they are left out of every pass: they count in the averages of the loss, and nothing else."""
    leash: Leash | None = None
    """A KL to a reference beside the loss, apart from it so that the loss's own push can be told. `correct` does not
    weigh it. Every row has `ref_logprobs` then."""
    proximal: bool = False
    """What the ratio is taken to. False: the sampler's logprobs, whichever weights they came from. True: those of the
    weights that this step starts from, scored before the first update."""
    correct: Correct | None = None
    """With `proximal`: weighs tokens by how the proximal policy and the sampler differ."""
    choose: Choose | None = None
    """Settings of the loss that depend on all tokens of an update. Asked once an update. Where its rows take several
    passes, they are scored once more before it, which costs about a third of the update."""
    observe: Observe | None = None
    probe_every: int = 0
    """Updates between two measurements of what an update does to the entropy of its own rows: one more pass without
    gradient. 0: none."""


METRIC_NAMES = {
    "nll_sum": "loss/nll",
    "num_clipped_low": "clip/low",
    "num_clipped_high": "clip/high",
    "num_dual": "clip/dual",
    "approx_kl_sum": "kl/old",
    "kl_ref_sum": "kl/ref",
    "ratio_sum": "ratio/mean",
    "ratio_max": "ratio/max",
    "entropy_sum": "entropy",
    "value_error_sum": "value/error",
    "value_sum": "value/mean",
    "return_sum": "value/returns",
    "num_value_clipped": "value/clipped",
}
"""The objectives' sums, and what they are called once divided by the number of tokens (`_max`: as they are)."""
SPREAD = ("bounds/low", "bounds/high", "optim/grad_norm")
"""Of these the smallest and the largest of a step are logged too."""


def named(sums: Mapping[str, float]) -> dict[str, float]:
    """The objectives' sums as metrics."""
    tokens = max(sums.get("num_tokens", 0.0), 1.0)
    return {
        METRIC_NAMES[name]: value if name.endswith("_max") else value / tokens
        for name, value in sums.items()
        if name in METRIC_NAMES
    }


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
