"""Recipes of TextCraft: the table that ships with us, and folders of recipe files in the game's format.

A table is frozen, and read once a process. Where recipes form a cycle, the one that would close it is dropped. So the
reading order decides what can be crafted. That order is ours and fixed: by name, with two exceptions that make the
published table agree with the recorded episodes.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any

from whet.config.yaml_text import load
from whet.envs.protocol import EnvError

PREFIX = "minecraft:"
READ_FIRST = ("iron_nugget", "honey_bottle")
"""Files that are read first; the others come by name. So `iron_nugget` and `honey_bottle` can be crafted, and
`iron_ingot` and `honey_block` are base items, as in the recorded episodes. The 860 published files leave 544 goals."""
SHIPPED = Path(__file__).with_name("recipes.yaml")


@dataclass(frozen=True, slots=True)
class Recipe:
    """`count` of the output from exactly these inputs. Names are as the agent writes them: `dark oak planks`."""

    output: str
    count: int
    inputs: tuple[tuple[int, str], ...]
    """Number and name; the name of an item, or of a generic ingredient."""
    group: str = ""
    """The generic ingredient that the output counts as. Empty: none."""

    @property
    def line(self) -> str:
        """The recipe as a command, as the first observation shows it."""
        used = ", ".join(f"{number} {name}" for number, name in self.inputs)
        return f"craft {self.count} {self.output} using {used}"


@dataclass(frozen=True)
class Table:
    """The recipes, and the depth of each item."""

    recipes: Mapping[str, tuple[Recipe, ...]]
    """By output, without cycles."""
    kinds: frozenset[str]
    """Names that stand for several items: none of them is an item itself."""
    kind_of: Mapping[str, str]
    """The generic ingredient that an item counts as."""
    base_items: frozenset[str]
    """Items without a recipe: the agent gets them."""
    _trees: dict[str, Tree] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def members(self) -> Mapping[str, tuple[str, ...]]:
        """The items that can be crafted, by the generic ingredient that they count as."""
        by_kind: dict[str, list[str]] = {}
        for item in sorted(self.recipes):
            if item in self.kind_of:
                by_kind.setdefault(self.kind_of[item], []).append(item)
        return {kind: tuple(items) for kind, items in by_kind.items()}

    @cached_property
    def depths(self) -> Mapping[str, int]:
        """Crafting steps from base items to each item, by the shortest of its recipes: 1 and more."""
        depths: dict[str, int] = {}

        def depth(name: str) -> int:
            if name in self.members and name not in self.recipes:
                return min(depth(item) for item in self.members[name])
            if name not in self.recipes:
                return 0
            if name not in depths:
                depths[name] = min(1 + max(depth(part) for _, part in recipe.inputs) for recipe in self.recipes[name])
            return depths[name]

        return {item: depth(item) for item in self.recipes}

    @cached_property
    def goals(self) -> tuple[str, ...]:
        """All that can be crafted, by depth and then by name: an item's number is its place here."""
        return tuple(sorted(self.recipes, key=lambda item: (self.depths[item], item)))

    @cached_property
    def uses(self) -> Mapping[str, tuple[str, ...]]:
        """The lines that use an ingredient, sorted."""
        uses: dict[str, set[str]] = {}
        for recipe in (recipe for recipes in self.recipes.values() for recipe in recipes):
            for _, name in recipe.inputs:
                uses.setdefault(name, set()).add(recipe.line)
        return {name: tuple(sorted(lines)) for name, lines in uses.items()}

    @cached_property
    def lines(self) -> frozenset[str]:
        """Every recipe as a command."""
        return frozenset(recipe.line for recipes in self.recipes.values() for recipe in recipes)

    def ways(self, name: str) -> Iterator[Recipe]:
        """The recipes for an item, or for any member of a generic ingredient."""
        for item in (name,) if name in self.recipes else self.members.get(name, ()):
            yield from self.recipes[item]

    def tree(self, goal: str) -> Tree:
        """All recipes that could contribute to an item."""
        if goal not in self._trees:
            recipes: dict[Recipe, None] = {}
            waiting = [goal]
            while waiting:
                for recipe in self.ways(waiting.pop()):
                    if recipe not in recipes:
                        recipes[recipe] = None
                        waiting += [name for _, name in recipe.inputs]
            lines = tuple(sorted(recipe.line for recipe in recipes))
            used = sorted({name for recipe in recipes for _, name in recipe.inputs})
            others = (tuple(line for line in self.uses[name] if line not in set(lines)) for name in used)
            self._trees[goal] = Tree(tuple(recipes), lines, tuple(filter(None, others)))
        return self._trees[goal]


@dataclass(frozen=True, slots=True)
class Tree:
    """The recipes below a goal."""

    recipes: tuple[Recipe, ...]
    lines: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]
    """For each ingredient of these recipes, the lines of other recipes that use it: possible distractors."""


