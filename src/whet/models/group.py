"""The processes that compute with one policy together, as one of them sees the others.

Each has all rows and computes its share of the passes. They make equally many passes, as each pass gathers weights.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


class Group:
    """A process that computes alone. `whet.cluster` has one for several."""

    rank = 0
    """This process's number, from 0."""
    size = 1
    """Processes."""

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by rank, in each of them. All have to call it."""
        return [value]


ALONE = Group()


def is_lost_connection(error: BaseException) -> bool:
    """Whether an exchange failed because another process is gone. Gloo raises no class of its own."""
    return isinstance(error, dist.DistError) or "/gloo/" in str(error)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that may be spread over a group. All processes have to call it."""
    gather: Any = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def own_part(tensor: Tensor) -> Tensor:
    """This process's part of a tensor that may be spread over a group."""
    local: Any = getattr(tensor, "to_local", None)
    return tensor if local is None else local()
