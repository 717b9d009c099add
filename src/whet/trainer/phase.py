"""A phase: a stretch of a run in which somebody learns something from rows, or in which something is measured.

Data and callables, which a method makes when the phase's turn has come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from whet.errors import WhetError
from whet.trainer.terms import Update
from whet.trainer.watch import Signs
from whet.types import Row


@dataclass(frozen=True)
class Batch:
    """What one step collected."""

    rows: Sequence[Row] = ()
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    traces: Sequence[Mapping[str, Any]] = ()
    signs: Sequence[Signs] | None = None
    """What its replies say about learning, those that are paid first. None: the rows are texts that were given."""


@dataclass(frozen=True)
class Selection:
    """Keep the best weights by a validation metric."""

    policy: str
    into: str
    """The frozen policy that holds the best weights so far; made when first needed."""
    metric: str
    """Larger is better. The weights that the phase starts from take part."""
    takes_later_at_zero: bool = False
    """For imitation: where nothing succeeds, success tells no weights apart, and the later ones have learnt more."""

    def prefers(self, value: float, best: float) -> bool:
        """Whether weights of a value take the place of those of the best one so far."""
        return value > best or (self.takes_later_at_zero and value == best == 0)


@dataclass(frozen=True)
class Budget:
    """What a phase may spend before its steps are over."""

    metric: str
    """Of a step; its values are added up over the phase."""
    most: float
    """The step whose sum reaches this is the phase's last one."""


@dataclass(frozen=True)
class Phase:
    """A stretch of a run: who learns what from which rows."""

    name: str
    num_steps: int
    """0: it is passed over."""
    collect: Callable[[int], Batch]
    """The rows of step 1, 2, ...: a pure function of the step, of the policies' weights and of the store."""
    updates: Callable[[int], Mapping[str, Update]] = lambda step: {}
    """By policy, for each step: the same policies in all of them. A phase without any only measures."""
    begin: Callable[[], None] = lambda: None
    """Runs once before step 1, not when the phase is resumed: copies weights, makes references."""
    end: Callable[[], Mapping[str, Any]] = dict
    """Runs once after the last step. What it returns (plain JSON) is kept as `Loop.found[name]`: later phases may
    depend on it."""
    validate: Callable[[int], Batch] | None = None
    validate_every: int = 0
    """Steps. Step 0 and the last step, also one that spends the budget, are always validated."""
    select: Selection | None = None
    main: str | None = None
    """Of several policies that learn, the one whose metrics go by their bare names; the others' are prefixed."""
    headline: tuple[str, ...] = ()
    """The metrics that the progress line shows."""
    budget: Budget | None = None
    """None: the phase makes all its steps."""


class Progress(Protocol):
    """Who watches a run."""

    def begin(self, phase: str, done: int, total: int) -> None: ...
    def step(self, step: int, shown: Mapping[str, float | None]) -> None: ...
    def tell(self, level: str, text: str) -> None: ...
    def end(self) -> None: ...


class Stopped(WhetError):
    """The user asked the run to stop; it was saved."""

    exit_code = 130

    def __init__(self, saved: Path) -> None:
        super().__init__(f"stopped and saved in {saved}; `whet resume {saved.parents[1]}` goes on")
        self.saved = saved
