"""The constraints of running requests: tokens that a reply's form forbids get no probability, before one is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from whet.errors import ConstraintError
from whet.types import Constraint, Matcher


class Constraints:
    """All by the request's number in the running batch. A constraint that fails ends its own request alone."""

    def __init__(self) -> None:
        self.complete: set[int] = set()
        """Requests whose replies are whole, so that they end."""
        self.failed: dict[int, str] = {}
        """Requests whose constraints cannot be followed, and why. Their last tokens are no part of a reply."""
        self._matchers: dict[int, Matcher] = {}

    def begin(self, index: int, constraint: Constraint | None) -> None:
        if constraint is not None:
            self._matchers[index] = constraint.matcher()

    def follows(self, index: int) -> bool:
        """Whether a request has a constraint that can be followed."""
        return index in self._matchers

    def forget(self, index: int) -> None:
        """The request has ended. `failed` keeps it until it is read."""
        self._matchers.pop(index, None)
        self.complete.discard(index)

    def applied(self, logits_BV: Tensor, indices: Sequence[int]) -> Tensor:
        """The logits, with -inf where a constraint forbids a token. Rows without a constraint keep their bits.

        Args:
            indices: the requests of the rows.
        """
        if not self._matchers or self._matchers.keys().isdisjoint(indices):
            return logits_BV
        forbidden_BV = torch.zeros(logits_BV.shape, dtype=torch.bool)
        for row, index in enumerate(indices):
            if index not in self._matchers:
                continue
            try:
                forbidden_BV[row] = forbidden(self._matchers[index].allowed(), logits_BV.shape[1])
            except ConstraintError as error:
                self._fail(index, error)
        return logits_BV.masked_fill(forbidden_BV.to(logits_BV.device), -math.inf)

    def accept(self, tokens_B: Tensor, indices: Sequence[int]) -> None:
        """Tells the constraints which tokens were sampled. Arguments as in `applied`."""
        for row, index in enumerate(indices if self._matchers else ()):
            if index not in self._matchers:
                continue
            try:
                if self._matchers[index].accept(int(tokens_B[row])):
                    self.complete.add(index)
            except ConstraintError as error:
                self._fail(index, error)

    def _fail(self, index: int, error: ConstraintError) -> None:
        self.failed[index] = str(error)
        del self._matchers[index]


def forbidden(allowed: bytes, num_tokens: int) -> Tensor:
    """[V] bool, of a matcher's `allowed`. Raises: ConstraintError where it allows nothing."""
    forbidden_V = torch.ones(num_tokens, dtype=torch.bool)
    known = torch.frombuffer(bytearray(allowed), dtype=torch.uint8)[:num_tokens]
    forbidden_V[: len(known)] = known == 0
    if forbidden_V.all():
        raise ConstraintError("no token of the model's vocabulary goes on with what is written")
    return forbidden_V
