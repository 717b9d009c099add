"""A policy without its weights: what another process needs to build it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from whet.models.policy import Policy


@dataclass(frozen=True)
class Skeleton:
    """See the module's docstring. It travels by pickle."""

    name: str
    base: str
    """Equal for policies that share a base model."""
    kind: type[nn.Module]
    """The `transformers` class of the model."""
    config: Any
    """Its config, of `transformers`."""
    tokenizer: PreTrainedTokenizerBase
    dtypes: Mapping[str, torch.dtype]
    """Of all weights, by name."""
    buffers: Mapping[str, Tensor]
    """Tensors that no weights file holds, such as the frequencies of positions."""
    adapters: Mapping[str, Any]
    """PEFT's config of each adapter of the base, by name."""
    adapter: str | None
    full_logits: bool
    recomputes: bool
    is_value: bool

    @classmethod
    def of(cls, policy: Policy) -> Skeleton:
        model: Any = policy.causal_lm
        return cls(
            name=policy.name,
            base=f"{id(policy.model)}",
            kind=type(model),
            config=copy.deepcopy(model.config),
            tokenizer=policy.tokenizer,
            dtypes={name: value.dtype for name, value in policy.model.named_parameters()},
            buffers={name: value.detach().cpu() for name, value in policy.model.named_buffers()},
            adapters=dict(policy.model.peft_config) if policy.adapter else {},  # type: ignore[arg-type]
            adapter=policy.adapter,
            full_logits=policy.full_logits,
            recomputes=policy.recomputes,
            is_value=policy.is_value,
        )
