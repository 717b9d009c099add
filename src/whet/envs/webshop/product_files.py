"""A user's own products, in the layout of WebShop's published files.

`items_shuffle.json` holds a list of products, `items_ins_v2.json` attributes and generated instructions by product
number, `items_human_ins.json` a list of human instructions by product number. Records are read as the published shop
reads them: a product without a number, with one of more than 10 characters, or with that of an earlier one is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

from whet.envs.protocol import EnvError
from whet.envs.webshop.catalogue import Catalogue, Instruction, Product
from whet.envs.webshop.goals import generated_goals, human_goals
from whet.seeds import seed_of
from whet.types import is_whole

MAX_ASIN = 10
NO_ATTRIBUTES = ("DUMMY_ATTR",)
"""Of a product that the attributes' file lacks, as published."""

_TEXTS = ("name", "category", "query", "product_category", "full_description")


def read_catalogue(
    products: str | Path,
    attributes: str | Path | None = None,
    humans: str | Path | None = None,
    num_products: int | None = None,
) -> Catalogue:
    """The shop of some files. Prices within a range are drawn from the product's number; upstream's differ by process.

    Raises: EnvError where a file cannot be read, a record is not as it should be, or no goal comes of it.
    """
    if attributes is None and humans is None:
        raise EnvError(
            f"{products} holds no instructions: add attributes=FILE (items_ins_v2_1000.json), human_goals=FILE "
            "(items_human_ins.json), or both"
        )
    if num_products is not None and num_products < 1:
        raise EnvError(f"num_products is {num_products}: give webshop 1 or more")
    files = [None if path is None else Path(path).expanduser().resolve() for path in (products, attributes, humans)]
    return _read(*((path, _changed(path)) for path in files), num_products)


def _changed(path: Path | None) -> int:
    try:
        return 0 if path is None else path.stat().st_mtime_ns
    except OSError as error:
        raise EnvError(f"cannot read {path}: {error.strerror or error}; name one of WebShop's files") from error


File = tuple[Path | None, int]


@cache
def _read(products: File, attributes: File, humans: File, num_products: int | None) -> Catalogue:
    records = _json(products[0], list)[:num_products]
    of_product = _json(attributes[0], dict)
    by_humans = _json(humans[0], dict) if humans[0] is not None else None
    read: dict[str, Product] = {}
    for number, record in enumerate(records):
        try:
            asin = record["asin"]
            if isinstance(asin, str) and asin != "nan" and 0 < len(asin) <= MAX_ASIN and asin not in read:
                of_humans = by_humans.get(asin, ()) if by_humans is not None else None
                read[asin] = read_product(record, of_product.get(asin, {}), of_humans)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise EnvError(f"{products[0]}, product {number}: {_told(error)}; mend the record") from error
    kept = tuple(read.values())
    goals = generated_goals(kept) if by_humans is None else human_goals(kept)
    if not goals:
        raise EnvError(
            f"the {len(kept)} products of {products[0]} have no instruction: give files that belong together"
        )
    digest = blake2b(digest_size=8)
    for path in (products[0], attributes[0], humans[0]):
        digest.update(path.read_bytes() if path is not None else b"-")
    return Catalogue(kept, goals, name=f"{digest.hexdigest()} {num_products}")


def _told(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _json(path: Path | None, kind: type) -> Any:
    if path is None:
        return kind()
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise EnvError(f"cannot read {path} as JSON: {error}; name one of WebShop's files") from error
    if not isinstance(content, kind):
        is_list = "a list of products" if kind is list else "an object by product number"
        raise EnvError(f"{path} holds {type(content).__name__}, and should be {is_list}: name one of WebShop's files")
    return content


def read_product(record: Mapping[str, Any], details: Mapping[str, Any], humans: Sequence[Any] | None = None) -> Product:
    """A product from its records in the three files.

    Args:
        humans: its human instructions. None: it has the generated one of `details`.
    Raises: KeyError, TypeError or ValueError where one is not as it should be.
    """
    for name in _TEXTS:
        if not isinstance(record[name], str):
            raise TypeError(f"{name!r} is {type(record[name]).__name__} and should be a text")
    if not is_whole(json.dumps([record, details, humans], ensure_ascii=False)):
        raise ValueError("it holds half a character (a lone surrogate)")
    asin = record["asin"]
    features = record["small_description"]
    prices = read_prices(record.get("pricing"))
    instructions = _generated(details) if humans is None else tuple(map(_human, humans))
    return Product(
        asin=asin,
        title=record["name"],
        category=record["category"],
        query=record["query"].lower().strip(),
        product_category=record["product_category"],
        description=record["full_description"],
        features=_texts("small_description", features if isinstance(features, list) else [features]),
        attributes=_texts("attributes", details["attributes"]) if "attributes" in details else NO_ATTRIBUTES,
        options=_options(record["customization_options"]),
        prices=prices,
        price=_drawn_price(asin, prices),
        instructions=instructions,
    )


def _texts(name: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{name!r} should be a list of texts")
    return tuple(values)


def _generated(details: Mapping[str, Any]) -> tuple[Instruction, ...]:
    text = details.get("instruction")
    if text is None:
        return ()
    attributes = _texts("instruction_attributes", details["instruction_attributes"])
    if not isinstance(text, str) or not attributes:
        raise ValueError("'instruction' should be a text, with one or more 'instruction_attributes'")
    return (Instruction(text=text, attributes=attributes),)


def _human(record: Mapping[str, Any]) -> Instruction:
    if not isinstance(record["instruction"], str):
        raise TypeError("the 'instruction' of a human goal should be a text")
    return Instruction(
        text=record["instruction"],
        attributes=_texts("instruction_attributes", record["instruction_attributes"]),
        options=_texts("instruction_options", record["instruction_options"]),
    )


def _options(record: Any) -> dict[str, tuple[str, ...]]:
    """Choices by option, in lower case, with ` | ` for a slash."""
    options: dict[str, tuple[str, ...]] = {}
    for name, values in (record or {}).items():
        if values is not None:
            options[name.lower()] = tuple(value["value"].strip().replace("/", " | ").lower() for value in values)
    return options


def read_prices(pricing: Any) -> tuple[float, ...]:
    """The numbers of `$12.99` or `$12.99 - $20.00`. Empty: there is no price."""
    if not pricing:
        return ()
    numbers = [re.sub(r"[^\d.]", "", part) for part in pricing.split("$")[1:]]
    return tuple(float(number) for number in numbers[:2])


def _drawn_price(asin: str, prices: Sequence[float]) -> float:
    if not prices:
        return 100.0
    return prices[0] if len(prices) == 1 else Random(seed_of("webshop price", asin)).uniform(*prices)
