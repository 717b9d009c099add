"""Which units of rollouts begin, which ones an update trains on, and when an update waits: asynchronous training.

A *unit* is a few groups of rollouts, of one version of the weights. Its *age* is the number of steps from the one that
it begins in to the one that trains on it. The bound is on what is trained on: an update waits where a unit that goes on
would come out too old after it. So slow units train too, and none is thrown away.

The schedule knows no clock, no process and no model. A run and a simulation drive the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Batch = list[tuple[int, int]]
"""The units that a step trains on, each with the step that it began in."""


@dataclass
class UnitSchedule:
    """The units of a phase, numbered from 0. Step s is the s-th update; each trains on `size` units.

    Units that begin in step s are of the weights that s - 1 updates made. While step s trains, units still begin in it.
    """

    size: int
    max_age: int
    num_steps: int
    step: int = 1
    is_training: bool = False
    """Whether the step has its units, and makes its update."""
    num_begun: int = 0
    """Units that were ever begun: the number of the next one."""
    open: dict[int, int] = field(default_factory=dict)
    """Units that have begun and were not trained on, each with the step that it began in."""
    ended: dict[int, int] = field(default_factory=dict)
    """Those of them that have ended."""
    lost: list[int] = field(default_factory=list)
    """Units whose process died. They begin again, before others."""
    num_lost: int = 0
    _open_by_step: Counter[int] = field(default_factory=Counter)
    """How many of `open` began in each step, as those of `ended` below: a decision has to count no units."""
    _ended_by_step: Counter[int] = field(default_factory=Counter)

    # --- beginning and ending -----------------------------------------------------------------------------------------

    def may_begin(self) -> bool:
        """Whether a unit that began now could still be trained on in time.

        Until the step in which it would be too old, updates train on `size` units each. So no more may be open.
        """
        if self.lost:
            return True
        steps_left = self.step + self.max_age - self._next_update + 1
        return self.num_begun < self.size * self.num_steps and len(self.open) < self.size * steps_left

    def begin(self) -> int:
        """The number of the unit that begins now."""
        if self.lost:
            unit = self.lost.pop(0)
        else:
            unit, self.num_begun = self.num_begun, self.num_begun + 1
        self._opened(unit)
        return unit

    def _opened(self, unit: int) -> None:
        self.open[unit] = self.step
        self._open_by_step[self.step] += 1

    def end(self, unit: int) -> None:
        """A unit has ended."""
        self.ended[unit] = begun = self.open[unit]
        self._ended_by_step[begun] += 1

    def lose(self, unit: int) -> None:
        """A unit's process died before its end."""
        self._open_by_step[self.open.pop(unit)] -= 1
        self.lost = sorted([*self.lost, unit])
        self.num_lost += 1

    # --- updates ------------------------------------------------------------------------------------------------------

    @property
    def _next_update(self) -> int:
        return self.step + self.is_training

    @property
    def has_enough(self) -> bool:
        """Whether as many units have ended as an update trains on."""
        return len(self.ended) >= self.size

    def is_ready(self) -> bool:
        """Whether the step's update may happen.

        It may where the oldest units that have ended fill it, and all that are left can be trained on in time: those
        that are due within the next n updates are n times `size` at most.
        """
        if self.is_training or not self.has_enough:
            return False
        room, num_due = self.size, 0
        for updates, begun in enumerate(range(self.step - self.max_age, self.step + 1)):
            taken = min(room, self._ended_by_step[begun])
            room -= taken
            num_due += self._open_by_step[begun] - taken
            if num_due > updates * self.size:
                return False
        return True

    def take(self) -> Batch:
        """The units that the step trains on, which leave the schedule: the oldest that have ended."""
        batch = sorted(self.ended.items(), key=lambda pair: (pair[1], pair[0]))[: self.size]
        self._taken(batch)
        return sorted(batch)

    def _taken(self, batch: Batch) -> None:
        for unit, begun in batch:
            del self.ended[unit], self.open[unit]
            self._open_by_step[begun] -= 1
            self._ended_by_step[begun] -= 1
        self.is_training = True

    def trained(self) -> None:
        """The step's update is made: the next units are of new weights."""
        self.step += 1
        self.is_training = False

    def restore(self, step: int, num_begun: int, ended: Mapping[int, int], unended: Iterable[int]) -> None:
        """Go on where a checkpoint was made.

        Args:
            step: that comes next.
            ended: units that had ended, each with the step that it began in.
            unended: units that were under way. They begin again, by newer weights.
        """
        self.step, self.num_begun, self.is_training = step, num_begun, False
        self.open, self.ended, self.lost = dict(ended), dict(ended), sorted(unended)
        self._open_by_step, self._ended_by_step = Counter(ended.values()), Counter(ended.values())


@dataclass
class RecordedSchedule(UnitSchedule):
    """The units of another run, in its order: each begins and trains in the step that the log says.

    No unit goes on during an update, so results depend on no process and no clock.
    """

    record: Mapping[int, Batch] = field(default_factory=dict)
    """The batch of each step."""

    def __post_init__(self) -> None:
        self._by_step: dict[int, list[int]] = {}
        for unit, begun in sorted(pair for batch in self.record.values() for pair in batch):
            self._by_step.setdefault(begun, []).append(unit)

    def may_begin(self) -> bool:
        return bool(self.lost) or (not self.is_training and bool(self._to_begin))

    @property
    def _to_begin(self) -> list[int]:
        return self._by_step.get(self.step, [])

    def begin(self) -> int:
        unit = self.lost.pop(0) if self.lost else self._to_begin.pop(0)
        self._opened(unit)
        self.num_begun = max(self.num_begun, unit + 1)
        return unit

    def is_ready(self) -> bool:
        return not (self.is_training or self._to_begin or self.lost or len(self.ended) < len(self.open))

    def take(self) -> Batch:
        batch = list(self.record[self.step])
        self._taken(batch)
        return batch
