"""What an engine computes a model's products in: which kinds there are, and what each needs of machine and model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from whet.config.base import ConfigError
from whet.models.fused import WIDEST
from whet.models.packed import Packing, Product, bfloat16_product, packs
from whet.models.policy import Policy

Products = Literal["float32", "bfloat16", "int8"]
BFLOAT16 = ("amx_bf16", "avx512_bf16")
"""Instructions that multiply bfloat16 numbers; one of them is needed. Without them torch emulates them, slowly."""
PACKED_FAMILIES = ("llama", "mistral", "qwen2")
"""Types of models whose weights can be packed."""
TIMES = 20
"""Products of a timing."""
NAMED = ("amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni", "avx512_f", "avx_vnni", "avx2")
"""Instructions that are named where a speed is reported."""


def instructions() -> tuple[str, ...]:
    """Those of `NAMED` that this processor has."""
    has = torch.cpu.get_capabilities()
    return tuple(name for name in NAMED if has.get(name))


def lack_of_bfloat16() -> str | None:
    """Why this processor cannot multiply bfloat16 numbers, as the end of a sentence. None: it can."""
    has = instructions()
    if any(name in has for name in BFLOAT16):
        return None
    known = ", ".join(has) or "none of the known ones"
    return f"needs a processor with {' or '.join(BFLOAT16)}, and this one has {known}"


def problem_of(policy: Policy, products: Products | Literal["auto"]) -> str | None:
    """Why an engine cannot compute a policy's products so, as a sentence. None: it can."""
    if products in ("float32", "auto"):
        return None
    setting = f"engine.products = {products}"
    if policy.full_logits or not packs(policy.causal_lm):
        return (
            f"{setting} needs a model of the Llama shape in float32 on a CPU (Llama, Mistral, Qwen2), and "
            f"{policy.title} is {_model_in_words(policy)}: set engine.products=float32"
        )
    if products == "bfloat16" and (lack := lack_of_bfloat16()):
        return f"{setting} {lack}: set engine.products=float32"
    return None


def packing_of(policy: Policy, products: Products) -> Packing | None:
    """The packed copy of a policy's weights, which is made at its first use. None: its products are float32.

    Raises: ConfigError where machine or model cannot.
    """
    if problem := problem_of(policy, products):
        raise ConfigError(problem)
    if products == "float32":
        return None
    packing: Packing = policy.packings.setdefault(products, Packing(policy, products))
    return packing


@dataclass(frozen=True, slots=True)
class Shape:
    """What `auto` chooses by, of one model."""

    model_type: str
    """Of its config, such as `llama`."""
    width: int
    """Its hidden size."""
    is_float32_on_cpu: bool


def shape_of(policy: Policy) -> Shape:
    """A loaded policy's shape."""
    config = policy.causal_lm.config.get_text_config()
    on_cpu = policy.device.type == "cpu" and policy.dtype == torch.float32
    return Shape(config.model_type, config.hidden_size, on_cpu)


def chosen(shapes: Sequence[Shape]) -> Products:
    """The choice of `auto`, by a fixed rule: bfloat16 where it was faster than float32 wherever it was measured.

    The processor can multiply it, and all models are on the CPU, of a family that can be packed, and wider than
    `WIDEST`: below it calls take the time, and not products.
    """
    fits = all(
        shape.is_float32_on_cpu and shape.width > WIDEST and shape.model_type in PACKED_FAMILIES for shape in shapes
    )
    return "bfloat16" if shapes and fits and not lack_of_bfloat16() else "float32"


def timing(width: int, *, rows: int = 64) -> str:
    """How long a layer's product takes here in either type, in words. Nothing is decided by it.

    Args:
        width: the model's hidden size. The product has three times as many outputs.
    """
    weight, x = torch.ones(3 * width, width), torch.ones(rows, width)
    wide = bfloat16_product(weight, None)
    times = []
    products: tuple[Product, ...] = (lambda x: x @ weight.T, wide)
    for product in products:
        product(x)
        started = time.perf_counter()
        for _ in range(TIMES):
            product(x)
        times.append((time.perf_counter() - started) / TIMES * 1e3)
    return f"{rows} x {width} by {width} x {3 * width}: {times[0]:.2g} ms in float32, {times[1]:.2g} ms in bfloat16"


def _model_in_words(policy: Policy) -> str:
    kind = policy.causal_lm.config.get_text_config().model_type
    return f"a {kind!r} model in {str(policy.dtype).removeprefix('torch.')} on {policy.device}"
