"""A shop of our own: some thousand products and their goals, from `goods.yaml` and a seed.

A product has 3 to 5 attributes. Its title names one or two, its features name all, and its instruction asks for 1 to 3.
Products of one kind differ in attributes, options and prices, so that a title seldom settles which one is meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from string import capwords
from typing import Any

from whet.config.yaml_text import load
from whet.envs.webshop.catalogue import Catalogue, Instruction, Product
from whet.envs.webshop.goals import generated_goals
from whet.seeds import seed_of

GOODS = Path(__file__).with_name("goods.yaml")
PER_KIND = 80
"""Products of each kind."""
GOALS_PER_PRODUCT = 3
"""At most: combinations of its options' values."""
RANGE_SHARE = 0.1
"""Of the products, with a range of prices in place of one."""
ASIN_LETTERS = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"

_BEGINNINGS = ("Look for", "Find and buy", "Get me", "Please order")
_SENTENCES = (
    "Made for people who want {first} and a fair price.",
    "The {series} line is known for being {first}.",
    "Customers of {brand} choose this {noun} again and again.",
    "Our {noun} comes from a small workshop that cares for detail.",
)


@cache
def generated(seed: int = 0) -> Catalogue:
    """The shop of a seed."""
    goods = load(GOODS.read_text(encoding="utf-8"))
    products = [
        _product(seed, goods, department, kind, number)
        for department in goods["departments"]
        for kind in department["kinds"]
        for number in range(PER_KIND)
    ]
    Random(seed_of("webshop products", seed)).shuffle(products)
    goals = generated_goals(products, most_per_product=GOALS_PER_PRODUCT)
    return Catalogue(products, goals, name=f"generated {seed}")


def _product(seed: int, goods: Any, department: Any, kind: Any, number: int) -> Product:
    random = Random(seed_of("webshop product", seed, kind["query"], number))
    noun, brand, series = random.choice(kind["nouns"]), random.choice(goods["brands"]), random.choice(goods["series"])
    own = random.sample(kind["attributes"], random.randint(2, 3))
    attributes = [*own, *random.sample(department["attributes"], random.randint(1, 2))]
    random.shuffle(attributes)
    options = _options(random, goods, kind.get("options", department["options"]))
    prices = _prices(random, *kind["price"])
    titled = random.sample(attributes, random.randint(1, 2))
    words = {"first": attributes[0], "series": series, "brand": brand, "noun": noun.lower()}
    description = " ".join(sentence.format(**words) for sentence in random.sample(_SENTENCES, 2))
    wanted = random.sample(attributes, random.randint(1, 3))
    return Product(
        asin="B0" + "".join(random.choice(ASIN_LETTERS) for _ in range(8)),
        title=f"{brand} {series} {noun}, {', '.join(map(capwords, (kind['query'], *titled)))}",
        category=department["name"],
        query=kind["query"],
        product_category=" › ".join((department["root"], *kind["path"])),
        description=description,
        features=_features(random, attributes, options),
        attributes=tuple(attributes),
        options=options,
        prices=prices,
        price=prices[0] if len(prices) == 1 else round(random.uniform(*prices), 2),
        instructions=(Instruction(text=_instruction(random, kind["query"], wanted), attributes=tuple(wanted)),),
    )


def _options(random: Random, goods: Any, names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Two to five values of each option, in the order of the list."""
    options = {}
    for name in names:
        values = goods["option_values"][name]
        drawn = frozenset(random.sample(values, min(len(values), random.randint(2, 5))))
        options[name] = tuple(value for value in values if value in drawn)
    return options


def _prices(random: Random, least: int, greatest: int) -> tuple[float, ...]:
    """A price, or the two ends of a range; low ones are more frequent than high ones."""
    price = round(least + (greatest - least) * random.random() ** 1.5, 2)
    return (price, round(price * 1.4, 2)) if random.random() < RANGE_SHARE else (price,)


def _features(random: Random, attributes: Sequence[str], options: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """A bullet point for each two attributes, and one for the options."""
    shuffled = random.sample(attributes, len(attributes))
    pairs = [shuffled[start : start + 2] for start in range(0, len(shuffled), 2)]
    return (
        *(" and ".join(pair).capitalize() for pair in pairs),
        "Choose " + " and ".join(options),
    )


def _instruction(random: Random, query: str, wanted: Sequence[str]) -> str:
    *most, last = wanted
    attributes = f"{', '.join(most)} and {last}" if most else last
    return f"{random.choice(_BEGINNINGS)} {query}, {attributes}"
