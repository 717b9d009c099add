"""The goals of a shop's products, in the published order: an item's number is its place after the published shuffle.

Texts, price limits and draws are those of AgentGym's copy of WebShop. With the same product files, its session ids ask
for the same goals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product as combinations_of
from random import Random

from whet.envs.webshop.catalogue import NO_LIMIT, Goal, Instruction, Product

PUBLISHED_SEED = 233
"""Of the published draws of price limits, and of the shuffle."""
LIMITS = tuple(10.0 * number for number in range(1, 100))
"""Price limits: of those above a price, one of the first four is drawn."""


def generated_goals(products: Sequence[Product], *, most_per_product: int | None = None) -> tuple[Goal, ...]:
    """One goal for each combination of option values of each product that has an instruction.

    Args:
        most_per_product: draws so many of its combinations. None: all of them, as published.
    """
    random = Random(PUBLISHED_SEED)
    goals = []
    for product in products:
        for instruction in product.instructions:
            above = [limit for limit in LIMITS if limit > product.price][:4]
            limit = sorted(random.sample(above, 2))[1] if len(above) >= 2 else NO_LIMIT
            choices = list(_choices(product))
            if most_per_product is not None and len(choices) > most_per_product:
                choices = random.sample(choices, most_per_product)
            goals += [_goal(product, instruction, options, limit) for options in choices]
    return _shuffled(goals)


def human_goals(products: Sequence[Product]) -> tuple[Goal, ...]:
    """Four goals for each human instruction with attributes, one for each of the next four price limits."""
    goals = []
    for product in products:
        for instruction in product.instructions:
            above = [limit for limit in LIMITS if limit > product.price][:4]
            limits = above if len(above) >= 2 else [NO_LIMIT] * 4
            if instruction.attributes:
                goals += [_goal(product, instruction, instruction.options or (), limit) for limit in limits]
    return _shuffled(goals)


def _choices(product: Product) -> Iterator[Mapping[str, str]]:
    """All combinations of its options' values, by the names in their order."""
    names = sorted(product.options)
    for values in combinations_of(*(product.options[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def _goal(
    product: Product, instruction: Instruction, options: Mapping[str, str] | tuple[str, ...], limit: float
) -> Goal:
    text = instruction.text
    if isinstance(options, Mapping):
        text += f" with {', and '.join(f'{name}: {value}' for name, value in options.items())}" if options else ""
    else:
        text = text.strip(".")
    if limit != NO_LIMIT:
        text += f", and price lower than {limit:.2f} dollars"
    return Goal(
        product=product,
        instruction=text,
        attributes=instruction.attributes,
        options=options,
        price_limit=limit,
    )


def _shuffled(goals: list[Goal]) -> tuple[Goal, ...]:
    Random(PUBLISHED_SEED).shuffle(goals)
    return tuple(goals)
