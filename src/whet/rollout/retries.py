"""What becomes of failures: the sample is played again under a fresh seed, everything is counted, and a play that fails
too often ends with the first cause.

A fault is ours: a crashed environment, an endpoint that is gone, a grader that broke. What the policy's own text caused
(a reply that cannot be read, an action that hangs a tool) is the policy's outcome: scored, and never played again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.errors import TooManyFailures
from whet.rollout.driver import Rollout
from whet.rollout.services import Fault
from whet.types import FAULT_HINTS, FAULTS, Episode, Failure, Outcome, Segment, Task

LATEST = 200
"""Plays that the budget looks back on."""


class TooManyFaults(TooManyFailures):
    """A play that fails so often learns from what happens to work."""


@dataclass
class EpisodeCounts:
    """What became of all episodes that were begun. `started` is the sum of the others.

    Args:
        budget: the share of failed plays, of the last 200 or of all so far, past which the play ends. 1: never.
        patience: plays before it may.
    """

    budget: float = 0.5
    patience: int = 20
    started: int = 0
    episodes: int = 0
    """To their end, whatever the policy did."""
    refilled: int = 0
    """Failed, and played again."""
    lost: int = 0
    """Failed, and nothing stands in their place."""
    by_kind: Counter[str] = field(default_factory=Counter)
    """Failures by `Outcome`."""
    first: Episode | None = None
    """The first that failed."""
    trace: str = ""
    """Where that came from."""
    _latest: list[bool] = field(default_factory=list)

    def count(self, episode: Episode, *, again: bool, trace: str = "") -> None:
        """Raises: TooManyFaults."""
        failed = episode.outcome in FAULTS
        self.started += 1
        self.episodes += not failed
        self.refilled += failed and again
        self.lost += failed and not again
        self._latest = [*self._latest[-LATEST + 1 :], failed]
        if not failed:
            return
        self.by_kind[episode.outcome] += 1
        if self.first is None:
            self.first, self.trace = episode, trace
        if len(self._latest) >= self.patience and sum(self._latest) > self.budget * len(self._latest):
            raise TooManyFaults(self._why())

    def _why(self) -> str:
        assert self.first is not None
        share = f"{sum(self._latest)} of the last {len(self._latest)} plays failed, more than the budget of "
        share += f"{100 * self.budget:.0f} % (faults.budget). The first, on task {self.first.task.id}: "
        cause = f"{self.first.outcome}: {self.first.reason.rstrip('.')}. {hint_of(self.by_kind)}"
        return f"{share}{cause}" + (f"\n{self.trace.rstrip()}" if self.trace else "")

    def metrics(self) -> dict[str, float]:
        """For the log: `episodes/...`, and failures by kind."""
        counts = {"started": self.started, "played": self.episodes, "refilled": self.refilled, "lost": self.lost}
        kinds = {f"faults/{kind}": float(count) for kind, count in self.by_kind.items()}
        return {f"episodes/{name}": float(count) for name, count in counts.items()} | kinds


def hint_of(by_kind: Mapping[str, int]) -> str:
    """What to do about the most frequent kind of failure."""
    hint = FAULT_HINTS[max(by_kind, key=by_kind.__getitem__)]
    return f"{hint[0].upper()}{hint[1:]}"


@dataclass(frozen=True)
class Retries:
    """Plays again what fails in an episode and stands for itself, such as one critique of a group with what comes of
    it: the others keep theirs. Each is counted as an episode is."""

    episode_counts: EpisodeCounts
    limit: int
    """How often one is played again."""

    async def part(
        self, task: Task, make: Callable[[int], Rollout[list[Segment]]], *, is_counted: bool = True
    ) -> tuple[list[Segment], Failure | None]:
        """One part, and what it failed of if it is lost.

        Args:
            make: plays it, given which attempt this is (from 0), for the seeds.
            is_counted: False: only failures are counted, as what succeeds is part of what is counted later.
        Raises: TooManyFaults.
        """
        for attempt in range(self.limit + 1):
            try:
                segments = await make(attempt)
                reason = broken_grade(segments)
                failure = None if reason is None else Failure(kind="grader_error", reason=reason)
            except Fault as fault:
                segments, failure = [], fault.failure
            again = failure is not None and attempt < self.limit
            if failure is not None or is_counted:
                outcome: Outcome = "ok" if failure is None else failure.kind
                reason = "" if failure is None else failure.reason
                episodes = Episode(task=task, segments=tuple(segments), outcome=outcome, reason=reason)
                self.episode_counts.count(episodes, again=again, trace="" if failure is None else failure.trace)
            if not again:
                return segments, failure
        raise AssertionError


def broken_grade(segments: Iterable[Segment]) -> str | None:
    """Why the first grading that failed did. None: none did."""
    return next((s.grade.reason for s in segments if s.grade is not None and s.grade.score is None), None)


async def with_retries(
    rollout: Callable[..., Any],
    task: Task,
    sample: int,
    episode_counts: EpisodeCounts,
    *,
    stride: int,
    retries: int,
    **more: Any,
) -> Episode:
    """An episode; where it fails, another one under a fresh seed.

    Args:
        sample: which of a task's episodes, for the seeds.
        stride: samples of the task: a fresh seed is `sample + stride`.
        refills: how often it is played again.
    Returns: the first that did not fail; else the last, whose outcome says what happened.
    Raises: TooManyFaults.
    """
    for attempt in range(retries + 1):
        trace = ""
        try:
            episode: Episode = await rollout(task, sample=sample + attempt * stride, **more)
        except Fault as fault:
            failure = fault.failure
            episode, trace = Episode(task=task, segments=(), outcome=failure.kind, reason=failure.reason), failure.trace
        again = episode.outcome in FAULTS and attempt < retries
        episode_counts.count(episode, again=again, trace=trace)
        if not again:
            return episode
    raise AssertionError
