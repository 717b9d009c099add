"""Names for contents: people, places and titles. All of them are invented or common words."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

GIVEN = (
    "Ada", "Alma", "Anton", "Aria", "Boris", "Clara", "Dario", "Edith", "Elias", "Fiona", "Gustav", "Hanna", "Igor",
    "Ines", "Jonas", "Kira", "Leon", "Lotte", "Marek", "Mira", "Nadia", "Oskar", "Petra", "Rafael", "Selma", "Tomas",
    "Ursula", "Viktor", "Wanda", "Yara",
)  # fmt: skip
FAMILY = (
    "Abend", "Birker", "Calder", "Dorn", "Elster", "Farrow", "Galen", "Hollis", "Iverson", "Jansen", "Keller", "Lorne",
    "Marlow", "Norden", "Ostrow", "Pelham", "Quill", "Rasmus", "Sander", "Tilden", "Ulmer", "Varga", "Weller", "Yorke",
)  # fmt: skip
_BEGIN = ("Bel", "Cor", "Dun", "Fal", "Gar", "Hol", "Kar", "Lim", "Mar", "Nor", "Os", "Pel", "Ros", "Sel", "Tor", "Val")
_MIDDLE = ("a", "e", "i", "o", "ar", "en", "in", "or")
_END = ("burg", "dale", "ford", "ham", "mouth", "na", "port", "stad", "ton", "vik")


def people(random: Random, count: int) -> list[str]:
    """Different names, of a given name and a family name."""
    return [
        f"{GIVEN[n % len(GIVEN)]} {FAMILY[n // len(GIVEN)]}" for n in _drawn(random, len(GIVEN) * len(FAMILY), count)
    ]


def places(random: Random, count: int) -> list[str]:
    """Different names of towns."""
    sizes = (len(_BEGIN), len(_MIDDLE), len(_END))
    numbers = _drawn(random, sizes[0] * sizes[1] * sizes[2], count)
    return [
        _BEGIN[n % sizes[0]] + _MIDDLE[n // sizes[0] % sizes[1]] + _END[n // (sizes[0] * sizes[1])] for n in numbers
    ]


def pairs(random: Random, first: Sequence[str], second: Sequence[str], count: int, joint: str = " ") -> list[str]:
    """Different pairs of a word of each list."""
    numbers = _drawn(random, len(first) * len(second), count)
    return [f"{first[n % len(first)]}{joint}{second[n // len(first)]}" for n in numbers]


def _drawn(random: Random, size: int, count: int) -> list[int]:
    return random.sample(range(size), count)
