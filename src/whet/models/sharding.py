"""Policies whose weights are spread over the processes of a group (FSDP2), each process with a part of every tensor.

A layer's weights are gathered while it computes. The lean pass calls a layer's parts and not the layer. So FSDP hears
of it through a method of the layer (`gathered_layer`), and of the whole pass through one of the model
(`gathered_logprobs`).
"""

from __future__ import annotations

import datetime
from types import MethodType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from whet.models.group import Group
from whet.models.lean import run_layer
from whet.models.policy import Policy
from whet.models.scoring import compute_logprobs, micro_batches, token_logprobs
from whet.models.skeleton import Skeleton
from whet.types import tail_row

T = TypeVar("T")
TIMEOUT_S = 1800
"""Seconds that a process waits for the others in one exchange."""


class ProcessGroup(Group):
    """The processes of `torch.distributed`, of which this is one. It has to be initialised (`join`)."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = (
            torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
        )
        self.mesh: DeviceMesh = init_device_mesh(self.device.type, (self.size,))

    def gather(self, value: T) -> list[T]:
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


def join(rank: int, size: int, address: str, local_rank: int) -> ProcessGroup:
    """Join the other processes, and return once all have.

    Args:
        address: `tcp://host:port` of rank 0, or `env://` where torchrun has set the environment.
        local_rank: number of this process on its machine, and of its GPU.
    """
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(
        backend, init_method=address, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=TIMEOUT_S)
    )
    return ProcessGroup()


# --- a policy elsewhere -----------------------------------------------------------------------------------------------


def build(skeleton: Skeleton, group: ProcessGroup) -> Policy:
    """A policy of this shape, spread over the group. Its weights are arbitrary numbers: `place` gives them."""
    with torch.device("meta"):
        model: Any = skeleton.kind(skeleton.config).eval()
        for number, (name, settings) in enumerate(skeleton.adapters.items()):
            import peft

            if number == 0:
                model = peft.get_peft_model(model, settings, adapter_name=name)
            else:
                model.add_adapter(name, settings)
    _materialise(model, skeleton)
    policy = Policy(
        skeleton.name,
        model.eval(),
        skeleton.tokenizer,
        adapter=skeleton.adapter,
        full_logits=skeleton.full_logits,
        is_value=skeleton.is_value,
    )
    if skeleton.recomputes:
        lm = policy.causal_lm
        enable = getattr(lm, "activation_checkpointing_enable", lm.gradient_checkpointing_enable)
        enable({"use_reentrant": False})
    _shard(policy, group)
    return policy


def _materialise(model: Any, skeleton: Skeleton) -> None:
    """Give a model on the meta device memory, which costs nothing before it is written, and its buffers."""
    model.to_empty(device="cpu")
    causal_lm = model.get_base_model() if skeleton.adapters else model
    causal_lm.tie_weights()
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.to(skeleton.dtypes[name])
    for name, buffer in model.named_buffers():
        buffer.copy_(skeleton.buffers[name])


def _shard(policy: Policy, group: ProcessGroup) -> None:
    """Spread a policy's weights over the group: each layer's as one unit, and the others as one."""
    model, causal_lm = policy.model, policy.causal_lm
    names = set(getattr(causal_lm, "_no_split_modules", None) or ())
    layers = [module for module in causal_lm.modules() if type(module).__name__ in names]
    for layer in layers:
        layer.gathered_layer = MethodType(lambda _, *inputs: run_layer(*inputs), layer)
        _fully_shard(layer, group)
        register_fsdp_forward_method(layer, "gathered_layer")
    model.gathered_logprobs = MethodType(lambda _, *inputs: compute_logprobs(*inputs), model)  # type: ignore[assignment]
    _fully_shard(model, group)
    register_fsdp_forward_method(model, "gathered_logprobs")


def _fully_shard(module: nn.Module, group: ProcessGroup) -> None:
    # Gradients are reduced in float32: in bfloat16 their norm would be off by 2e-3.
    # The root is resharded too, or the model would show gathered weights between a pass and the next backward pass.
    sharded: Any = fully_shard(
        module,
        mesh=group.mesh,
        mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32),
        reshard_after_forward=True,
    )
    # The loss is a sum over processes, so nothing is divided. Gloo can do that in sums alone.
    sharded.set_gradient_divide_factor(1.0)
    sharded.set_force_sum_reduction_for_comms(True)


def prepare(policy: Policy) -> None:
    """Let FSDP see which weights train, once they have values: it keeps what the first pass shows."""
    for _, parameter in policy.trainable_parameters():
        parameter.requires_grad_(True)
    row = tail_row(policy.name, (0,), (0, 0), 1.0)
    with torch.no_grad():
        token_logprobs(policy, next(micro_batches(policy, [row], 1)))
    for _, parameter in policy.trainable_parameters():
        parameter.requires_grad_(False)


# --- weights in and out -----------------------------------------------------------------------------------------------


def place(target: Tensor, value: Tensor | None) -> None:
    """Copy a whole tensor into one that is spread. All processes call it; rank 0 gives the value, the others None."""
    with torch.no_grad():
        target.copy_(spread_like(target, value))


def copy_within(target: Tensor, source: Tensor) -> None:
    """Copy between weights of one shape that the group holds, spread or not. All processes call it."""
    with torch.no_grad():
        if isinstance(target.data, DTensor) == isinstance(source.data, DTensor):
            target.copy_(source)
        elif isinstance(source.data, DTensor):
            target.copy_(source.data.full_tensor())
        else:
            place(target, source)


def spread_like(target: Tensor, value: Tensor | None, dtype: torch.dtype | None = None) -> Tensor:
    """A whole tensor of rank 0, spread as another one of its shape.

    Args:
        value: rank 0 gives it, the others None.
        dtype: of the result. None: the target's.
    """
    dtype = dtype or target.dtype
    whole = torch.empty(target.shape, dtype=dtype, device=target.device) if value is None else value
    whole = whole.to(target.device, dtype)
    if isinstance(target, DTensor):
        return distribute_tensor(whole.contiguous(), target.device_mesh, target.placements)
    if dist.get_world_size() > 1:
        whole = whole.contiguous().clone()
        dist.broadcast(whole, 0)
    return whole
