"""A policy: a named set of weights, its tokenizer, and the number of updates it has seen.

Full models and LoRA adapters look the same from outside. With LoRA, several policies share one base model in memory
and differ in the adapter that is active while they run (`with policy.active():`).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from whet.chat import keep_stop_ids
from whet.config.base import ConfigError
from whet.config.parts import LoraConfig, ModelConfig
from whet.models.loading import check_vocabulary, from_pretrained, load_model, load_tokenizer, named, reading
from whet.models.provenance import Source, source_of
from whet.types import Row


@dataclass(eq=False)
class Policy:
    """One set of weights. `model` may be shared with other policies (then `adapter` tells them apart)."""

    name: str
    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    adapter: str | None = None
    version: int = 0
    """Updates seen; engines stamp it on what they sample."""
    full_logits: bool = False
    """True where the head is more than a matrix product (soft-capping, scaling): logits then come from a whole
    forward pass."""
    stop_ids: frozenset[int] = field(default_factory=frozenset)
    frozen: bool = False
    source: Source | None = None
    """Where its first weights came from, and under which licence."""
    is_value: bool = False
    """True: a value model (`whet.models.value`), which gives values in place of logprobs."""
    num_loads: int = 0
    """Times that weights were loaded into it."""
    scored_by: Callable[[Sequence[Row], int], list[Tensor]] | None = None
    """Scores rows in the processes that train it, by a token budget (`whet.trainer.sharded`). None: this one trains it,
    or nobody does."""

    packings: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    """`whet.models.packed.Packing` by its kind: all engines on this policy share one copy of its weights."""

    @property
    def title(self) -> str:
        """Its name in sentences; a lone policy is "the policy"."""
        return "the policy" if self.name == "policy" else f"policy {self.name}"

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def recomputes(self) -> bool:
        """Whether layers keep no activations for the backward pass (gradient checkpointing)."""
        return any(getattr(module, "gradient_checkpointing", False) for module in self.model.modules())

    @property
    def causal_lm(self) -> Any:
        """The `transformers` model itself, LoRA layers included."""
        return self.model.get_base_model() if self.adapter else self.model  # type: ignore[operator]

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Within this block the shared base computes with this policy's adapter."""
        if self.adapter is not None:
            if self.model.active_adapter != self.adapter:
                self.model.set_adapter(self.adapter)  # type: ignore[operator]
            # PEFT freezes the adapters that it leaves and unfreezes the one that it enters; ours keep their state.
            for _, parameter in self.trainable_parameters():
                parameter.requires_grad_(not self.frozen)
        yield

    @contextlib.contextmanager
    def recomputing(self) -> Iterator[None]:
        """Within this block a forward pass keeps no activations of layers with gradient checkpointing.

        Transformers checkpoints in training mode only. We never enter it (no dropout: on-policy ratios must be 1), so
        only the layers' flags are set, and only before a backward pass.
        """
        layers = [m for m in self.model.modules() if getattr(m, "gradient_checkpointing", False)]
        try:
            for layer in layers:
                layer.training = True
            yield
        finally:
            for layer in layers:
                layer.training = False

    def trainable_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """All weights, or those of its adapter."""
        named = list(self.model.named_parameters())
        return named if self.adapter is None else [(n, p) for n, p in named if f".{self.adapter}." in n]

    def state(self) -> dict[str, Tensor]:
        """A copy of `trainable_parameters` on the CPU, under names that do not depend on the adapter's name."""
        return {self.neutral(n): p.detach().to("cpu", copy=True) for n, p in self.trainable_parameters()}

    def load_state(self, state: Mapping[str, Tensor], *, version: int) -> None:
        parameters = {self.neutral(n): p for n, p in self.trainable_parameters()}
        differ = parameters.keys() ^ state.keys()
        differ |= {name for name in parameters.keys() & state.keys() if parameters[name].shape != state[name].shape}
        if differ:
            raise ConfigError(f"the saved weights do not fit policy {self.name!r}: {named(differ)} differ")
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(state[name])
        self.version = version
        self.num_loads += 1

    def equals(self, other: Policy) -> bool:
        """Whether both have the same weights, to the bit. Of adapters on one base, the adapters are compared."""
        if (self.adapter or other.adapter) and self.model is not other.model:
            return False
        ours, theirs = ({policy.neutral(n): p for n, p in policy.trainable_parameters()} for policy in (self, other))
        return ours.keys() == theirs.keys() and all(torch.equal(p, theirs[n]) for n, p in ours.items())

    def fork(self, name: str) -> Policy:
        """A frozen copy with separate weights (for LoRA: a new adapter on the same base)."""
        if self.adapter is None:
            model = copy.deepcopy(self.model).requires_grad_(False)
            twin = Policy(name, model, self.tokenizer, is_value=self.is_value)
        else:
            adapter = name.replace(".", "_")
            self.model.add_adapter(adapter, self.model.peft_config[self.adapter])  # type: ignore[operator, index]
            twin = Policy(name, self.model, self.tokenizer, adapter)
        twin.full_logits, twin.stop_ids, twin.frozen = self.full_logits, self.stop_ids, True
        twin.source = self.source
        twin.load_state(self.state(), version=self.version)
        for _, parameter in twin.trainable_parameters():
            parameter.requires_grad_(False)
        return twin

    def restore(self, folder: Path, *, version: int) -> None:
        """Load what `save` wrote, bit for bit."""
        if self.adapter is None:
            with reading(f"{folder} holds no weights that can be loaded", "go on from another checkpoint"):
                model = from_pretrained(type(self.model), str(folder), next(self.model.parameters()).dtype)
            self.load_state(dict(model.named_parameters()), version=version)
        else:
            self._restore_adapter(folder)
            self.version = version
            self.num_loads += 1

    def _restore_adapter(self, folder: Path) -> None:
        import peft

        with reading(f"{folder} holds no adapter that can be loaded", "go on from another checkpoint"):
            weights = peft.load_peft_weights(str(folder), device="cpu")
        current = peft.get_peft_model_state_dict(self.model, adapter_name=self.adapter)
        differ = {n for n in current.keys() | weights.keys() if n not in current or n not in weights}
        differ |= {n for n in current.keys() & weights.keys() if current[n].shape != weights[n].shape}
        if differ:
            raise ConfigError(f"the adapter in {folder} is not that of policy {self.name!r}: {named(differ)} differ")
        if broken := [name for name, value in weights.items() if not value.isfinite().all()]:
            raise ConfigError(f"the adapter in {folder} has weights that are NaN or infinite: {named(broken)}")
        peft.set_peft_model_state_dict(self.model, weights, adapter_name=self.adapter)

    def save(self, folder: Path) -> None:
        """Write what `from_pretrained` loads (for LoRA: PEFT's layout), tokenizer included."""
        options: dict[str, Any] = {"selected_adapters": [self.adapter]} if self.adapter else {}
        self.model.save_pretrained(str(folder), **options)  # type: ignore[operator]
        if self.adapter:  # PEFT puts every adapter but the one named "default" into a subfolder
            inner = folder / self.adapter
            for path in inner.iterdir() if inner.is_dir() else ():
                path.replace(folder / path.name)
            if inner.is_dir():
                inner.rmdir()
        self.tokenizer.save_pretrained(str(folder))
        if self.source is not None:
            self.source.write(folder)

    def neutral(self, name: str) -> str:
        """A weight's name without the adapter's: the key in `state`."""
        return name if self.adapter is None else name.replace(f".{self.adapter}.", ".adapter.")


