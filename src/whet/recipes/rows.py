"""Between rows of trained tokens and padded tensors, for the arithmetic of credit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
    return padded([[1.0] * row.num_trained for row in rows]).bool()


def per_token(row: Row, values: Sequence[float]) -> tuple[float, ...]:
    """Values of a row's trained tokens, which are its last ones, with zeros before them."""
    return (0.0,) * (len(row.tokens) - row.num_trained) + tuple(values[: row.num_trained])


def with_credit(rows: Sequence[Row], credit_BT: Tensor) -> list[Row]:
    pairs = zip(rows, credit_BT.tolist(), strict=True)
    return [replace(row, credit=per_token(row, values)) for row, values in pairs]


def kl_to(reference: Policy, rows: Sequence[Row], *, token_budget: int, estimator: str = "k1") -> Tensor:
    """[B, T] estimates of KL(sampler || reference) at each trained token, 0 where there is none."""
    mask_BT = trained_mask(rows)
    ref_BT = padded([values.tolist() for values in score(reference, rows, token_budget=token_budget)])
    own_BT = padded([row.logprobs[-row.num_trained :] for row in rows if row.logprobs is not None])
    return torch.where(mask_BT, ESTIMATORS[estimator](own_BT, ref_BT), 0.0)
