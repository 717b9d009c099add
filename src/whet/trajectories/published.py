"""Published lists of items by their numbers, and their overlap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from whet.envs.protocol import EnvError
from whet.tasks.files import DataError
from whet.trajectories.files import item_id_of, records
from whet.trajectories.records import environment_of, item_number


def read_numbers(path: str | Path, named_items: Mapping[str, int] | None = None) -> tuple[int, ...]:
    """The item numbers of a file of items or trajectories of one environment, in its order, repetitions included.

    Args:
        named_items: as `EnvironmentInfo.named_items`.
    Raises: DataError where the file is none, has an id without a number, or items of several environments or sources.
    """
    numbers, names = [], set[str]()
    for item_id, number in _numbered(path, named_items):
        numbers.append(number)
        names.add(environment_of(item_id) if item_id in (named_items or {}) else item_id.rpartition("_")[0])
    if len(names) > 1:
        environments = sorted({environment_of(f"{name}_0") for name in names})
        raise DataError(
            f"{path} has items of {', '.join(sorted(names))} ({', '.join(environments)}), each numbered from 0: give a "
            "file of one of them"
        )
    return tuple(numbers)


def read_published(path: str | Path, named_items: Mapping[str, int] | None = None) -> tuple[tuple[str, int], ...]:
    """Environment and number of each item in a file of items or trajectories, in its order.

    Args:
        named_items: as `EnvironmentInfo.named_items`.
    Raises: DataError where the file is none, or has an id without a number.
    """
    return tuple((environment_of(item_id), number) for item_id, number in _numbered(path, named_items))


def _numbered(path: str | Path, named_items: Mapping[str, int] | None = None) -> Iterator[tuple[str, int]]:
    for place, row in records(Path(path)):
        item_id = item_id_of(place, row)
        try:
            yield item_id, item_number(item_id, named_items)
        except EnvError as error:
            raise DataError(f"{place}: {error}") from error


def overlaps(train: Sequence[int], test: Sequence[int]) -> int:
    """How many different test items are training items too."""
    return len(set(train) & set(test))