def load_policies(models: Mapping[str, ModelConfig]) -> dict[str, Policy]:
    """Load the named policies. Those with LoRA and an equal base (path, seed, type, device) share it.

    Raises: ConfigError where a path is no model, or the tokenizer has no chat template.
    """
    bases: dict[tuple[str, int | None, str, str], nn.Module] = {}
    tokenizers = {path: load_tokenizer(path) for path in dict.fromkeys(config.path for config in models.values())}
    policies = {}
    for name, config in models.items():
        tokenizer = tokenizers[config.path]
        if config.lora is None:
            policy = Policy(name, load_model(config), tokenizer)
        else:
            key = (str(config.path), config.random_weights, config.dtype, config.device)
            bases[key] = _with_adapter(bases.get(key), name, config, config.lora)
            policy = Policy(name, bases[key], tokenizer, adapter=name)
        check_vocabulary(policy.causal_lm, tokenizer, config.path)
        policy.source = source_of(config.path)
        policy.stop_ids = _stop_ids(policy)
        keep_stop_ids(tokenizer, policy.stop_ids)
        policy.full_logits = _head_is_more_than_a_product(policy)
        if config.gradient_checkpointing:
            lm = policy.causal_lm
            enable = getattr(lm, "activation_checkpointing_enable", lm.gradient_checkpointing_enable)  # renamed in 5.x
            enable({"use_reentrant": False})
        policies[name] = policy
    return policies


def _with_adapter(base: nn.Module | None, name: str, config: ModelConfig, lora: LoraConfig) -> nn.Module:
    import peft

    settings = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules="all-linear",
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    if base is None:
        return peft.get_peft_model(load_model(config), settings, adapter_name=name).eval()
    base.add_adapter(name, settings)  # type: ignore[operator]
    return base.eval()


def _stop_ids(policy: Policy) -> frozenset[int]:
    """End tokens: the generation config's (a model may have several) and the tokenizer's.

    Raises: ConfigError where the generation config names anything but token ids.
    """
    listed = policy.causal_lm.generation_config.eos_token_id
    ids = [i for i in (listed if isinstance(listed, list | tuple) else [listed]) if i is not None]
    if odd := [i for i in ids if not isinstance(i, int) or i < 0]:
        raise ConfigError(
            f"generation_config.json of policy {policy.name!r} has eos_token_id = {odd[0]!r}: it has to be a token's "
            "number, or a list of them"
        )
    return frozenset([*ids, policy.tokenizer.eos_token_id])


@torch.no_grad()
def _head_is_more_than_a_product(policy: Policy) -> bool:
    model = policy.causal_lm
    ids = torch.tensor([[0, 1, 2]], device=policy.device)
    hidden = model.get_decoder()(input_ids=ids).last_hidden_state
    logits = model(input_ids=ids).logits
    # By the logits' size: random weights have small ones, which a cap hardly bends.
    return bool((model.get_output_embeddings()(hidden) - logits).abs().max() > 1e-5 * logits.abs().max())
