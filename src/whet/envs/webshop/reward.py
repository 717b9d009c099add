"""WebShop's reward (arXiv:2207.01206, section 3.1 and its code): type, attributes, options and price.

    reward = r_type * (matched attributes + matched options + [price within the limit])
                    / (attributes + options + 1)

One part cannot be as published. `r_type` asks how many nouns of the goal's title are in the bought product's title.
Upstream's nouns are those of a spaCy model. Ours follow a rule: all words but function words, units and common
adjectives (`nouns`). In product titles, spaCy takes most other words for proper nouns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.envs.webshop.catalogue import Goal, Product
from whet.envs.webshop.fuzzy import matches
from whet.envs.webshop.words import words

COLOURS = words("colours")
"""The colours to which an option's value is reduced before it is compared, in the published order: the first one that
the value contains, anywhere. So `navy blue` is `blue`, and so is `sky blue`."""

_WORD = re.compile(r"[a-z]{2,}")
_NO_NOUNS = frozenset(words("function_words") + words("units") + words("adjectives"))
"""Words that are no nouns of a title."""


@dataclass(frozen=True, slots=True)
class Reward:
    """What a purchase earns, and the parts that it is made of."""

    total: float
    type: float
    """1, 0.5, 0.1 or 0."""
    attributes: float
    """The share of the goal's attributes that the product has."""
    options: float | None
    """The share of the goal's options that were chosen. None: the goal has none."""
    price: bool
    """Whether the price is within the goal's limit."""


def reward_of(product: Product, options: Sequence[str], goal: Goal) -> Reward:
    """What it earns to buy a product.

    Args:
        options: the values that were chosen.
    """
    kind = type_reward(product, goal.product)
    num_attributes = matching_attributes(product, goal.attributes)
    num_options = matching_options(options, goal.options)
    is_within = product.price <= goal.price_limit
    total = (num_attributes + num_options + is_within) / (len(goal.attributes) + len(goal.options) + 1)
    return Reward(
        total=total * kind,
        type=kind,
        attributes=num_attributes / len(goal.attributes) if goal.attributes else 1.0,
        options=num_options / len(goal.options) if goal.options else None,
        price=is_within,
    )


def type_reward(bought: Product, wanted: Product) -> float:
    """1 for the same kind of product: the same query, two categories in common, or above a fifth of the title's nouns.
    Else 0.5. With below a tenth of the nouns it is 0.1 in any case, and with none of them 0."""
    title = title_score(bought.title, wanted.title)
    if title == 0.0:
        return 0.0
    if title < 0.1:
        return 0.1
    has_categories = len(_categories(bought) & _categories(wanted)) >= 2
    return 1.0 if bought.query == wanted.query or has_categories or title > 0.2 else 0.5


def title_score(bought: str, wanted: str) -> float:
    """The share of the wanted title's nouns, with repetitions in the denominator, that the bought title has."""
    wanted_nouns = nouns(wanted)
    return len(set(wanted_nouns) & set(nouns(bought))) / len(wanted_nouns) if wanted_nouns else 0.2


def nouns(title: str) -> list[str]:
    """The words of a title that count as nouns, in lower case, in its order, with repetitions."""
    return [word for word in _WORD.findall(title.lower()) if word not in _NO_NOUNS]


def matching_attributes(product: Product, wanted: Sequence[str]) -> int:
    """How many wanted attributes the product has: one alike (`fuzzy`), or the words in its texts."""
    texts = (product.title.lower(), " ".join(product.features).lower(), product.description.lower())
    return sum(
        any(matches(attribute, sought) for attribute in product.attributes) or any(sought in text for text in texts)
        for sought in wanted
    )


def matching_options(chosen: Sequence[str], wanted: Mapping[str, str] | Sequence[str]) -> int:
    """How many wanted options were chosen. Colours are reduced first (`COLOURS`).

    A wanted option that has a name is compared together with it, as published. It is reduced only where its name or its
    value is exactly a colour.
    """
    values = [reduced(value) for value in chosen]
    if isinstance(wanted, Mapping):
        sought = [next((colour for colour in COLOURS if colour in pair), " ".join(pair)) for pair in wanted.items()]
    else:
        sought = [reduced(value) for value in wanted]
    return sum(any(matches(value, option) for value in values) for option in sought)


def reduced(value: str) -> str:
    """The first colour that the value contains. The value itself, if it contains none."""
    return next((colour for colour in COLOURS if colour in value), value)


def _categories(product: Product) -> set[str]:
    return {category.strip() for category in product.product_category.split("›")}
