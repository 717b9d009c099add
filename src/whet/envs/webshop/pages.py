"""The shop's pages as text, and what can be clicked on each. Words and order are those of WebShop's text mode."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from whet.envs.webshop.catalogue import Product

PER_PAGE = 10
"""Products on a page of results."""
SEPARATOR = " [SEP] "

SEARCH, BACK, PREVIOUS, NEXT, BUY = "Search", "Back to Search", "< Prev", "Next >", "Buy Now"
SUBPAGES = ("Description", "Features", "Reviews", "Attributes")


@dataclass(frozen=True, slots=True)
class Where:
    """The page that an episode is on, and the choices that led there."""

    kind: Literal["search", "results", "item", "subpage", "done"] = "search"
    keywords: str = ""
    number: int = 1
    """Of the page of results, from 1. Pages behind the last one are empty, as published."""
    asin: str = ""
    subpage: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """The chosen values by the name of their option, in the order in which the options were first chosen."""


@dataclass(frozen=True, slots=True)
class Click:
    """What can be clicked."""

    kind: Literal["button", "product", "option"]
    text: str
    """The button's text, the product's number or the option's value."""
    option: str = ""
    """The name of the option."""


def results_pieces(instruction: str, where: Where, found: Sequence[Product]) -> list[str]:
    """A page of results, of all that were found."""
    buttons = [PREVIOUS, NEXT] if where.number > 1 else [NEXT]
    pieces = [*_head(instruction), f"Page {where.number} (Total results: {len(found)})", *buttons]
    for product in on_page(found, where.number):
        pieces += [product.asin, product.title, product.price_tag]
    return pieces


def on_page(found: Sequence[Product], number: int) -> Sequence[Product]:
    """The results on one page, from 1."""
    return found[(number - 1) * PER_PAGE : number * PER_PAGE]


def search_pieces(instruction: str) -> list[str]:
    return ["WebShop", "Instruction:", instruction, SEARCH]


def item_pieces(instruction: str, product: Product, subpages: Sequence[str]) -> list[str]:
    """A product's page. It does not show which options are chosen, as published."""
    pieces = [*_head(instruction), PREVIOUS]
    for name, values in product.options.items():
        pieces += [name, *values]
    return [*pieces, product.title, f"Price: {product.price_tag}", "Rating: N.A.", *subpages, BUY]


def subpage_pieces(instruction: str, product: Product, name: str) -> list[str]:
    """One of a product's further pages. The published shop has no reviews."""
    texts: Mapping[str, Sequence[str]] = {
        "Description": (product.description,),
        "Features": product.features,
        "Reviews": (),
        "Attributes": (*product.attributes, product.category, product.query, product.product_category),
    }
    return [*_head(instruction), PREVIOUS, *texts[name]]


def done_pieces(where: Where, reward: float) -> list[str]:
    """The last page. Most of its table is empty, as published."""
    bought = ["asin", where.asin, "options", json.dumps(dict(where.options), sort_keys=True), "attrs", "None"]
    kinds = ["category", "None", "query", "None", "product category", "None"]
    target = ["asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query"]
    return [
        "Thank you for shopping with us!",
        *("Your code:", "None", "(Paste it in your MTurk interface.)"),
        *("Purchased", *bought, *kinds),
        *("Target", *target, "Goal", "None"),
        *("Reward", "Your score (min 0.0, max 1.0)", str(reward), "Reward Details", "None"),
    ]


def joined(pieces: Sequence[str]) -> str:
    """The observation of a page. Empty texts leave no piece."""
    return SEPARATOR.join(piece.strip() for piece in pieces if piece)


def clicks_of(
    where: Where, *, found: Sequence[Product] = (), product: Product | None = None, subpages: Sequence[str] = ()
) -> dict[str, Click]:
    """What can be clicked on a page, by its lower-case text: buttons, products, then options.

    Of two options with the same value the later one counts, as published.
    """
    return {click.text.lower(): click for click in _clicks(where, found, product, subpages)}


def _clicks(
    where: Where, found: Sequence[Product], product: Product | None, subpages: Sequence[str]
) -> Iterator[Click]:
    for text in _buttons(where, subpages):
        yield Click("button", text)
    if where.kind == "results":
        for result in on_page(found, where.number):
            yield Click("product", result.asin)
    if where.kind == "item" and product is not None:
        for name, values in product.options.items():
            for value in values:
                yield Click("option", value, name)


def _buttons(where: Where, subpages: Sequence[str]) -> Sequence[str]:
    if where.kind == "search":
        return (SEARCH,)
    if where.kind == "results":
        return (BACK, *((PREVIOUS,) if where.number > 1 else ()), NEXT)
    if where.kind == "item":
        return (BACK, PREVIOUS, *subpages, BUY)
    return (BACK, PREVIOUS) if where.kind == "subpage" else ()


def _head(instruction: str) -> list[str]:
    return ["Instruction:", instruction, BACK]
