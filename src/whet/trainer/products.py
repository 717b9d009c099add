"""What an update multiplies weights in (`learning.products`): what it needs, and what it costs the gradient.

The products themselves are in `whet.models.narrow`. The rows' old logprobs are computed with them too, so that ratios
begin at 1; the sampler's difference is corrected for (`whet.trainer.losses.corrected`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from whet.config.base import ConfigError
from whet.engines.products import lack_of_bfloat16
from whet.models.narrow import multiplying
from whet.models.policy import Policy
from whet.models.scoring import MicroBatch, token_logprobs


def problem_of_update(policy: Policy, products: str, *, num_ranks: int = 0) -> str | None:
    """Why a policy cannot be updated with such products, as a sentence. None: it can.

    Args:
        num_ranks: processes that share its weights. 0: none do.
    """
    if products == "float32":
        return None
    setting, advice = f"learning.products = {products}", "set learning.products=float32"
    if num_ranks:
        return f"{setting} works in the run's own process alone, and {num_ranks} ranks train {policy.title}: {advice}"
    if policy.device.type != "cpu" or policy.dtype != torch.float32:
        kind = str(policy.dtype).removeprefix("torch.")
        return (
            f"{setting} needs a model in float32 on a CPU, and {policy.title} is in {kind} on {policy.device}: {advice}"
        )
    lack = lack_of_bfloat16()
    return f"{setting} {lack}: {advice}" if lack else None


def check_products(policy: Policy, products: str, *, num_ranks: int = 0) -> None:
    """Raises: ConfigError where `problem_of_update` finds a problem."""
    if problem := problem_of_update(policy, products, num_ranks=num_ranks):
        raise ConfigError(problem)


def gradient_error(policy: Policy, batch: MicroBatch, parameters: Sequence[Tensor], products: str) -> float:
    """How far a gradient in these products is from float32's: the norm of the difference, over float32's norm.

    It is that of the sum of the logprobs of the batch's trained tokens. No gradient and no weight is changed.
    """

    def gradient(kind: str) -> list[Tensor]:
        with multiplying(kind), torch.enable_grad():
            logprobs_N, _ = token_logprobs(policy, batch)
            found = torch.autograd.grad(logprobs_N.sum(), parameters, allow_unused=True)
        return [torch.zeros_like(p) if part is None else part for p, part in zip(parameters, found, strict=True)]

    exact, narrow = gradient("float32"), gradient(products)
    apart = sum(float((one - other).double().square().sum()) for one, other in zip(narrow, exact, strict=True))
    norm = sum(float(part.double().square().sum()) for part in exact)
    return (apart / norm) ** 0.5 if norm else 0.0
