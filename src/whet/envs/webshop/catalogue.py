"""What a shop holds: products, their prices, and the goals that instructions ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from whet.envs.webshop.search import Index

NO_LIMIT = 1_000_000.0
"""The price limit of a goal whose instruction names none, as published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product, as WebShop's pages and reward read it."""

    asin: str
    title: str
    category: str
    """The department: `fashion`, `grocery`, ..."""
    query: str
    """The kind of product, in lower case: what a shop's visitor would search."""
    product_category: str
    """The path of categories, joined by ` › `."""
    description: str
    features: tuple[str, ...]
    """The bullet points."""
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    """Choices by the name of the option, both in lower case."""
    prices: tuple[float, ...]
    """One price, or the two ends of a range. Empty: unknown, which the pages and the reward take for 100."""
    price: float
    """What the reward compares with the goal's limit. Of a range, a price within it."""
    instructions: tuple[Instruction, ...] = ()

    @property
    def price_tag(self) -> str:
        """The price, as pages write it: `$12.5`, or `$12.5 to $18.0`."""
        return " to ".join(f"${price}" for price in self.prices or (100.0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """What a goal says of its product, but for options and price."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] | None = None
    """The values of a human's instruction. None: a generated one, which asks for one value of each option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What an episode asks for."""

    product: Product
    instruction: str
    """The whole of it, with options and price."""
    attributes: tuple[str, ...]
    options: Mapping[str, str] | tuple[str, ...]
    """Values by the name of the option, or a human's values alone."""
    price_limit: float


@dataclass(frozen=True)
class Catalogue:
    """The products of a shop and its goals, which are its items by their number."""

    products: Sequence[Product]
    goals: Sequence[Goal]
    name: str
    """Tells this catalogue from others: its digest, or `generated` and a seed."""
    index: Index = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", Index([_document(product) for product in self.products]))

    @cached_property
    def by_asin(self) -> Mapping[str, Product]:
        return {product.asin: product for product in self.products}

    def search(self, keywords: str) -> tuple[Product, ...]:
        """The best 50 products, or fewer."""
        return tuple(self.products[number] for number in self.index.search(keywords))


def _document(product: Product) -> str:
    """What the published index holds of a product."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    return " ".join((product.title, product.description, *product.features[:1], options))
