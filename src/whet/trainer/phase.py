"""A phase: a stretch of a run in which policies learn from rows, or in which the run only measures.

A phase is data and callables. A method makes it when its turn has come.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
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
    """Signs of learning in its replies; those of scored replies come first. None: the rows are texts to imitate."""


@dataclass(frozen=True)
class Selection:
    """Snapshots the best weights by a validation metric."""

    policy: str
    into: str
    """The frozen policy that holds the best weights so far; made when first needed."""
    metric: str
    """Larger is better. The weights that the phase starts from take part."""
    takes_later_at_zero: bool = False
    """For imitation. Where nothing succeeds, success tells no weights apart, and later ones have learnt more."""

    def prefers(self, value: float, best: float) -> bool:
        """Whether weights with this value replace the best ones so far."""
        return value > best or (self.takes_later_at_zero and value == best == 0)


@dataclass(frozen=True)
class Budget:
    """A limit that may end a phase before its last step."""

    metric: str
    """A metric of a step. Its values are summed over the phase."""
    most: float
    """The step whose sum reaches this is the phase's last one."""


@dataclass(frozen=True)
class Phase:
    """A stretch of a run: which policies learn from which rows, by which updates."""

    name: str
    num_steps: int
    """0: the run skips the phase."""
    collect: Callable[[int], Batch]
    """The rows of step 1, 2, ...: a pure function of the step, of the policies' weights and of the store."""
    updates: Callable[[int], Mapping[str, Update]] = lambda step: {}
    """The updates of a step, by policy. All steps train the same policies. A phase without any only measures."""
    begin: Callable[[], None] = lambda: None
    """Runs once before step 1, and not on resume: copies weights, makes references."""
    end: Callable[[], Mapping[str, Any]] = dict
    """Runs once after the last step. Its result (JSON types) is `Loop.found[name]`. Later phases may depend on it."""
    validate: Callable[[int], Batch] | None = None
    """Measures the policies after a step."""
    validate_every: int = 0
    """Steps between validations. Step 0 and the last step always validate. 0: none."""
    select: Selection | None = None
    main: str | None = None
    """Of several policies that learn, the one whose metrics have no prefix."""
    headline: tuple[str, ...] = ()
    """The metrics that the progress line shows."""
    budget: Budget | None = None
    """None: the phase makes all its steps."""

    def prefix(self, policy: str, learning: Collection[str]) -> str:
        """The prefix of a policy's metrics. Empty for the main policy, and where a policy learns alone.

        Args:
            learning: all policies that learn in the phase.
        """
        return "" if len(learning) == 1 or policy == self.main else f"{policy}."


class Progress(Protocol):
    """What shows a run's progress to the user."""

    def begin(self, phase: str, done: int, total: int) -> None: ...
    def step(self, step: int, shown: Mapping[str, float | None]) -> None: ...
    def tell(self, level: str, text: str) -> None: ...
    def end(self) -> None: ...


class Stopped(WhetError):
    """The user asked the run to stop. It is saved."""

    exit_code = 130

    def __init__(self, saved: Path) -> None:
        run = shlex.quote(str(saved.parents[1]))
        super().__init__(f"stopped and saved in {saved}; `whet resume {run}` goes on")
        self.saved = saved
