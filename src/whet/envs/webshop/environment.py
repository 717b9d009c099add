"""WebShop (arXiv:2207.01206) as in AgentGym: buy the product that an instruction asks for.

Pages, clicks and the reward are the published ones. The products are whet's own, from a seed, or those of files in the
published layout (`products`). An item is a session: the number of a goal in the published order. Upstream has searches
that begin with `<r>`, `<a>`, `<c>` or `<q>`, and list products by other rules. Here these are plain searches.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from itertools import compress
from operator import not_
from pathlib import Path
from typing import Any, Self

from whet.envs.protocol import ACTIONS, INVALID, EnvError, EnvironmentInfo, Info, Observed, PublishedItems, Stepped
from whet.envs.webshop import pages
from whet.envs.webshop.catalogue import Catalogue, Goal, Product
from whet.envs.webshop.expert import expert
from whet.envs.webshop.generate import generated
from whet.envs.webshop.pages import Click, Where
from whet.envs.webshop.product_files import read_catalogue
from whet.envs.webshop.reward import Reward, reward_of
from whet.seeds import seed_of

TEST_PARTS = 5
"""One of so many products has its goals in `test`."""

_ACTION = re.compile(r"(.+)\[(.+)\]")


class WebShop:
    """One visit to the shop.

    Args:
        products: a file of products in the published layout (`items_shuffle_1000.json`). None: whet's own products.
        attributes: the published file of their attributes and instructions (`items_ins_v2_1000.json`).
        human_goals: the published file of human instructions by product (`items_human_ins.json`). None: the
            instructions of `attributes`.
        num_products: reads so many products of the file, as published for the sets of 100 and 1000. None: all.
        show_attributes: adds a page of attributes to each product. The published shop hides it.
        catalogue_seed: of whet's own products.
    Raises: EnvError where a file is not as it should be.
    """

    def __init__(
        self,
        products: str | Path | None = None,
        *,
        attributes: str | Path | None = None,
        human_goals: str | Path | None = None,
        num_products: int | None = None,
        show_attributes: bool = False,
        catalogue_seed: int = 0,
    ) -> None:
        if products is not None:
            self.catalogue: Catalogue = read_catalogue(products, attributes, human_goals, num_products)
        elif (attributes, human_goals, num_products) != (None, None, None):
            raise EnvError(
                "attributes, human_goals and num_products need the file that they belong to: give products=FILE"
            )
        else:
            self.catalogue = generated(catalogue_seed)
        self._subpages = pages.SUBPAGES if show_attributes else pages.SUBPAGES[:-1]
        self._item = -1
        self._is_over = True
        self._found: tuple[str, tuple[Product, ...]] = ("", ())
        self.where = Where()
        """The page that the episode is on."""
        self.reward: Reward | None = None
        """What the purchase earned, in its parts. None: nothing is bought yet."""

    @property
    def goal(self) -> Goal:
        """What the episode asks for."""
        return self.catalogue.goals[self._item]

    @property
    def found(self) -> tuple[Product, ...]:
        """The results of the latest search, of all pages."""
        if self.where.kind != "results":
            return ()
        if self._found[0] != self.where.keywords:
            self._found = self.where.keywords, self.catalogue.search(self.where.keywords)
        return self._found[1]

    @property
    def product(self) -> Product | None:
        """The product whose page, or further page, this is."""
        return self.catalogue.by_asin.get(self.where.asin)

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        """The item determines everything; `seed` changes nothing. The info of each page lists its clicks. On the search
        page it lists one search: for the whole instruction."""
        self.check_item(item)
        self._item, self._is_over = item, False
        self.where, self.reward = Where(), None
        return self.page(), self._info()

    def check_item(self, item: int) -> None:
        """Raises: EnvError where there is no such item."""
        if not 0 <= item < len(self.catalogue.goals):
            raise EnvError(f"webshop has the items 0 to {len(self.catalogue.goals) - 1}, not {item}")

    def step(self, action: str) -> Stepped:
        if self._is_over:
            raise EnvError("this visit has not begun or has ended: call reset(item) before the next step")
        new = self._led_to(action)
        if new is not None:
            self.where = new
        reward = 0.0
        if self.where.kind == "done":
            reward = self._buy()
        info = self._info() if new is not None else self._info() | {INVALID: True}
        return self.page(), reward, self._is_over, False, info

    def page(self) -> str:
        """The present page as text."""
        text, where = self.goal.instruction, self.where
        if where.kind == "results":
            return pages.joined(pages.results_pieces(text, where, self.found))
        if where.kind == "done":
            return pages.joined(pages.done_pieces(where, self.reward.total if self.reward else 0.0))
        if self.product is None:
            return pages.joined(pages.search_pieces(text))
        if where.kind == "item":
            return pages.joined(pages.item_pieces(text, self.product, self._subpages))
        return pages.joined(pages.subpage_pieces(text, self.product, where.subpage))

    def clickables(self) -> Mapping[str, Click]:
        """What can be clicked, by its lower-case text. A click on `search` does nothing."""
        return pages.clicks_of(self.where, found=self.found, product=self.product, subpages=self._subpages)

    def _led_to(self, action: str) -> Where | None:
        """The page that an action leads to. None: it is not understood, or cannot be done here."""
        match = _ACTION.match(action)
        verb, argument = (match[1], match[2].lower()) if match else ("", "")
        if verb == "search":  # also on pages without a search bar, as published
            return Where("results", keywords=argument)
        click = self.clickables().get(argument) if verb == "click" else None
        return self._clicked(click) if click is not None and argument != pages.SEARCH.lower() else None

    def _clicked(self, click: Click) -> Where:
        where, text = self.where, click.text.lower()
        is_results, is_item = where.kind == "results", where.kind == "item"
        if text == pages.BUY.lower() and is_item:
            return replace(where, kind="done")
        if text == pages.BACK.lower():
            return Where()
        if text == pages.NEXT.lower() and is_results:
            return replace(where, number=where.number + 1)
        if text == pages.PREVIOUS.lower():
            if is_results:
                return replace(where, number=where.number - 1)
            if where.kind == "subpage":
                return replace(where, kind="item", subpage="")
            return Where("results", where.keywords, where.number)
        for name in pages.SUBPAGES:
            if text == name.lower() and is_item:
                return replace(where, kind="subpage", subpage=name)
        if click.kind == "product":
            return replace(where, kind="item", asin=click.text)
        return replace(where, options=tuple((dict(where.options) | {click.option: click.text}).items()))

    def _buy(self) -> float:
        assert self.product is not None, "only a product's page can be bought from"
        self._is_over = True
        self.reward = reward_of(self.product, [value for _, value in self.where.options], self.goal)
        return self.reward.total

    def _info(self) -> Info:
        if self.where.kind == "search":
            return {ACTIONS: (f"search[{self.goal.instruction}]",)}
        return {ACTIONS: tuple(f"click[{text}]" for text in self.clickables())}

    def state_key(self) -> Hashable:
        """The goal, the page and the chosen options."""
        chosen = replace(self.where, options=tuple(sorted(self.where.options)))
        return self.catalogue.name, self._item, chosen, self._is_over

    def fork(self) -> Self:
        return copy(self)

    def close(self) -> None:
        self._is_over = True


@cache
def splits() -> Mapping[str, Sequence[int]]:
    """Of our own products: `train` and `test` share no product. A fifth of the products is in `test`, by a hash."""
    return _splits(generated())


def _splits(catalogue: Catalogue) -> Mapping[str, Sequence[int]]:
    of_test = {p.asin for p in catalogue.products if seed_of("webshop test", p.asin) % TEST_PARTS == 0}
    is_test = [goal.product.asin in of_test for goal in catalogue.goals]
    items = range(len(is_test))
    return {"train": tuple(compress(items, map(not_, is_test))), "test": tuple(compress(items, is_test))}


def group_of(goal: Goal) -> str:
    """How much a goal asks for: `2 attributes, 1 option`."""
    return f"{_counted(len(goal.attributes), 'attribute')}, {_counted(len(goal.options), 'option')}"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def group(item: int) -> str:
    """Of an item of our own products."""
    return group_of(generated().goals[item])


def of_settings(settings: Mapping[str, Any]) -> EnvironmentInfo:
    """With other products: their goals, split by the same rule, and their subgroups."""
    catalogue = WebShop(**settings).catalogue
    split_items = _splits(catalogue)
    if not all(split_items.values()):
        raise EnvError(f"{len(catalogue.goals)} goals are too few for train and test: give webshop more products")
    return replace(WEBSHOP, splits=lambda: split_items, group=lambda item: group_of(catalogue.goals[item]))


WEBSHOP = EnvironmentInfo(
    name="webshop",
    make=WebShop,
    splits=splits,
    rules="webshop",
    max_turns=10,
    group=group,
    item_ids={"webshop": ""},
    published=PublishedItems(split="test", settings=("products", "attributes")),
    expert=expert,
    of_settings=of_settings,
)
