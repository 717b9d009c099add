"""Errors planted into texts: another number in place of the last one, written as that one is."""

from __future__ import annotations

import random
import re
from decimal import Decimal

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def with_other_number(text: str, rng: random.Random) -> str | None:
    """The text with its last number off by a little, with as many decimals and with thousands separated as they were.
    None: it has no number."""
    numbers = list(NUMBER.finditer(text))
    if not numbers:
        return None
    last = numbers[-1]
    return text[: last.start()] + other_number(last.group(), rng) + text[last.end() :]


def other_number(written: str, rng: random.Random) -> str:
    """Another number: 1 or 2 less, or 1, 2 or 10 more. It is never below 0, as `NUMBER` would not see its sign.

    Args:
        written: as `NUMBER` finds it.
    """
    digits = written.replace(",", "")
    off = rng.choice([-2, -1, 1, 2, 10])
    other = Decimal(digits) + off if Decimal(digits) + off >= 0 else Decimal(digits) - off
    places = len(digits.partition(".")[2])
    comma = "," if written.endswith(",") else ""  # of the sentence
    separator = "," if "," in written.removesuffix(",") else ""
    return f"{other:{separator}.{places}f}{comma}"
