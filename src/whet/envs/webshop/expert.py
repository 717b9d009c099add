"""A scripted shopper: it searches what the instruction asks for, opens a product that has it all, and chooses and buys.

It may look into the shop's records: whether a product is right does not always show in its title.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from whet.envs.webshop import pages
from whet.envs.webshop.catalogue import Goal, Product
from whet.envs.webshop.reward import matching_options, reward_of
from whet.seeds import seed_of

if TYPE_CHECKING:
    from whet.envs.webshop.environment import WebShop

_SEARCHING = (
    "I need {query} with {attributes}. I search for these words.",
    "The instruction asks for {query}; what matters is {attributes}. So I search for that.",
    "First I look for {query}, and name {attributes} in the search.",
)
_OPENING = (
    "{asin} is {title!r} for {price}. That fits, so I open its page.",
    "Of these products I take {asin}: {title!r}, {price}.",
    "{asin} looks right, and {price} is within the limit. I look at it.",
)


@dataclass(frozen=True, slots=True)
class _Plan:
    keywords: str
    product: Product
    options: Mapping[str, str]
    """The values to choose."""


def expert(env: WebShop, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """What to do from the present page on."""
    goal: Goal | None = None
    while True:
        if env.goal is not goal:
            goal, plan = env.goal, _plan(env)
        yield _next(env, plan, Random(seed_of("webshop expert", seed, goal.instruction, env.where.kind)))


def _plan(env: WebShop) -> _Plan:
    """The first search whose results hold a product that earns the whole reward. Else the goal's own product."""
    goal = env.goal
    values = list(goal.options.values() if isinstance(goal.options, Mapping) else goal.options)
    for words in ((*goal.attributes, *values), goal.attributes, ()):
        keywords = _searchable(" ".join((goal.product.query, *words)))
        for product in env.catalogue.search(keywords):
            options = _options(product, goal)
            if reward_of(product, list(options.values()), goal).total >= 1.0:
                return _Plan(keywords, product, options)
    return _Plan(_searchable(goal.product.title), goal.product, _options(goal.product, goal))


def _options(product: Product, goal: Goal) -> dict[str, str]:
    """For each option of the product, the value that the goal names. Without one, the first value that matches."""
    wanted = goal.options
    chosen = {}
    for name, values in product.options.items():
        sought = wanted.get(name) if isinstance(wanted, Mapping) else None
        if sought in values:
            chosen[name] = str(sought)
            continue
        rest: Mapping[str, str] | Sequence[str] = {name: sought} if sought is not None else ()
        rest = rest if isinstance(wanted, Mapping) else wanted
        exact = [value for value in values if not isinstance(wanted, Mapping) and value in wanted]
        match = next(iter(exact), next((value for value in values if matching_options([value], rest)), None))
        if match is not None:
            chosen[name] = match
    return chosen


def _next(env: WebShop, plan: _Plan, random: Random) -> tuple[str, str]:
    where, goal, product = env.where, env.goal, plan.product
    if where.kind == "search":
        attributes = ", ".join(goal.attributes)
        thought = random.choice(_SEARCHING).format(query=goal.product.query, attributes=attributes)
        return thought, f"search[{plan.keywords}]"
    if where.kind == "results":
        return _from_results(env, plan, random)
    if where.kind == "subpage":
        return "I have read this. I go back to the product.", _click(pages.PREVIOUS)
    if where.asin != product.asin:
        return "This product is not what the instruction asks for, so I go back to the results.", _click(pages.PREVIOUS)
    chosen = dict(where.options)
    for name, value in plan.options.items():
        if chosen.get(name) != value:
            return f"The {name} has to be {value}, so I choose that.", _click(value)
    return "Everything that the instruction asks for is chosen, so I buy it.", _click(pages.BUY)


def _from_results(env: WebShop, plan: _Plan, random: Random) -> tuple[str, str]:
    numbers = [product.asin for product in env.found]
    if plan.product.asin not in numbers:
        return "None of these is right. I go back and search with other words.", _click(pages.BACK)
    page = numbers.index(plan.product.asin) // pages.PER_PAGE + 1
    if page > env.where.number:
        return "None on this page has everything, so I look at the next one.", _click(pages.NEXT)
    if page < env.where.number:
        return "The right one was on an earlier page, so I go back.", _click(pages.PREVIOUS)
    product = plan.product
    thought = random.choice(_OPENING).format(asin=product.asin, title=product.title, price=product.price_tag)
    return thought, _click(product.asin)


def _click(text: str) -> str:
    return f"click[{text.lower()}]"


def _searchable(text: str) -> str:
    """A search that can be written in an action: it is one line, in which brackets would end it too early."""
    return " ".join(text.lower().replace("[", " ").replace("]", " ").split())
