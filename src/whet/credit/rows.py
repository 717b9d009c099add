"""Conversion between rows and padded tensors of their trained tokens, for the arithmetic of credit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from whet.models.policy import Policy
from whet.models.scoring import score
from whet.objectives.kl import ESTIMATORS
from whet.types import Row


def padded(rows: Sequence[Sequence[float]]) -> Tensor:
    """[B, T] with zeros on the right."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0.0] * (longest - len(row))] for row in rows])


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
    ref_BT = padded([values.tolist() for values in score(reference, rows, token_budget=token_budget)])
    own_BT = padded([row.logprobs.tolist() for row in rows if row.logprobs is not None])
    return torch.where(mask_BT, ESTIMATORS[estimator](own_BT, ref_BT), 0.0)


def with_reference(rows: Sequence[Row], reference: Policy, *, token_budget: int) -> list[Row]:
    """The rows with the reference's logprobs, for terms that need them."""
    if not rows:
        return []
    scores = score(reference, rows, token_budget=token_budget)
    return with_values(rows, "ref_logprobs", padded([values.tolist() for values in scores]))
