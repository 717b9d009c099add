"""What an engine computes a model's products in: which kinds there are, and what each needs of machine and model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from whet.config.base import ConfigError
from whet.models.fused import WIDEST
from whet.models.packed import Packing, Product, bfloat16_product, unlike_packed
from whet.models.policy import Policy

Products = Literal["float32", "bfloat16", "int8"]
BFLOAT16 = ("amx_bf16", "avx512_bf16")
"""Instructions that multiply bfloat16 numbers; one of them is needed. Without them torch emulates them, slowly."""
TIMES, WIDEST_TIMED = 20, 4096
"""Products of a timing, and the most inputs of one."""
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


def lack_of(policy: Policy, products: Products | Literal["auto"]) -> str | None:
    """Why an engine cannot compute a policy's products so, as the end of a sentence. None: it can."""
    if products in ("float32", "auto"):
        return None
    if policy.device.type != "cpu" or policy.dtype != torch.float32:
        kind = str(policy.dtype).removeprefix("torch.")
        return f"needs a model in float32 on a CPU, and {policy.title} is in {kind} on {policy.device}"
    unlike = "a head that is more than a product" if policy.full_logits else unlike_packed(policy.causal_lm)
    if unlike:
        return f"needs a model of the plain Llama shape (Llama, Mistral, Qwen2), and {policy.title} has {unlike}"
    return lack_of_bfloat16() if products == "bfloat16" else None


def packing_of(policy: Policy, products: Products) -> Packing | None:
    """The packed copy of a policy's weights, which is made at its first use. None: its products are float32.

    Raises: ConfigError where machine or model cannot.
    """
    if lack := lack_of(policy, products):
        raise ConfigError(f"an engine with products in {products} {lack}: take float32")
    if products == "float32":
        return None
    packing: Packing = policy.packings.setdefault(products, Packing(policy, products))
    return packing


@dataclass(frozen=True, slots=True)
class Shape:
    """What `auto` chooses by, of one model."""

    width: int
    """Its hidden size."""
    packs: bool
    """Whether a copy of its weights can be packed."""


def shape_of(policy: Policy) -> Shape:
    """A loaded policy's shape."""
    return Shape(policy.causal_lm.config.get_text_config().hidden_size, packs=lack_of(policy, "int8") is None)


def chosen(shapes: Sequence[Shape]) -> Products:
    """The choice of `auto`, by a fixed rule: bfloat16 where it was faster than float32 wherever it was measured.

    The processor can multiply it, and all models can be packed and are wider than `WIDEST`: below it calls take the
    time, and not products.
    """
    fits = all(shape.packs and shape.width > WIDEST for shape in shapes)
    return "bfloat16" if shapes and fits and not lack_of_bfloat16() else "float32"


def timing(width: int, *, rows: int = 64) -> str:
    """How long a layer's product takes here in either type, in words. Nothing is decided by it.

    Args:
        width: the model's hidden size; one of `WIDEST_TIMED` is timed in place of a larger one. The product has three
            times as many outputs.
    """
    width = min(width, WIDEST_TIMED)
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
