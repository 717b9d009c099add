"""The trained tokens of an update as flat tensors [N], row after row, and metrics of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.models.scoring import MicroBatch
from whet.objectives import k3
from whet.types import Floats, Row


@dataclass(frozen=True, slots=True)
class Tokens:
    """The trained tokens of one pass, each field [N]."""

    policy_N: Tensor
    old_N: Tensor
    credit_N: Tensor
    entropy_N: Tensor
    push_N: Tensor | None = None
    """How strongly the loss pushes each token's logprob up, for a token weight of 1. See `pushes`."""


def trained(values: Floats | None) -> Tensor:
    """A row's values at its trained tokens, [N_row]; empty where there are none."""
    return torch.empty(0) if values is None else torch.tensor(values)


def spread(values_N: Tensor, batch: MicroBatch) -> Tensor:
    """[B, T] from [N]: the trained tokens' values in their places, 0 elsewhere."""
    mask_BT = batch.mask_BT[:, 1:]
    return torch.zeros(mask_BT.shape, device=mask_BT.device).masked_scatter(mask_BT, values_N.to(mask_BT.device))


def pushes(loss: Tensor, logprobs_N: Tensor, batch: MicroBatch, weights_B: Tensor) -> Tensor:
    """[N] minus the policy loss's derivative by each token's logprob, over its row's weight; 0 where that is 0.

    Args:
        loss: the scalar loss of this pass, without the terms beside it (a KL).
        logprobs_N: [N]. The loss was computed from them.
        weights_B: [B] of the minibatch. The factor of each row's token losses.
    """
    [slope_N] = torch.autograd.grad(loss, logprobs_N, retain_graph=True)
    mask_BT = batch.mask_BT[:, 1:]
    weight_N = weights_B[batch.index, None].expand(mask_BT.shape)[mask_BT]
    return torch.where(weight_N == 0, 0.0, -slope_N / weight_N)


def ages_of(rows: Sequence[Row], version: int) -> dict[str, float]:
    """Metrics of how many updates ago the trained tokens were sampled. Empty where no row knows.

    Args:
        version: the policy's weights now.
    """
    runs = [(version - sampled, count) for row in rows for sampled, count in row.versions]
    total = sum(count for _, count in runs)
    if not total:
        return {}
    return {
        "staleness/mean": sum(age * count for age, count in runs) / total,
        "staleness/max": float(max(age for age, _ in runs)),
        "staleness/share": sum(count for age, count in runs if age > 0) / total,
    }


def joined(passes: Sequence[Tokens]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Policy and old logprobs, credit and entropies of all passes of an update, [N] each."""
    if len(passes) == 1:
        return passes[0].policy_N, passes[0].old_N, passes[0].credit_N, passes[0].entropy_N
    return (
        torch.cat([p.policy_N for p in passes]),
        torch.cat([p.old_N for p in passes]),
        torch.cat([p.credit_N for p in passes]),
        torch.cat([p.entropy_N for p in passes]),
    )


def drift_of(rows: Sequence[Row], proximal: Sequence[Tensor]) -> float | None:
    """KL(sampler || proximal policy) in nats per token, by k3, over the rows with the sampler's logprobs. None: there
    are none.

    Args:
        proximal: for each row, [N_row] logprobs under the proximal policy. Empty: the row is left out.
    """
    scored = zip(rows, proximal, strict=True)
    pairs = [(sampler_N, new_N) for row, new_N in scored if len(new_N) and len(sampler_N := trained(row.logprobs))]
    if not pairs:
        return None
    return float(k3(torch.cat([sampler for sampler, _ in pairs]), torch.cat([new.cpu() for _, new in pairs])).mean())


def drift_in_passes(passes: Sequence[tuple[Sequence[int], Tokens]], rows: Sequence[Row]) -> float | None:
    """As `drift_of`, by the logprobs that an update's own passes computed.

    Args:
        passes: of the minibatch, each as its rows' indices and its tokens.
        rows: of the minibatch.
    """
    scored = [
        (rows[i], policy_N)
        for index, tokens in passes
        for i, policy_N in zip(index, tokens.policy_N.split([rows[i].num_trained for i in index]), strict=True)
    ]
    return drift_of([row for row, _ in scored], [policy_N for _, policy_N in scored])
