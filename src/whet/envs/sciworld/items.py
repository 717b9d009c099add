"""SciWorld's items: every variation of 23 of scienceworld's 30 tasks, numbered in the order of AgentGym's index.

AgentGym leaves out the tasks 5-1, 5-2, 9-1, 9-2, 9-3, 10-1 and 10-2. Its training list is numbered so: all 2,120 items
are variations that scienceworld keeps for training. Its evaluation list was drawn from a numbering without task 2-3 as
well. Read so, all 200 are test variations and none is in the training list. Read as they stand, 61
are training items and only 107 are test variations. Published subgroups are of the list as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from whet.envs.protocol import EnvError


@dataclass(frozen=True, slots=True)
class ScienceTask:
    """One task of scienceworld 1.2.3."""

    number: str
    name: str
    num_variations: int
    group: str
    """The subgroup of published scores, or one of ours where there is none."""


TASKS = (
    ScienceTask("1-1", "boil", 30, "Matter"),
    ScienceTask("1-2", "melt", 30, "Matter"),
    ScienceTask("1-3", "freeze", 30, "Matter"),
    ScienceTask("1-4", "change-the-state-of-matter-of", 30, "Matter"),
    ScienceTask("2-1", "use-thermometer", 540, "Measure"),
    ScienceTask("2-2", "measure-melting-point-known-substance", 436, "Measure"),
    ScienceTask("2-3", "measure-melting-point-unknown-substance", 300, "Measure"),
    ScienceTask("3-1", "power-component", 20, "Circuit"),
    ScienceTask("3-2", "power-component-renewable-vs-nonrenewable-energy", 20, "Circuit"),
    ScienceTask("3-3", "test-conductivity", 900, "Test-Cond"),
    ScienceTask("3-4", "test-conductivity-of-unknown-substances", 600, "Test-Cond"),
    ScienceTask("4-1", "find-living-thing", 300, "Find"),
    ScienceTask("4-2", "find-non-living-thing", 300, "Find"),
    ScienceTask("4-3", "find-plant", 300, "Find"),
    ScienceTask("4-4", "find-animal", 300, "Find"),
    ScienceTask("6-1", "chemistry-mix", 32, "Chem-Mix"),
    ScienceTask("6-2", "chemistry-mix-paint-secondary-color", 36, "Chem-Mix"),
    ScienceTask("6-3", "chemistry-mix-paint-tertiary-color", 36, "Chem-Mix"),
    ScienceTask("7-1", "lifespan-longest-lived", 125, "Lifespan"),
    ScienceTask("7-2", "lifespan-shortest-lived", 125, "Lifespan"),
    ScienceTask("7-3", "lifespan-longest-lived-then-shortest-lived", 125, "Lifespan"),
    ScienceTask("8-1", "identify-life-stages-1", 14, "Life-Stages"),
    ScienceTask("8-2", "identify-life-stages-2", 10, "Life-Stages"),
)
_ENDS = tuple(accumulate(task.num_variations for task in TASKS))
NUM_ITEMS = _ENDS[-1]


def task_of(item: int) -> tuple[ScienceTask, int]:
    """The task of an item and its variation, from 0.

    Raises: EnvError where there is no such item.
    """
    if not 0 <= item < NUM_ITEMS:
        raise EnvError(f"sciworld has no item {item}: its items are 0 to {NUM_ITEMS - 1}, one a variation of a task")
    index = next(index for index, end in enumerate(_ENDS) if item < end)
    return TASKS[index], item - _ENDS[index] + TASKS[index].num_variations


def group(item: int) -> str:
    """The subgroup of an item."""
    return task_of(item)[0].group


def split_of(item: int) -> str:
    """The split of an item in scienceworld.

    The first two quarters of a task's variations are for training, the next is for development (our `validation`), and
    the rest is for tests.
    """
    task, variation = task_of(item)
    quarter = task.num_variations // 4
    return "train" if variation < 2 * quarter else "validation" if variation < 3 * quarter else "test"


@cache
def splits() -> Mapping[str, Sequence[int]]:
    """scienceworld's own `train`, `validation` and `test`, by item."""
    by_split: dict[str, list[int]] = {"train": [], "validation": [], "test": []}
    for item in range(NUM_ITEMS):
        by_split[split_of(item)].append(item)
    return {split: tuple(items) for split, items in by_split.items()}