def build(recipes: Iterable[Recipe], seen: Iterable[str] = ()) -> Table:
    """A table without cycles: a recipe is left out if one of its inputs already needs its output.

    Args:
        recipes: in the order that decides which recipe of a cycle stays.
        seen: more items that exist.
    """
    candidates = tuple(recipes)
    kind_of = {recipe.output: recipe.group for recipe in candidates if recipe.group}
    members: dict[str, list[str]] = {}
    for item, kind in kind_of.items():
        members.setdefault(kind, []).append(item)
    acyclic: dict[str, list[Recipe]] = {}

    def needs(name: str, sought: str, been: set[str]) -> bool:
        if name == sought or name in been:
            return name == sought
        been.add(name)
        below = [ingredient for recipe in acyclic.get(name, ()) for _, ingredient in recipe.inputs]
        return any(needs(ingredient, sought, been) for ingredient in (*below, *members.get(name, ())))

    for recipe in candidates:
        if not any(needs(name, recipe.output, set()) for _, name in recipe.inputs):
            acyclic.setdefault(recipe.output, []).append(recipe)
    kinds = frozenset(recipe.group for recipe in candidates if recipe.group)
    names = {name for recipe in candidates for name in (recipe.output, *(part for _, part in recipe.inputs))}
    return Table(
        recipes={item: tuple(ways) for item, ways in acyclic.items()},
        kinds=kinds,
        kind_of=kind_of,
        base_items=frozenset((names | set(seen)) - acyclic.keys() - kinds),
    )


@cache
def shipped() -> Table:
    """Our table."""
    text = load(SHIPPED.read_text(encoding="utf-8"))
    families = text["families"]
    group_of = {name: kind for kind, pattern in text["any"].items() for name in _filled((pattern,), families)}
    recipes = []
    for line in text["recipes"]:
        for filled in _filled((line,), families):
            made, _, used = filled.partition(" = ")
            (count, output), inputs = _counted(made), tuple(map(_counted, used.split(", ")))
            recipes.append(Recipe(output, count, inputs, group_of.get(output, "")))
    return build(recipes)


def _filled(patterns: Iterable[str], families: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Each pattern once for every choice of words for its braces."""
    for pattern in patterns:
        names = list(dict.fromkeys(name for _, name, _, _ in Formatter().parse(pattern) if name))
        for words in product(*(families[name] for name in names)):
            yield pattern.format(**dict(zip(names, words, strict=True)))


def _counted(text: str) -> tuple[int, str]:
    number, _, name = text.strip().partition(" ")
    return int(number), name


def published(path: str | Path) -> Table:
    """The table of a folder of recipe files in the game's format (`*.json`, at any depth), or of a tar archive of one.

    Only crafting on a grid counts: shaped and shapeless recipes. Of alternatives for one ingredient the first is taken.
    A recipe of nothing but blocks (`coal` from `coal_block`) is left out, as it only takes apart what another puts
    together.
    Raises: EnvError where there is nothing to read, or a file is no recipe.
    """
    place = Path(path).expanduser().resolve()
    if not place.exists():
        raise EnvError(f"There are no recipes at {place}: give a folder of recipe files, or a tar archive of one.")
    return _published(place, place.stat().st_mtime_ns)


@cache
def _published(place: Path, _changed: int) -> Table:
    recipes: list[Recipe] = []
    seen: set[str] = set()
    texts = dict(_files(place))
    for name in sorted(texts, key=lambda name: (name not in READ_FIRST, name)):
        try:
            recipe = _read(json.loads(texts[name]))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise EnvError(f"{name}.json in {place} is not a recipe of the game: {error!r}.") from error
        if recipe is None:
            continue
        seen.update((recipe.output, *(name for _, name in recipe.inputs)))
        if not (len(recipe.inputs) == 1 and recipe.inputs[0][1].endswith(" block")):
            recipes.append(recipe)
    if not recipes:
        raise EnvError(f"No crafting recipe is among the {len(texts)} JSON files of {place}.")
    return build(recipes, seen)


def _files(place: Path) -> Iterator[tuple[str, bytes]]:
    """Names without their ending, and contents."""
    if place.is_dir():
        for path in sorted(place.rglob("*.json")):
            yield path.stem, path.read_bytes()
        return
    try:
        with tarfile.open(place) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".json"):
                    content = archive.extractfile(member)
                    yield Path(member.name).stem, content.read() if content else b""
    except (tarfile.TarError, OSError) as error:
        raise EnvError(f"{place} is neither a folder of recipe files nor a tar archive of one: {error}.") from error


def _read(details: Mapping[str, Any]) -> Recipe | None:
    """One file. None: not of a kind that is crafted on a grid."""
    used: Counter[str] = Counter()
    if details["type"] == "minecraft:crafting_shaped":
        for mark, ingredient in details["key"].items():
            used[_name(ingredient)] += sum(row.count(mark) for row in details["pattern"])
    elif details["type"] == "minecraft:crafting_shapeless":
        used.update(_name(ingredient) for ingredient in details["ingredients"])
    else:
        return None
    inputs = tuple((number, name) for name, number in used.items() if number)
    if not inputs:
        raise ValueError("it uses nothing")
    result = details["result"] if isinstance(details["result"], Mapping) else {"item": details["result"]}
    output, group, count = spoken(result["item"]), spoken(details.get("group", "")), int(result.get("count") or 1)
    return Recipe(output, count, inputs, "" if group == output else group)


def _name(ingredient: Any) -> str:
    first = ingredient[0] if isinstance(ingredient, list) else ingredient
    return spoken(first["item"] if "item" in first else first["tag"])


def spoken(name: str) -> str:
    """As an agent writes it: `minecraft:oak_log` is `oak log`."""
    return name.removeprefix(PREFIX).replace("_", " ")


def written(name: str) -> str:
    """As the game writes it: `oak log` is `minecraft:oak_log`."""
    return PREFIX + name.replace(" ", "_")
