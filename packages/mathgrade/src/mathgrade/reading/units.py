"""Units that may follow a number: their words, dimensions and sizes. Also plain nouns in their place (`12 apples`).

Both lists are closed. A word that is in neither is not taken for a unit, because it may change the value: `5 tenths`,
`5 below zero`, `5 squared`. The nouns are those that GSM8K's training questions count (its words alone, by frequency).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

Dimension = tuple[tuple[str, int], ...]
"""Powers of base quantities, sorted, as `(("length", 1), ("time", -1))`."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a number."""

    dimension: Dimension
    size: Fraction
    """In the base unit of its dimension."""

    def power(self, exponent: int) -> Unit:
        return Unit(tuple((name, power * exponent) for name, power in self.dimension), self.size**exponent)

    def times(self, other: Unit) -> Unit:
        powers = dict(self.dimension)
        for name, power in other.dimension:
            powers[name] = powers.get(name, 0) + power
        dimension = tuple(sorted((name, power) for name, power in powers.items() if power))
        return Unit(dimension, self.size * other.size)


_TABLE = """
length    1           m meter metre
length    1/100       cm centimeter centimetre
length    1/1000      mm millimeter millimetre
length    1000        km kilometer kilometre kms
length    127/5000    in inch inches
length    381/1250    ft foot feet
length    1143/1250   yd yard
length    201168/125  mi mile
time      1           s sec second
time      60          min minute
time      3600        h hr hrs hour
time      86400       day
time      604800      wk week
month     1           mo month
month     12          yr year
month     120         decade
month     1200        century centuries
mass      1           g gram gm
mass      1/1000      mg milligram
mass      1000        kg kilogram kilo kgs
mass      45359237/100000         lb pound lbs
mass      45359237/1600000        oz ounce
mass      1000000     tonne
ton       1           ton
money     1           dollar buck usd
money     1/100       cent
euro      1           euro eur
sterling  1           gbp
rupee     1           rupee rs
yuan      1           yuan
yen       1           yen
peso      1           peso
volume    1/1000      l liter litre
volume    1/1000000   ml milliliter millilitre
volume    473176473/125000000000  gal gallon
volume    473176473/500000000000  qt quart
volume    473176473/1000000000000 pt pint
volume    473176473/2000000000000 cup
volume    473176473/32000000000000 tbsp tablespoon
volume    473176473/96000000000000 tsp teaspoon
area      316160658/78125  acre
area      10000       hectare
angle     1           degree deg
radian    1           radian rad
celsius   1           celsius
fahrenheit 1          fahrenheit
percent   1           percent pct percentage
speed     1397/3125   mph
speed     5/18        kph kmh kmph
force     1           newton
energy    1           joule
power     1           watt
power     1000        kw kilowatt
voltage   1           volt
current   1           amp ampere
pressure  1           pascal pa
frequency 1           hz hertz
charge    1           coulomb
capacity  1           farad
induction 1           henry
field     1           tesla
kelvin    1           kelvin
resistance 1          ohm
mole      1           mol mole
calorie   1           calorie
memory    1           byte
memory    1000000     mb megabyte
memory    1000000000  gb gigabyte
"""
_DERIVED: dict[str, Dimension] = {
    "volume": (("length", 3),),
    "speed": (("length", 1), ("time", -1)),
    "area": (("length", 2),),
}


def _units() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for line in _TABLE.strip().splitlines():
        quantity, size, *names = line.split()
        unit = Unit(_DERIVED.get(quantity, ((quantity, 1),)), Fraction(size))
        for name in names:
            units[name] = unit
            if len(name) > 2:
                units.setdefault(f"{name}s", unit)
    return units


UNITS = _units()
"""By word, singular and plural, lower case."""
SYMBOLS = {
    "$": UNITS["dollar"],
    "€": UNITS["euro"],
    "£": UNITS["gbp"],
    "¥": UNITS["yen"],
    "¢": UNITS["cent"],
    "₹": UNITS["rupee"],
}
LETTERS = {
    "A": "ampere", "C": "coulomb", "F": "farad", "H": "henry", "J": "joule", "K": "kelvin", "N": "newton", "T": "tesla",
    "V": "volt", "W": "watt", "L": "liter",
}  # fmt: skip
r"""Symbols that are units where they are set as text, as in `\text{ F}`, and variables elsewhere."""
NO_UNIT = Unit((), Fraction(1))
GENERIC = {"unit", "units"}
"""Words for a unit without its name."""


@lru_cache(maxsize=1)
def _nouns() -> frozenset[str]:
    return frozenset(Path(__file__).with_name("nouns.txt").read_text(encoding="utf-8").split())


def unit_of(word: str) -> Unit | None:
    """The unit that a word names; a counted noun is `NO_UNIT`. None: it is neither.

    Case counts for one letter only (`L` and `l` are litres, `M` is none).
    """
    if len(word) == 1:
        return UNITS.get(word if word != "L" else "l")
    lowered = word.lower()
    if lowered in UNITS:
        return UNITS[lowered]
    if lowered in GENERIC or lowered in _nouns() or (len(lowered) > 2 and _plural(lowered) in _nouns()):
        return NO_UNIT
    return None


def _plural(word: str) -> str:
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh", "o")) else f"{word}s"
