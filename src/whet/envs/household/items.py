"""The items of `cookingworld` and `twc`: a level and a seed of the simulator.

An item's number is level + 4 * n. TextWorldExpress has three folds, each with 1,000 seeds, and with recipes and things
of its own. Items 0 to 3999 are of its fold `train`, 4000 to 7999 of `dev`, 8000 to 11999 of `test`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from whet.envs.protocol import EnvError

SEEDS_PER_FOLD = 1000
FOLDS = (("train", "train", 0), ("validation", "dev", 10_000), ("test", "test", 20_000))
"""Our split, the simulator's fold and its first seed."""


@dataclass(frozen=True, slots=True)
class Level:
    """How hard a game is."""

    name: str
    """The subgroup."""
    parameters: Mapping[str, int]
    """The simulator's, by its names."""

    def written(self) -> str:
        """As the simulator reads them."""
        return ", ".join(f"{name}={value}" for name, value in self.parameters.items())


@dataclass(frozen=True, slots=True)
class Item:
    """What an item's number stands for."""

    level: Level
    fold: str
    seed: int


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _cooking(rooms: int, ingredients: int, distractors: int, *, doors: int = 0) -> Level:
    return Level(
        f"{_counted(rooms, 'room')}, {_counted(ingredients, 'ingredient')}",
        MappingProxyType(
            {
                "numLocations": rooms,
                "numIngredients": ingredients,
                "numDistractorItems": distractors,
                "includeDoors": doors,
                "limitInventorySize": doors,
            }
        ),
    )


def _tidying(rooms: int, things: int, *, doors: int = 0) -> Level:
    return Level(
        f"{_counted(rooms, 'room')}, {_counted(things, 'thing')}",
        MappingProxyType(
            {"numLocations": rooms, "numItemsToPutAway": things, "includeDoors": doors, "limitInventorySize": 0}
        ),
    )


LEVELS: Mapping[str, tuple[Level, ...]] = MappingProxyType(
    {
        "cookingworld": (_cooking(1, 1, 2), _cooking(1, 3, 5), _cooking(3, 2, 5), _cooking(6, 3, 5, doors=1)),
        "twc": (_tidying(1, 1), _tidying(1, 2), _tidying(2, 3), _tidying(3, 4, doors=1)),
    }
)
"""By game, from easy to hard."""
NUM_LEVELS = 4
PER_FOLD = NUM_LEVELS * SEEDS_PER_FOLD


def item_of(game: str, number: int) -> Item:
    """Raises: EnvError where there is no such item."""
    if not 0 <= number < len(FOLDS) * PER_FOLD:
        raise EnvError(f"{game} has the items 0 to {len(FOLDS) * PER_FOLD - 1}, not {number}")
    fold, place = divmod(number, PER_FOLD)
    _, name, first_seed = FOLDS[fold]
    return Item(LEVELS[game][place % NUM_LEVELS], name, first_seed + place // NUM_LEVELS)


def splits() -> Mapping[str, Sequence[int]]:
    return {split: range(number * PER_FOLD, (number + 1) * PER_FOLD) for number, (split, _, _) in enumerate(FOLDS)}
