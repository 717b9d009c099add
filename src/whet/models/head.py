"""Logprobs from hidden states where the logits of all tokens would not fit: in chunks of tokens, with two reused
buffers. The backward pass computes each chunk's logits anew and adds up the head's gradient in place. So neither pass
holds more than the buffers, the weights and their gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


class ChunkedLogprobs(torch.autograd.Function):
    """`log_softmax(hidden @ weight.T / temperature)` at the targets, and the entropies.

    Args:
        hidden: [N, H].
        weight: [V, H], the head's.
        targets: [N] token ids.
        temperature: [N].
        chunk: tokens at once.
        graded: whether entropies carry a gradient. It takes one more buffer.
    Returns: logprobs [N] and entropies [N], float32.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: Tensor, chunk: int, graded: bool
    ) -> tuple[Tensor, Tensor]:
        shape = (min(chunk, len(hidden)), len(weight))
        products, weights = hidden.new_empty(shape), hidden.new_empty(shape, dtype=torch.float32)
        logprobs, entropies, norms = (hidden.new_empty(len(hidden), dtype=torch.float32) for _ in range(3))
        for part in _parts(len(hidden), chunk):
            logits = _logits(hidden[part], weight, temperature[part], products)
            highest = logits.amax(-1, keepdim=True)
            of_part = weights[: len(logits)]
            total = torch.exp(logits.sub_(highest), out=of_part).sum(-1)
            logprobs[part] = logits.gather(-1, targets[part, None]).squeeze(-1) - total.log()
            entropies[part] = total.log() - of_part.mul_(logits).sum(-1) / total
            norms[part] = highest.squeeze(-1) + total.log()
        ctx.save_for_backward(hidden, weight, targets, temperature, norms, entropies)
        ctx.chunk, ctx.graded = chunk, graded
        if not graded:
            ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(
        ctx: Any, gradient: Tensor, of_entropies: Tensor
    ) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        hidden, weight, targets, temperature, norms, entropies = ctx.saved_tensors
        of_hidden = torch.empty_like(hidden)
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        products = hidden.new_empty(min(ctx.chunk, len(hidden)), len(weight))
        for part in _parts(len(hidden), ctx.chunk):
            logits = _logits(hidden[part], weight, temperature[part], products)
            push = (gradient[part] / temperature[part])[:, None]
            logprobs = logits.sub_(norms[part, None])
            by_entropy = logprobs + entropies[part, None] if ctx.graded else None
            # Gradient of a logprob by its logits: one at the target, less the probabilities.
            probs = logprobs.exp_()
            if by_entropy is not None:  # gradient of an entropy by its logits: -p (log p + H)
                by_entropy.mul_(probs).mul_(-(of_entropies[part] / temperature[part])[:, None])
            of_logits = probs.mul_(-push)
            of_logits.scatter_add_(-1, targets[part, None], push)
            if by_entropy is not None:
                of_logits.add_(by_entropy)
            of_logits = of_logits.to(hidden.dtype)
            torch.mm(of_logits, weight, out=of_hidden[part])
            if of_weight is not None:
                of_weight.addmm_(of_logits.T, hidden[part])
        return of_hidden, of_weight, None, None, None, None


def _logits(hidden: Tensor, weight: Tensor, temperature: Tensor, buffer: Tensor) -> Tensor:
    """Float32, over the buffer where that is its type."""
    return torch.mm(hidden, weight.T, out=buffer[: len(hidden)]).float().div_(temperature[:, None])


def _parts(count: int, chunk: int) -> Iterator[slice]:
    return (slice(at, at + chunk) for at in range(0, count, chunk))
