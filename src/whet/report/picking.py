"""Chooses the traces of a page where there are too many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from whet.report.records import TraceRecord

SPLITS = ("test", "validation", "train")
FAILURES = frozenset(
    {("verdict", "wrong"), ("verdict", "unparsed"), ("change", "c2i"), ("change", "i2i"), ("outcome", "wrong")}
    | {("trouble", name) for name in ("truncated", "ungraded", "failed")}
)
"""Options of failures."""
FAILED_PLACES = 2 / 3
"""Share of the places that failures fill first; the others show successes."""

Tags = Mapping[str, Sequence[str]]
Unit = list[int]
"""Indices of exchanges that stay together."""


def chosen(
    exchanges: Sequence[TraceRecord], tagged: Sequence[Tags], per_group: int, *, order: Sequence[str], whole: bool
) -> list[TraceRecord]:
    """At most `per_group` exchanges of each writer and split.

    The table links to the test's traces. There failures come first, each kind in turn, so that rare kinds are complete;
    then the others. Of the other splits, the newest steps come first. Within a step and a kind, tasks with the lowest
    hashes come first, so that each writer's test traces show much the same tasks.

    Args:
        tagged: the options of each exchange, in the same order.
        order: of the writers. Others come after them.
        whole: all attempts at a task are chosen or none, as they are compared.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for index, exchange in enumerate(exchanges):
        groups.setdefault(group_of(exchange), []).append(index)
    picked: list[int] = []
    for group in sorted(groups, key=lambda group: group_order(group, order)):
        units = _units([*groups[group]], exchanges, whole=whole)
        if group[1] == "test" and len(groups[group]) > per_group:
            units = _failures_first(units, tagged, per_group)
        picked += _ordered(_filled(units, per_group), exchanges)
    return [exchanges[index] for index in picked]


def _units(indices: list[int], exchanges: Sequence[TraceRecord], *, whole: bool) -> list[Unit]:
    """A group's exchanges, newest steps first, one by one or (`whole`) the attempts at a task together."""
    units: dict[object, Unit] = {}
    for index in _ordered(indices, exchanges):
        units.setdefault(attempts(exchanges[index]) if whole else index, []).append(index)
    return list(units.values())


def _ordered(indices: Sequence[int], exchanges: Sequence[TraceRecord]) -> list[int]:
    def place(index: int) -> tuple[int, bytes]:
        one = exchanges[index]
        return -one.step, sha256(one.task.encode(errors="replace")).digest()

    return sorted(indices, key=place)


def _failures_first(units: Sequence[Unit], tagged: Sequence[Tags], per_group: int) -> list[Unit]:
    """Failures up to their share of the places, then all others, then the remaining failures."""
    failed: dict[tuple[object, ...], list[Unit]] = {}
    sound: dict[tuple[object, ...], list[Unit]] = {}
    for unit in units:
        options = sorted({(key, value) for index in unit for key, values in tagged[index].items() for value in values})
        kinds = tuple(option for option in options if option[0] in ("verdict", "change", "outcome", "trouble"))
        (failed if FAILURES & set(kinds) else sound).setdefault(kinds, []).append(unit)
    bad, good = _in_turn(failed), _in_turn(sound)
    places, first = per_group * FAILED_PLACES, 0
    while first < len(bad) and places > 0:
        places -= len(bad[first])
        first += 1
    return [*bad[:first], *good, *bad[first:]]


def _in_turn(kinds: Mapping[tuple[object, ...], Sequence[Unit]]) -> list[Unit]:
    """The first of each kind, the second of each, and so on."""
    ranked = [(rank, kind, unit) for kind, units in kinds.items() for rank, unit in enumerate(units)]
    return [unit for _, _, unit in sorted(ranked, key=lambda entry: (entry[0], str(entry[1])))]


def _filled(units: Sequence[Unit], per_group: int) -> list[int]:
    picked: list[int] = []
    for unit in units:
        if len(picked) + len(unit) > per_group:
            break
        picked += unit
    return picked


def attempts(exchange: TraceRecord) -> str:
    """The key that the attempts at one task in one step share."""
    return f"{exchange.phase}/{exchange.writer}/{exchange.split}/{exchange.step}/{exchange.task}"


def group_of(exchange: TraceRecord) -> tuple[str, str]:
    return exchange.writer, exchange.split


def group_order(group: tuple[str, str], order: Sequence[str]) -> tuple[object, ...]:
    return (*writer_order(group[0], order), *split_order(group[1]))


def writer_order(name: str, order: Sequence[str]) -> tuple[int, str]:
    return (order.index(name), "") if name in order else (len(order), name)


def split_order(name: str) -> tuple[int, str]:
    return (SPLITS.index(name), "") if name in SPLITS else (len(SPLITS), name)
