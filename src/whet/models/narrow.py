"""Products of linear layers and of the head in bfloat16, forward and backward, within a block (`learning.products`).

Weights, norms, attention, residuals, sums of gradients over passes and the optimiser stay float32. Inputs and weights
are rounded to bfloat16 for each product, which adds up in float32 and rounds its result. The head's gradient also adds
up over its chunks in bfloat16. An engine's products are in `whet.models.packed`: these here have a gradient, and
nothing is packed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_NARROW: ContextVar[bool] = ContextVar("_NARROW", default=False)


def is_narrow() -> bool:
    """Whether this is within a block that multiplies in bfloat16."""
    return _NARROW.get()


@contextlib.contextmanager
def multiplying(products: str) -> Iterator[None]:
    """Within this block linear layers, and the head of `token_logprobs`, multiply in this type. Blocks may be nested.

    Args:
        products: float32 or bfloat16.
    """
    before = _NARROW.set(products == "bfloat16")
    try:
        with _InBfloat16() if is_narrow() else contextlib.nullcontext():
            yield
    finally:
        _NARROW.reset(before)


class _InBfloat16(TorchFunctionMode):
    """Replaces the products of float32 linear layers. A layer's backward pass follows from its forward pass."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.linear and is_narrow() and args[0].dtype == torch.float32:
            return _product(*args, **kwargs)
        return func(*args, **kwargs)


def _product(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    result: Tensor = Bfloat16Product.apply(input, weight)  # type: ignore[no-untyped-call]
    return result if bias is None else result + bias


class Bfloat16Product(torch.autograd.Function):
    """`x @ weight.T`: float32 in and out, multiplied in bfloat16.

    Args:
        x: [..., inputs].
        weight: [outputs, inputs].
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        inputs = x.bfloat16()
        ctx.save_for_backward(inputs, weight)  # which is there anyway; a rounded copy of each would not be
        return F.linear(inputs, weight.bfloat16()).float()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        inputs, weight = ctx.saved_tensors
        narrow = gradient.bfloat16()
        of_inputs = (narrow @ weight.bfloat16()).float() if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return of_inputs, None
        return of_inputs, (narrow.flatten(0, -2).T @ inputs.flatten(0, -2)).float()
