"""A formula, what running it on random inputs came to, and the random inputs that several of them take."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from whet.methods.registry import preset_of

Array = NDArray[np.float64]
Both = tuple[Array, Array]
"""Ours and the published one, [cases, ...]."""
CASES = 1000
TOLERANCE = 1e-6
"""Most arithmetic is in float64, where differences are 1e-15; rewards and credit of rows are float32 in the trainer."""


@dataclass(frozen=True, kw_only=True)
class Formula:
    """One published formula."""

    method: str
    """Whose it is: a preset's name, or a part that several have."""
    formula: str
    """As the table shows it."""
    source: str
    """Paper (arXiv number) or published code."""
    run: Callable[[Generator, int], Both]
    """(random numbers, cases) to both results."""
    differs: str = ""
    """The name of its row in `docs/fidelity.md`, where ours differs on purpose. Empty: it has to agree."""
    tolerance: float = TOLERANCE
    """Absolute up to 1, relative past it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a comparison came to."""

    cases: int
    differences: int
    """Cases in which any number is further off than the tolerance."""
    largest: float
    """The largest absolute difference of all numbers."""
    moved: int
    """Cases whose published result is not 0 throughout: a comparison of zeros would show nothing."""


def compare(formula: Formula, cases: int = CASES) -> Result:
    """Run a formula on `cases` random inputs, the same ones every time."""
    rng = np.random.default_rng(zlib.crc32(f"{formula.method} {formula.formula}".encode()))
    ours, published = (np.asarray(each, np.float64).reshape(cases, -1) for each in formula.run(rng, cases))
    assert ours.shape == published.shape, f"{formula.method}: {ours.shape} beside {published.shape}"
    gap = np.abs(ours - published)
    gap[np.isnan(ours) & np.isnan(published)] = 0.0
    off = ~(gap <= formula.tolerance * np.maximum(1.0, np.abs(published)))  # NaN on one side counts
    return Result(
        cases=cases,
        differences=int(off.any(axis=1).sum()),
        largest=float(np.max(gap, initial=0.0, where=~np.isnan(gap))),
        moved=int((np.nan_to_num(published) != 0).any(axis=1).sum()),
    )


def settings_of(name: str) -> Any:
    """What the preset of that name starts from."""
    return preset_of(name).config


# --- random inputs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tokens:
    """A row a case, of T places at most. What is masked holds NaN where the formulas may not look."""

    policy: Array
    old: Array
    reference: Array
    advantage: Array
    """[cases, T], one number a row."""
    mask: NDArray[np.bool_]

    def part(self, rows: slice) -> Tokens:
        return Tokens(
            *(each[rows] for each in (self.policy, self.old, self.reference, self.advantage)), self.mask[rows]
        )


def tokens(rng: Generator, cases: int, *, length: int = 7, drift: float = 0.35) -> Tokens:
    """Logprobs of sampled tokens under three policies. Of the drifts a tenth are far off, past every usual bound."""
    shape = (cases, length)
    old = -rng.exponential(1.0, shape) - 0.01
    far = np.where(rng.random(shape) < 0.1, 5.0, 1.0)
    policy = old + rng.normal(0, drift, shape) * far
    reference = old + rng.normal(0, drift, shape) * far
    advantage = np.repeat(rng.normal(0, 1, (cases, 1)), length, 1)
    mask = rng.random(shape) < 0.7
    mask[np.arange(cases), rng.integers(0, length, cases)] = True  # one at least
    return Tokens(*(np.where(mask, each, np.nan) for each in (policy, old, reference, advantage)), mask)


def torches(*arrays: NDArray[np.generic]) -> list[torch.Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(each)) for each in arrays]


def where(mask: NDArray[np.bool_], values: Array) -> Array:
    """0 where masked."""
    return np.where(mask, values, 0.0)
